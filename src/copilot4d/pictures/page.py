"""One self-contained HTML page: pictures are embedded, all text is escaped, nothing is ever fetched from elsewhere."""

from __future__ import annotations

import base64
import html
import math
import numbers
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from copilot4d.errors import UsageError
from copilot4d.pictures.files import encode_png
from copilot4d.pictures.ink import Image

Mood = Literal["good", "warning", "bad", "plain"]
MOODS = ("good", "warning", "bad", "plain")
MEDIA_TYPES = {".png": "image/png", ".gif": "image/gif", ".jpg": "image/jpeg", ".mp4": "video/mp4"}

# The policy line makes a browser refuse every request, should one ever slip in.
HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 16px/1.55 system-ui, sans-serif; color: #1a1c22; background: #fff; max-width: 76rem; margin: 2rem auto;
  padding: 0 1.25rem; }}
h1 {{ font-size: 1.8rem; margin: 0 0 .5rem; }} h2 {{ font-size: 1.3rem; margin: 2.2rem 0 .5rem; }}
h3 {{ font-size: 1.05rem; margin: 1.4rem 0 .4rem; }}
p {{ max-width: 52rem; white-space: pre-line; }}
figure {{ margin: 1rem 0; }} figcaption, caption {{ color: #555b68; font-size: .92rem; text-align: left; }}
img, video {{ max-width: 100%; height: auto; border-radius: 4px; }}
.row {{ display: flex; flex-wrap: wrap; gap: 1rem; }} .row figure {{ flex: 1 1 18rem; margin: 0; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .8rem; border-bottom: 1px solid #dfe2e8; text-align: left; vertical-align: top; }}
th {{ border-bottom: 2px solid #9aa1af; }} td.number, th.number {{ text-align: right; }}
pre {{ background: #f3f4f7; padding: .7rem 1rem; border-radius: 4px; overflow-x: auto; }}
.note {{ border-left: 5px solid #9aa1af; background: #f3f4f7; padding: .5rem 1rem; margin: .6rem 0; max-width: 52rem;
  white-space: pre-line; }}
.good {{ border-color: #2a8a4a; background: #eaf6ee; }} .warning {{ border-color: #c98a00; background: #fdf5e2; }}
.bad {{ border-color: #c2352b; background: #fcecea; }}
</style>
</head>
<body>
"""


class Page:
    """A page that is built from top to bottom.

    >>> page = Page("A report")
    >>> page.heading("Drives")
    >>> page.table(["drive", "sweeps"], [["08", 4071]], caption="What was found.")
    >>> path = page.write("report.html")  # doctest: +SKIP
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts: list[str] = [f"<h1>{_text(title)}</h1>"]

    def heading(self, words: str, level: int = 2) -> None:
        """A heading: level 2 for a section, 3 below it."""
        if level not in (2, 3):
            raise UsageError(f"a heading has level 2 or 3 (the page's title is the only 1), got {level}")
        self._parts.append(f"<h{level}>{_text(words)}</h{level}>")

    def text(self, words: str) -> None:
        """A paragraph."""
        self._parts.append(f"<p>{_text(words)}</p>")

    def note(self, words: str, mood: Mood = "plain") -> None:
        """A marked remark: a verdict, a warning, an error."""
        if mood not in MOODS:
            raise UsageError(f"a note's mood is one of {', '.join(MOODS)}, got {mood!r}")
        self._parts.append(f'<div class="note {mood}">{_text(words)}</div>')

    def code(self, words: str) -> None:
        """A command or a piece of a file, as it is typed."""
        self._parts.append(f"<pre>{_text(words)}</pre>")

    def items(self, entries: Iterable[str]) -> None:
        """A list with bullets."""
        self._parts.append("<ul>" + "".join(f"<li>{_text(entry)}</li>" for entry in entries) + "</ul>")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> None:
        """A table. Numbers stand right, with four significant digits where they are not whole; None is a dash."""
        body = [list(row) for row in rows]
        for number, row in enumerate(body):
            if len(row) != len(columns):
                raise UsageError(f"row {number} has {len(row)} cells for {len(columns)} columns: {row}")
        numeric = [
            bool(body) and all(row[k] is None or isinstance(row[k], numbers.Real) for row in body)
            for k in range(len(columns))
        ]
        style = ['class="number"' if right else "" for right in numeric]
        head = "".join(f"<th {style[k]}>{_text(name)}</th>" for k, name in enumerate(columns))
        lines = [
            "<tr>" + "".join(f"<td {style[k]}>{_text(_cell(value))}</td>" for k, value in enumerate(row)) + "</tr>"
            for row in body
        ]
        above = f"<caption>{_text(caption)}</caption>" if caption else ""
        self._parts.append(f'<div class="scroll"><table>{above}<tr>{head}</tr>\n' + "\n".join(lines) + "</table></div>")

    def image(self, image: Image | str | Path, caption: str = "", width: int | None = None) -> None:
        """A picture: an array of pixels, or a .png, .gif, .jpg or .mp4 file, which is copied into the page."""
        self._parts.append(_figure(image, caption, width))

    def images(self, images: Sequence[tuple[Image | str | Path, str]]) -> None:
        """Pictures side by side, each with its caption."""
        figures = "".join(_figure(image, caption, None) for image, caption in images)
        self._parts.append(f'<div class="row">{figures}</div>')

    def html(self) -> str:
        """The whole page."""
        return HEAD.format(title=_text(self.title)) + "\n".join(self._parts) + "\n</body>\n</html>\n"

    def write(self, path: str | Path) -> Path:
        """Write the page as one file."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.html(), encoding="utf-8")
        return path


def _text(words: object) -> str:
    return html.escape(str(words), quote=True)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return f"{float(value):.4g}" if math.isfinite(value) else str(float(value))
    return str(value)


def _figure(image: Image | str | Path, caption: str, width: int | None) -> str:
    if isinstance(image, str | Path):
        path = Path(image)
        if path.suffix.lower() not in MEDIA_TYPES:
            raise UsageError(f"a page can hold {', '.join(MEDIA_TYPES)} files, not {path.name}")
        kind, content = MEDIA_TYPES[path.suffix.lower()], path.read_bytes()
    else:
        kind, content = "image/png", encode_png(image)
    source = f'src="data:{kind};base64,{base64.b64encode(content).decode()}"'
    size = f' width="{int(width)}"' if width is not None else ""
    if kind.startswith("video"):
        shown = f"<video {source}{size} controls loop muted></video>"
    else:
        shown = f'<img {source}{size} alt="{_text(caption)}">'
    below = f"<figcaption>{_text(caption)}</figcaption>" if caption else ""
    return f"<figure>{shown}{below}</figure>"

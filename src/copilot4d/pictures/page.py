"""One self-contained HTML page: pictures are embedded, all text is escaped, nothing is ever fetched from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import html
import math
import numbers
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from copilot4d.errors import UsageError
from copilot4d.pictures.files import encode_png
from copilot4d.pictures.ink import Image
from copilot4d.pictures.viewer import Viewer, asset, script

Mood = Literal["good", "warning", "bad", "plain"]
MOODS = ("good", "warning", "bad", "plain")
MEDIA_TYPES = {".png": "image/png", ".gif": "image/gif", ".jpg": "image/jpeg", ".mp4": "video/mp4"}

# The policy line makes a browser refuse every request, should one ever slip in. Scripts run only by their own hash.
HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'{script_policy}">
<title>{title}</title>
<style>
{style}
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
        self._views = False

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

    def links(self, files: Sequence[tuple[str, str]]) -> None:
        """Links to files that lie beside the page or in folders there: (relative path, words)."""
        for path, _ in files:
            if ":" in path or path.startswith(("/", "\\")) or ".." in Path(path).parts:
                raise UsageError(f"a page links only to files beside it or below, by a relative path, not to {path!r}")
        lines = (f'<li><a href="{_text(quote(path))}">{_text(path)}</a>: {_text(words)}</li>' for path, words in files)
        self._parts.append("<ul>" + "".join(lines) + "</ul>")

    def viewer(self, viewer: Viewer) -> None:
        """Point clouds in 3D, to be orbited and played through. A page with one runs a script, which it carries."""
        self._views = True
        self._parts.append(viewer.html())

    def html(self) -> str:
        """The whole page."""
        parts, style, policy = list(self._parts), asset("page.css"), ""
        if self._views:
            program, style = script(), style + asset("viewer.css")
            digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
            policy = f"; script-src 'sha256-{digest}'"
            parts.append(f"<script>{program}</script>")
        head = HEAD.format(title=_text(self.title), style=style, script_policy=policy)
        return head + "\n".join(parts) + "\n</body>\n</html>\n"

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

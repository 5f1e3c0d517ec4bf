"""The prose linter: phrases that a manual does not use, each with what to write instead.

    python tools/prose.py              # what `make check` looks at
    python tools/prose.py docs README.md

Looks at Markdown (not at code blocks and code spans), at the strings and docstrings of Python files, and at comments.
A line that ends in `prose: quoted` is left alone.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READ_BY_USERS = (
    "cli",
    "doctor",
    "studio",
    "datasets",
    "forecasting",
    "checkpoints",
    "environment",
    "pictures",
    "simulator",
)
CHECKED = ("README.md", "CONTRIBUTING.md", "docs", "tools", *(f"src/copilot4d/{folder}" for folder in READ_BY_USERS))
INSTEAD = {
    r"hears?\b": "uses",
    r"second opinions?": "occupancy depths (or: 4D-Occ's predicted depths)",
    r"copy gates?": "depth selector",
    r"mend(?:s|ed|ing)?\b": "fix",
    r"nobody": "no one (or say who or what: the past sweeps, the log)",
    r"(?:was|is|are|been) looked at": "read, or examined",
    r"has \d+\.\d+ of": "0.54x ray tracing's",
    r"kept aside": "held-out",
    r"(?:draw|drawn|drawing) among": "sample from",
    r"\bso many (?:tokens|drives|sweeps|frames|futures|updates|steps)": "give the number: N drives, at most N sweeps",
    r"fore(?:sees?|seen|saw)": "predicts",
    r"by heart": "memorised",
    r"(?:is|are|be) told (?:beside|about)": "printed beside, or reported",
    r"it is not known to anyone|who knows": "unknown",
    r"asks? the rays?": "predict a depth for the ray",
    r"of one's own": "your own",
    r"dearer": "slower, or more expensive",
    r"flatters?\b": "is biased in favour of",
    r"told (?:of )?below": "described below",
}
_BANNED = re.compile("|".join(f"(?P<p{i}>(?<![\\w-]){phrase})" for i, phrase in enumerate(INSTEAD)), re.IGNORECASE)


def findings_in(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, the phrase, what to write instead) of each banned phrase in plain text, which may run over lines."""
    flat = re.sub(r"\s", " ", text)
    for match in _BANNED.finditer(flat):
        line = text.count("\n", 0, match.start()) + 1
        yield line, match[0], list(INSTEAD.values())[int((match.lastgroup or "p0")[1:])]


def prose_of_markdown(text: str) -> str:
    """The text without code blocks, code spans and addresses, line for line."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    text = re.sub(r"^```.*?^```", blank, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", blank, text)
    return re.sub(r"\]\([^)\n]*\)", blank, text)


def prose_of_python(source: str) -> Iterator[tuple[int, str]]:
    """(first line, text) of each string and comment; parts of one f-string or of adjacent strings are one text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "X" for part in node.values]
            yield node.lineno, "".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def check_file(path: Path) -> list[str]:
    """Complaints about one file, one a line."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    texts = [(1, prose_of_markdown(text))] if path.suffix == ".md" else list(prose_of_python(text))
    found = {
        (first + line - 1, phrase, instead) for first, prose in texts for line, phrase, instead in findings_in(prose)
    }
    return [
        f"{path}:{line}: '{phrase}': write '{instead}'"
        for line, phrase, instead in sorted(found)
        if not lines[min(line, len(lines)) - 1].rstrip().endswith("prose: quoted")
    ]


def main(arguments: list[str]) -> int:
    """Check the files and folders named, or those of `make check`; 1 where something is to be written otherwise."""
    places = [Path(a) for a in arguments] or [ROOT / name for name in CHECKED]
    files = [
        file
        for place in places
        for file in ([place] if place.is_file() else sorted([*place.rglob("*.py"), *place.rglob("*.md")]))
        if file.resolve() != Path(__file__).resolve() and "weights" not in file.parts  # sealed: their cards have hashes
    ]
    complaints = [line for file in files for line in check_file(file)]
    print("\n".join(complaints) if complaints else f"prose: {len(files)} files, nothing to say")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

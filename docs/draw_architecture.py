"""Draws docs/architecture.svg: the package's folders, and who imports whom, from the import graph itself.

    python docs/draw_architecture.py

A folder stands one row above the highest one that it imports. An arrow that follows from others is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "copilot4d"
PICTURE = Path(__file__).with_name("architecture.svg")
SMALL = {"errors", "config", "progress", "compiled", "counter", "version", "presets"}  # known everywhere: not drawn
WIDTH, ROW, BOX, HEIGHT = 1000, 84, 128, 34  # pixels: of the picture, from row to row, of a box

Graph = Mapping[str, set[str]]


def import_graph() -> dict[str, set[str]]:
    """Folders and single modules of the package, each with those that it imports."""
    graph: dict[str, set[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        part = file.relative_to(SOURCE).with_suffix("").parts[0]
        if part in SMALL or part in ("__init__", "__main__"):
            continue
        used = graph.setdefault(part, set())
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom) and node.module == "copilot4d":
                names = [f"copilot4d.{alias.name}" for alias in node.names]
            used |= {name.split(".")[1] for name in names if name.startswith("copilot4d.")}
    known = set(graph)
    return {part: (used & known) - {part} for part, used in graph.items()}


def levels(graph: Graph) -> dict[str, int]:
    """Row of each part: 0 at the bottom, else one above the highest that it imports."""
    rows: dict[str, int] = {}
    for part in TopologicalSorter(graph).static_order():
        rows[part] = 1 + max((rows[other] for other in graph[part]), default=-1)
    return rows


def direct(graph: Graph) -> list[tuple[str, str]]:
    """The imports that do not follow from others."""
    below: dict[str, set[str]] = {}
    for part in TopologicalSorter(graph).static_order():
        below[part] = set(graph[part]).union(*(below[other] for other in graph[part]))
    return sorted(
        (part, other)
        for part, used in graph.items()
        for other in used
        if not any(other in below[between] for between in used - {other})
    )


def drawing(graph: Graph) -> str:
    """The picture as SVG text; the same graph gives the same text."""
    rows = levels(graph)
    top = max(rows.values())
    places: dict[str, tuple[float, float]] = {}
    for row in range(top + 1):
        parts = sorted(part for part, its in rows.items() if its == row)
        for i, part in enumerate(parts):
            places[part] = (WIDTH * (i + 1) / (len(parts) + 1), 30 + ROW * (top - row))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {60 + ROW * top}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{60 + ROW * top}" fill="white"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#8a94a6"/></marker></defs>',
    ]
    for part, other in direct(graph):
        (x1, y1), (x2, y2) = places[part], places[other]
        lines.append(
            f'<line x1="{x1:.0f}" y1="{y1 + HEIGHT / 2:.0f}" x2="{x2:.0f}" y2="{y2 - HEIGHT / 2:.0f}" '
            'stroke="#8a94a6" marker-end="url(#tip)"/>'
        )
    for part, (x, y) in sorted(places.items()):
        lines.append(
            f'<rect x="{x - BOX / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{BOX}" height="{HEIGHT}" rx="6" '
            'fill="#eef3fb" stroke="#3a6ea5"/>'
        )
        lines.append(f'<text x="{x:.0f}" y="{y + 5:.0f}" font-size="14" text-anchor="middle">{part}</text>')
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawing(import_graph()), encoding="utf-8")

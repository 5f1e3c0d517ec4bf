"""`copilot4d compare`: put score files side by side in one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from copilot4d.cli.console import console, next_step
from copilot4d.cli.options.compare import Options
from copilot4d.cli.score_table import COLUMNS, cell, drive_list, notes, shown
from copilot4d.errors import ProtocolError, UsageError
from copilot4d.evaluation import ScoreFile


def run(options: Options) -> int:
    """Run the verb."""
    if not options.scores:
        raise UsageError("compare needs at least one score file; copilot4d evaluate writes them")
    files = [(path, ScoreFile.read(path)) for path in options.scores]
    different = differences(files)
    if different and not options.mix_protocols:
        raise ProtocolError(
            "these scores must not stand in one table:\n" + "\n".join(different) + "\n"
            "Score all with the same protocol, setting and data, or say --mix-protocols"
        )
    scores = [score for _, score in files]
    if options.markdown:
        console.print(markdown(scores, mixed=bool(different)), markup=False, highlight=False)
        return 0
    console.print(table(scores, mixed=bool(different)))
    if not different:
        for line in notes(scores):
            style = "yellow" if line.startswith("warning") else ""
            console.print(line, style=style, markup=False, highlight=False)
    if different:
        console.print(
            "made by different rules:\n" + "\n".join(different), style="yellow", markup=False, highlight=False
        )
    names = " ".join(map(str, options.scores))
    next_step(f"copilot4d compare {names} {'--mix-protocols ' if different else ''}--markdown")
    return 0


def differences(files: Sequence[tuple[Path, ScoreFile]]) -> list[str]:
    """What keeps scores apart, one line per file and kind; empty where they may be compared."""
    kinds: dict[str, Callable[[ScoreFile], str]] = {
        "protocol": lambda s: f"{s.protocol} (hash {s.protocol_hash})",
        "setting": lambda s: s.setting,
        "data": lambda s: f"drives {drive_list(s.drives) or s.data} ({len(s.drives)})",
    }
    found = []
    for kind, describe in kinds.items():
        if len({describe(score) for _, score in files}) > 1:
            found += [f"  {kind} of {path}: {describe(score)}" for path, score in files]
    if not found and len({score.frames_hash for _, score in files}) > 1:
        found += [
            f"  frames of {path}: {score.frames_scored} scored, {score.frames_not_scored} not ({score.frames_hash})"
            for path, score in files
        ]
    return found


def best(scores: Sequence[ScoreFile]) -> dict[str, float]:
    """The lowest value of each column, as printed, so that ties are ties; nothing where there is one row only."""
    lowest = {}
    for column in COLUMNS:
        values = [v for v in (shown(score.metrics, column) for score in scores) if not math.isnan(v)]
        if len(scores) > 1 and values:
            lowest[column.metric] = min(values)
    return lowest


def rows(scores: Sequence[ScoreFile], *, mixed: bool) -> list[tuple[str, list[tuple[str, bool]]]]:
    """(name, [(text, whether it is the best)]) per score file."""
    lowest = best(scores)
    made = []
    for score in scores:
        name = (
            f"{score.model} ({score.protocol}, {score.setting}, {drive_list(score.drives)})" if mixed else score.model
        )
        cells = [
            (cell(score.metrics, c), cell({c.metric: lowest.get(c.metric, math.nan) / c.factor}, c)) for c in COLUMNS
        ]
        made.append((name, [(text, text == top and text != "-") for text, top in cells]))
    return made


def caption(scores: Sequence[ScoreFile], *, mixed: bool) -> str:
    """By which rules the table was made."""
    first = scores[0]
    if mixed:
        return "scores by different rules"
    rules = f"{first.setting}, {first.protocol} ({first.protocol_hash})"
    return f"{rules}, {drive_list(first.drives)}, {first.frames_scored} frames"


def table(scores: Sequence[ScoreFile], *, mixed: bool) -> Table:
    """The table for the terminal."""
    made = Table(title=escape(caption(scores, mixed=mixed)), title_justify="left", padding=(0, 0))
    widest = max(len(name) for name, _ in rows(scores, mixed=mixed))
    made.add_column("model", min_width=min(24, widest), overflow="fold")  # a name cut short names nothing
    for column in COLUMNS:
        made.add_column(f"{column.title}\n{column.unit}", justify="right")
    for name, cells in rows(scores, mixed=mixed):
        made.add_row(escape(name), *(f"[bold]{text}[/bold]" if is_best else text for text, is_best in cells))
    return made


def markdown(scores: Sequence[ScoreFile], *, mixed: bool) -> str:
    """The table for a page."""
    lines = [
        "| " + " | ".join(["model", *(f"{column.title}, {column.unit}" for column in COLUMNS)]) + " |",
        "|---" + "|---:" * len(COLUMNS) + "|",
    ]
    for name, cells in rows(scores, mixed=mixed):
        lines.append("| " + " | ".join([name, *(f"**{text}**" if top else text for text, top in cells)]) + " |")
    below = [] if mixed else [f"{line}{'' if line.endswith('.') else '.'}" for line in notes(scores)]
    return "\n".join([*lines, "", f"{caption(scores, mixed=mixed)}.", *below])

"""Tables as markdown, from what the steps made. A number that is not there is '-'."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from products import Products
from ratios import ratio
from steps import Row, Table

from copilot4d.errors import ProtocolError
from copilot4d.evaluation import ScoreFile
from copilot4d.progress import duration

NONE = "-"
STALE, OTHER_FRAMES = "†", "‡"
NOTES = {
    STALE: f"{STALE} made by another command or with other weights than the plan's at present.",
    OTHER_FRAMES: f"{OTHER_FRAMES} other frames were scored than in the rows beside it (the score file says why).",
}


class Place:
    """Where a table is written, and what it may put beside itself. This one is the terminal: nothing is written."""

    def picture(self, path: Path) -> str:
        """The link to a picture."""
        return str(path)

    def data(self, name: str, text: str) -> str | None:
        """The link to a table that is too long for a page; None where there is no place for it."""
        return None


class Column(NamedTuple):
    """A metric of the protocol: its title, factor and digits."""

    metric: str
    title: str
    factor: float = 1.0
    digits: int = 3


COLUMNS = (
    Column("chamfer_roi", "ROI Chamfer (m²)"),
    Column("roi_l1_median", "ROI L1 median (m)"),
    Column("roi_absrel_median", "ROI AbsRel median (%)", 100.0, 2),
    Column("roi_l1_mean", "ROI L1 mean (m)"),
    Column("roi_absrel_mean", "ROI AbsRel mean (%)", 100.0, 2),
    Column("l1_mean", "L1 mean (m)"),
    Column("absrel_mean", "AbsRel mean (%)", 100.0, 2),
    Column("chamfer", "Chamfer (m²)"),
)


def rendered(table: Table, products: Products, place: Place | None = None) -> str:
    """A table with its heading, its sentences and the notes that its marks need."""
    if not table.rows:
        return f"## {table.title}\n\nNot made yet."
    text = "\n\n".join(KINDS[table.kind](table, products, place or Place()))
    looks = max(products.looks(step) for row in table.rows for step in row.all_steps)
    notes = [note for mark, note in NOTES.items() if mark in text]
    if looks > 1:
        notes.append(f"The drives for reporting were looked at {looks} times by one of these rows, not once.")
    parts = [f"## {table.title}", table.about, text, " ".join(notes)]
    return "\n\n".join(part for part in parts if part)


def number(value: float | None, digits: int = 3) -> str:
    """A number for a cell.

    >>> number(0.1234), number(None), number(1234.5)
    ('0.123', '-', '1234')
    """
    if value is None or math.isnan(value):
        return NONE
    return f"{value:.{digits}f}" if abs(value) < 100 else f"{value:.0f}"


def grid(titles: Sequence[str], lines: Iterable[Sequence[str]], words: int) -> str:
    """A markdown table whose first `words` columns are words and whose others are numbers."""
    rule = "|" + "---|" * words + "---:|" * (len(titles) - words)
    return "\n".join(["| " + " | ".join(titles) + " |", rule, *("| " + " | ".join(line) + " |" for line in lines)])


def csv_text(rows: Iterable[Sequence[str]]) -> str:
    """Rows as CSV, without Markdown's marks.

    >>> csv_text([["on", "`a`"], ["**b**", "1"]])
    'on,a\\nb,1\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([[cell.replace("`", "").replace("**", "") for cell in row] for row in rows])
    return text.getvalue()


def group_scores(rows: Sequence[Row], products: Products) -> dict[str, ScoreFile | None]:
    """step -> scores of the rows of one group; ProtocolError where they were not made by the same rules."""
    scores = {row.step: products.scores(row.step) for row in rows}
    rules = {
        (s.protocol, s.protocol_hash, s.setting, tuple(s.drives)): step for step, s in scores.items() if s is not None
    }
    if len(rules) > 1:
        said = "; ".join(f"{step}: {rule[0]}, {rule[2]}, {len(rule[3])} drives" for rule, step in rules.items())
        raise ProtocolError(f"these scores must not stand in one table: {said}. Make them again with make.py")
    return scores


def _groups(table: Table) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in table.rows:
        groups.setdefault(row.group, []).append(row)
    return groups


def _label(row: Row, products: Products, common_hash: str = "") -> str:
    """A row's name, with the marks that it needs."""
    scores = products.scores(row.step) if common_hash else None
    other = scores is not None and scores.frames_hash != common_hash
    stale = any(products.stale(step) for step in row.all_steps)
    return row.label + (f" {STALE}" if stale else "") + (f" {OTHER_FRAMES}" if other else "")


def _common_hash(scores: Iterable[ScoreFile | None]) -> str:
    hashes = [s.frames_hash for s in scores if s is not None]
    return max(hashes, key=hashes.count) if hashes else ""


def _forecasts(table: Table, products: Products, place: Place) -> list[str]:
    """All columns; ROI Chamfer per horizon; and, where one row is ours, its ratio to the others."""
    lines, horizons, ratios, details = [], [], [], []
    for group, rows in _groups(table).items():
        scores = group_scores(rows, products)
        common = _common_hash(scores.values())
        for row in rows:
            found, label = scores[row.step], _label(row, products, common)
            cells = [number(found.metrics[c.metric] * c.factor if found else None, c.digits) for c in COLUMNS]
            counted = f"{found.references} / {found.frames_scored}" if found else NONE
            lines.append([group, label, *cells, counted])
            ahead = {h.horizon: h.metrics["chamfer_roi"] for h in found.per_horizon} if found else {}
            for h in found.per_horizon if found else ():
                values = [number(h.metrics[c.metric] * c.factor, c.digits) for c in COLUMNS]
                details.append([group, label, f"{h.seconds_ahead:.1f} s", *values, str(h.frames_scored)])
            horizons.append([group, label, *(number(ahead.get(k)) for k in range(1, 6))])
        for ours in (row for row in rows if row.ours):
            for row in rows:
                if row is not ours:
                    ratios.append([group, row.label, *ratio(scores[ours.step], scores[row.step]).cells()])
    titles = ["on", "model", *(column.title for column in COLUMNS), "references / frames"]
    ahead_titles = ["ROI Chamfer (m²) on", "model", *(f"frame {k}" for k in range(1, 6))]
    parts = [grid(titles, lines, 2), grid(ahead_titles, horizons, 2)]
    if ratios:
        ours_label = next(row.label for row in table.rows if row.ours)
        parts.append(grid([f"{ours_label}, ROI Chamfer on", "divided by that of", "ratio", "95% interval"], ratios, 2))
    if ratios and details:
        every = [["on", "model", "ahead", *(column.title for column in COLUMNS), "frames"], *details]
        link = place.data(table.name, csv_text(every))
        parts += [f"[All columns for each frame ahead, as CSV]({link})"] if link else []
    return parts


def _sampling(table: Table, products: Products, place: Place) -> list[str]:
    """ROI Chamfer by model, schedule and K; a group's last line divides the two models, each sampled its own way."""
    counts = list(dict.fromkeys(row.columns["K"] for row in table.rows))
    lines = []
    for group, rows in _groups(table).items():
        scores = group_scores(rows, products)
        by_place = {(row.ours, row.columns["schedule"], row.columns["K"]): scores[row.step] for row in rows}
        named: dict[tuple[bool, str], list[Row]] = {}
        for row in rows:
            named.setdefault((row.ours, row.columns["schedule"]), []).append(row)
        for (ours, schedule), alike in named.items():
            found = [by_place[ours, schedule, k] for k in counts]
            cells = [number(s.metrics["chamfer_roi"] if s else None) for s in found]
            label = max((_label(row, products) for row in alike), key=len)  # with a mark if any of them needs it
            lines.append([group, label, schedule, *cells])
        own = [ratio(by_place[True, "paper", k], by_place[False, "few_first", k]).cells()[0] for k in counts]
        lines.append([group, "ratio", "each its own", *own])
    return [grid(["ROI Chamfer (m²) on", "model", "schedule", *(f"K = {k}" for k in counts)], lines, 3)]


def _several(table: Table, products: Products, place: Place) -> list[str]:
    lines = []
    for group, rows in _groups(table).items():
        scores = group_scores(rows, products)
        for row in rows:
            found = scores[row.step]
            several = found.several if found else {}
            values = [
                found.metrics["chamfer_roi"] if found else None,
                several.get("mean", {}).get("chamfer_roi"),
                several.get("best", {}).get("chamfer_roi"),
                several.get("spread_chamfer_roi"),
            ]
            lines.append([group, _label(row, products), *map(number, values)])
    titles = ["ROI Chamfer (m²) on", "model", "the first", "mean of all", "the best", "of two futures from each other"]
    return [grid(titles, lines, 2)]


def _tokenizers(table: Table, products: Products, place: Place) -> list[str]:
    lines = []
    for row in table.rows:
        report, spent = products.tokenizer(row.step), products.spent(row.step)
        scores = report["scores"] if report else {}
        used = scores.get("codebook_used")
        cells = [number(scores.get(name)) for name in ("chamfer_roi", "roi_l1_median", "roi_l1_mean")]
        cells.append(NONE if used is None else f"{100 * used:.0f}%")
        cells += [str(report["sweeps_scored"]) if report else NONE]
        cells += [f"{spent.updates:,}", duration(60 * spent.minutes)] if spent else [NONE, NONE]
        lines.append([_label(row, products), row.group or NONE, *cells])
    titles = ["tokenizer", "scored on", "ROI Chamfer (m²)", "L1 median (m)", "L1 mean (m)", "codes used", "sweeps",
              "updates", "training"]  # fmt: skip
    return [grid(titles, lines, 2)]


def _whatif(table: Table, products: Products, place: Place) -> list[str]:
    lines, chamfers = [], []
    plans = ("keep", "brake", "swerve", "turn")
    for row in table.rows:
        found, label = products.whatif(row.step), _label(row, products)
        if found is None:
            lines.append([label, *[NONE] * 7])
            chamfers.append([label, *[NONE] * 8])
            continue
        cells = [s.text() for kind in ("all", "moving") for s in (found.obedience[kind], found.pairs[kind])]
        moved = [number(found.displacement.get(name), 2) for name in ("true_m", "imagined_m")]
        lines.append([label, str(found.moments), *cells, found.reaction.text(), " / ".join(moved)])
        chamfers.append(
            [label, *(number(found.chamfer[kind].get(plan), 2) for kind in ("all", "moving") for plan in plans)]
        )
    titles = ["model", "moments", "obedience, all", "pairs", "obedience, moving", "pairs", "reaction",
              "follower displaced, true / found (m)"]  # fmt: skip
    plan_titles = ["Chamfer (m²)", *(f"{plan}, {kind}" for kind in ("all", "moving") for plan in plans)]
    return [grid(titles, lines, 1), grid(plan_titles, chamfers, 1)]


def _token_frames(table: Table, products: Products, place: Place) -> list[str]:
    lines = []
    settings = list(table.rows[0].also)
    for row in table.rows:
        found, spent = products.evaluation(row.step) or {}, products.spent(row.step)
        names = ("accuracy", "copy_accuracy", "warped_accuracy", "accuracy_changed", "warped_accuracy_changed")
        scores = [products.scores(row.also[setting]) for setting in settings]
        cells = [number(found.get(name)) for name in names]
        cells += [number(s.metrics["chamfer_roi"] if s else None) for s in scores]
        cells += [f"{spent.updates:,}", duration(60 * spent.minutes)] if spent else [NONE, NONE]
        lines.append([_label(row, products), *cells])
    titles = ["token frame", "tokens right", "by copying", "by a copy moved with the ego", "changed tokens right",
              "by a copy moved with the ego", *(f"ROI Chamfer (m²), {s}" for s in settings), "updates",
              "training"]  # fmt: skip
    return [grid(titles, lines, 1)]


def _pictures(table: Table, products: Products, place: Place) -> list[str]:
    parts = []
    for row in table.rows:
        found = products.pictures(row.step)
        parts.append(f"**{_label(row, products)}**" + ("" if found else f": {NONE}"))
        for file, caption in found or []:
            parts += [f"![{caption.partition(':')[0]}]({place.picture(file)})", caption]
    return parts


KINDS: dict[str, Callable[[Table, Products, Place], list[str]]] = {
    "forecasts": _forecasts, "sampling": _sampling, "several": _several, "tokenizers": _tokenizers, "whatif": _whatif,
    "token_frames": _token_frames, "pictures": _pictures,
}  # fmt: skip

"""The columns of the paper's tables, for every verb that prints scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from copilot4d.evaluation import ScoreFile
from copilot4d.evaluation.intervals import FEW_REFERENCES, chamfer_interval, chamfer_ratio


class Column(NamedTuple):
    """One column: a metric of FrameScore, its title, its unit and its factor (AbsRel is printed in percent)."""

    metric: str
    title: str
    factor: float = 1.0
    unit: str = ""


COLUMNS = (
    Column("chamfer_roi", "ROI Chamfer", unit="m²"),
    Column("roi_l1_median", "L1 Med", unit="m"),
    Column("roi_absrel_median", "AbsRel Med", 100.0, "%"),
    Column("l1_mean", "L1 Mean", unit="m"),
    Column("absrel_mean", "AbsRel", 100.0, "%"),
    Column("chamfer", "Chamfer", unit="m²"),
)


def drive_list(drives: Sequence[str]) -> str:
    """Drives for a caption: a data set may have hundreds."""
    more = f" and {len(drives) - 4} more" if len(drives) > 4 else ""
    return ", ".join(drives[:4]) + more


def shown(metrics: Mapping[str, float], column: Column) -> float:
    """A metric as the table prints it."""
    return metrics[column.metric] * column.factor


def cell(metrics: Mapping[str, float], column: Column) -> str:
    """A metric as text: three decimals, a dash where it does not exist."""
    value = shown(metrics, column)
    return "-" if math.isnan(value) else f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"


def notes(scores: Sequence[ScoreFile]) -> list[str]:
    """What to read below a table: which way is better, how sure the numbers are, and ratios to the first row."""
    lines = ["All columns: smaller is better."]
    first, *others = scores
    if (sure := chamfer_interval(first)) is not None:
        lines.append(
            f"ROI Chamfer of {first.model}: {sure.value:.3f} m², 95% interval {sure.low:.3f} to {sure.high:.3f} over "
            f"{len(first.by_reference)} references (bootstrap)"
        )
    for other in others:
        ratio = chamfer_ratio(other, first)
        plain = shown(other.metrics, COLUMNS[0]) / max(shown(first.metrics, COLUMNS[0]), 1e-12)
        if ratio is not None:
            how = f"{ratio.value:.2f}x {first.model}, 95% interval {ratio.low:.2f}x to {ratio.high:.2f}x"
            lines.append(f"ROI Chamfer of {other.model}: {how}")
        elif math.isfinite(plain):
            lines.append(f"ROI Chamfer of {other.model}: {plain:.2f}x {first.model}")
    fewest = min(score.references or len(score.by_reference) for score in scores)
    if 0 < fewest < FEW_REFERENCES:
        lines.append(
            f"warning: only {fewest} reference frames: with fewer than {FEW_REFERENCES} the order of models can change "
            "by chance; score more (--every, --limit, more drives)"
        )
    return lines

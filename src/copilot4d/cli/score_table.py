"""The columns of the paper's tables, for every verb that prints scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Column(NamedTuple):
    """One column: a metric of FrameScore, its title, and its factor (AbsRel is printed in percent)."""

    metric: str
    title: str
    factor: float = 1.0


COLUMNS = (
    Column("chamfer_roi", "ROI Chamfer"),
    Column("roi_l1_median", "L1 Med"),
    Column("roi_absrel_median", "AbsRel Med %", 100.0),
    Column("l1_mean", "L1 Mean"),
    Column("absrel_mean", "AbsRel %", 100.0),
    Column("chamfer", "Chamfer"),
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

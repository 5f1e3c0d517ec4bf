"""How sure a mean over references is: 95% intervals by drawing the references again (the bootstrap)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from copilot4d.evaluation.scores import ReferenceScore, ScoreFile

FEW_REFERENCES = 20  # fewer say little: another choice of frames gives another order of models
_DRAWS = 2000


class Interval(NamedTuple):
    """A value and the bounds that 95% of the draws lie within."""

    value: float
    low: float
    high: float


def chamfer_interval(score: ScoreFile) -> Interval | None:
    """ROI Chamfer (m^2), the mean over references; None with fewer than two of them."""
    rows = _usable(score.by_reference)
    values, frames = (np.array([getattr(row, name) for row in rows]) for name in ("chamfer_roi", "frames"))
    if len(values) < 2:
        return None
    drawn = _draws(len(values))
    means = (values * frames)[drawn].sum(axis=1) / frames[drawn].sum(axis=1)
    return Interval(float((values * frames).sum() / frames.sum()), *_bounds(means))


def chamfer_ratio(score: ScoreFile, first: ScoreFile) -> Interval | None:
    """One model's ROI Chamfer over another's, on the references that both have; None with fewer than two.

    Both are drawn together: a hard moment is hard for both, so the ratio is surer than the two means.
    """
    of_first = {(row.drive, row.reference_ns): row for row in _usable(first.by_reference)}
    pairs = [
        (row, of_first[key])
        for row in _usable(score.by_reference)
        if (key := (row.drive, row.reference_ns)) in of_first
    ]
    if len(pairs) < 2:
        return None
    sums = np.array([[a.chamfer_roi * a.frames, b.chamfer_roi * b.frames] for a, b in pairs])
    drawn = sums[_draws(len(sums))].sum(axis=1)
    value = sums.sum(axis=0)
    if not value[1] > 0 or not (drawn[:, 1] > 0).all():
        return None
    return Interval(float(value[0] / value[1]), *_bounds(drawn[:, 0] / drawn[:, 1]))


def _usable(rows: Sequence[ReferenceScore]) -> list[ReferenceScore]:
    return [row for row in rows if row.frames and np.isfinite(row.chamfer_roi)]


def _draws(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(count, size=(_DRAWS, count))


def _bounds(values: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)

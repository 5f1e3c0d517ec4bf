"""How much better one model's ROI Chamfer is than another's, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from copilot4d.evaluation import ScoreFile

RESAMPLES = 2000
FEW_DRIVES = 5  # below, single reference frames are drawn: an interval for these drives, not for others like them


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """ROI Chamfer of one model divided by that of another, with a 95% interval; NaN where there is none."""

    value: float
    low: float
    high: float

    def cells(self) -> tuple[str, str]:
        """For a table: the ratio, its interval."""
        if np.isnan(self.value):
            return "-", "-"
        interval = "-" if np.isnan(self.low) else f"{self.low:.2f} to {self.high:.2f}"
        return f"{self.value:.2f}", interval


def ratio(ours: ScoreFile | None, other: ScoreFile | None) -> Ratio:
    """The ratio of the two means over frames; the interval by drawing drives with replacement, the same for both.

    Over the reference frames whose frames both scored: all of them, unless a model left the ROI empty somewhere.
    """
    nan = float("nan")
    if ours is None or other is None:
        return Ratio(value=nan, low=nan, high=nan)
    theirs = {(r.drive, r.reference_ns, r.frames): r for r in other.by_reference}
    pairs = [(r, theirs[key]) for r in ours.by_reference if (key := (r.drive, r.reference_ns, r.frames)) in theirs]
    drives = [a.drive for a, _ in pairs]
    if len(set(drives)) < FEW_DRIVES:
        drives = [str(i) for i in range(len(pairs))]
    names = sorted(set(drives))
    sums = np.zeros((len(names), 2))  # of ROI Chamfer over the frames of each drive, ours and the other's
    for drive, (a, b) in zip(drives, pairs, strict=True):
        sums[names.index(drive)] += (a.frames * a.chamfer_roi, b.frames * b.chamfer_roi)
    both = sums.sum(axis=0)  # the number of frames is the same for both and cancels
    if not both[1] > 0:
        return Ratio(value=nan, low=nan, high=nan)
    if len(names) < 2:
        return Ratio(value=float(both[0] / both[1]), low=nan, high=nan)
    drawn = np.random.default_rng(0).integers(0, len(names), (RESAMPLES, len(names)))
    totals = sums[drawn].sum(axis=1)  # (RESAMPLES, 2)
    low, high = np.percentile(totals[:, 0] / totals[:, 1], [2.5, 97.5])
    return Ratio(value=float(both[0] / both[1]), low=float(low), high=float(high))

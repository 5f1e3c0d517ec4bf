"""Where the ground is, without being told which axis points up or which unit is used.

The ground is the one flat sheet that spreads all around a vehicle. Each axis in turn is cut into thin slabs; the slab
that holds the most occupied cells of a coarse grid, over all axes, is the ground. Cells count once however many
points they hold, so that the dense rings near the sensor weigh no more than the sparse ones, and a wall, which is long
but not wide, never wins. All sizes are fractions of the sweep's own median range: the search has no unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry.se3 import FloatArray

_SLAB = 0.03  # thickness, in median ranges: about 0.3 m on a street
_CELL = 0.10  # about 1 m
_MOST_POINTS = 30_000
_FEWEST_POINTS = 100
_FEWEST_CELLS = 25
_FEWEST_LEAD = 1.3  # over the best sheet across any other axis; real streets have 2.5 and more
_CLEAR_MAJORITY = 1.5  # this many times more matter above the ground than below it


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The ground of a sweep: which signed axis points up, and how high the frame's origin is above the ground."""

    axis: int  # 0, 1, 2: x, y, z
    sign: int  # +1: up is along the axis; -1: against it
    origin_height: float  # in the points' unit; about 1.7 m for a lidar on a car's roof
    lead: float  # occupied cells in the ground slab over those of the best slab of any other axis

    @property
    def up(self) -> str:
        """ "+z", "-y", ..."""
        return f"{'+' if self.sign > 0 else '-'}{'xyz'[self.axis]}"


def find_ground(points: NDArray[np.floating]) -> Ground | None:
    """The ground of one sweep, or None where nothing in it looks like ground."""
    points = points[np.isfinite(points).all(axis=1)]
    points = points[:: max(1, len(points) // _MOST_POINTS)].astype(np.float64)
    if len(points) < _FEWEST_POINTS:
        return None
    ranges = np.linalg.norm(points, axis=1)
    typical = float(np.median(ranges))
    if typical <= 0:
        return None
    points = points[ranges < 3 * typical] / typical  # far away the ground is not flat any more
    sheets = [_best_sheet(points, axis) for axis in range(3)]
    cells = [sheet[0] for sheet in sheets]
    axis = int(np.argmax(cells))
    lead = cells[axis] / max(1, *(cells[:axis] + cells[axis + 1 :]))
    if cells[axis] < _FEWEST_CELLS or lead < _FEWEST_LEAD:
        return None
    level = sheets[axis][1]
    along = points[:, axis]
    level = float(np.median(along[np.abs(along - level) < 1.5 * _SLAB]))
    above, below = int((along > level + 2 * _SLAB).sum()), int((along < level - 2 * _SLAB).sum())
    if max(above, below) > _CLEAR_MAJORITY * min(above, below):
        sign = 1 if above > below else -1
    else:
        sign = 1 if level < 0 else -1  # as much above as below: trust that the sensor is over the ground
    return Ground(axis=axis, sign=sign, origin_height=-sign * level * typical, lead=lead)


def agree(grounds: Sequence[Ground]) -> Ground | None:
    """What most of several sweeps say, with the median height of those; None for none."""
    if not grounds:
        return None
    (axis, sign), _ = Counter((g.axis, g.sign) for g in grounds).most_common(1)[0]
    same = [g for g in grounds if (g.axis, g.sign) == (axis, sign)]
    return Ground(
        axis=axis,
        sign=sign,
        origin_height=float(np.median([g.origin_height for g in same])),
        lead=float(np.median([g.lead for g in same])),
    )


def _best_sheet(points: FloatArray, axis: int) -> tuple[int, float]:
    """The slab across an axis with the most occupied cells: their number, and the slab's level."""
    others = [k for k in range(3) if k != axis]
    slab = np.floor(points[:, axis] / _SLAB).astype(np.int64)
    cell = np.floor(points[:, others] / _CELL).astype(np.int64)
    slab -= slab.min()
    cell -= cell.min(axis=0)
    flat = (slab * (cell[:, 0].max() + 1) + cell[:, 0]) * (cell[:, 1].max() + 1) + cell[:, 1]
    _, first = np.unique(flat, return_index=True)
    per_slab = np.bincount(slab[first])
    pairs = per_slab + np.append(per_slab[1:], 0)  # two neighbours: the ground may lie on a slab's edge
    best = int(np.argmax(pairs))
    lowest = np.floor(points[:, axis].min() / _SLAB)
    return int(pairs[best]), float((lowest + best + 1) * _SLAB)

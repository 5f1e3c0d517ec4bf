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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry.se3 import FloatArray

_SLAB = 0.03  # thickness, in median ranges: about 0.3 m on a street
_CELL = 0.10  # about 1 m
_MOST_POINTS = 30_000
_FEWEST_POINTS = 100
_FEWEST_CELLS = 25
_FEWEST_CONTRAST = 2.0  # over the usual slab of the same axis
_FEWEST_LEAD = 1.3  # over the best sheet across any other axis; real streets have 2.5 and more


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
    cells = [sheet.cells for sheet in sheets]
    axis = int(np.argmax(cells))
    lead = cells[axis] / max(1, *(cells[:axis] + cells[axis + 1 :]))
    if cells[axis] < _FEWEST_CELLS or lead < _FEWEST_LEAD or sheets[axis].contrast < _FEWEST_CONTRAST:
        return None
    level = sheets[axis].level
    along = points[:, axis]
    level = float(np.median(along[np.abs(along - level) < 1.5 * _SLAB]))
    if abs(level) > 1.5 * _SLAB:
        sign = 1 if level < 0 else -1  # a sensor is above the ground
    else:
        sign = 1 if (along > level + 2 * _SLAB).sum() >= (along < level - 2 * _SLAB).sum() else -1
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


class _Sheet(NamedTuple):
    """The slab across an axis with the most occupied cells."""

    cells: int
    level: float
    contrast: float  # its cells over those of the usual slab: about 1 in a thicket, where no slab stands out


def _best_sheet(points: FloatArray, axis: int) -> _Sheet:
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
    contrast = float(pairs[best] / np.median(pairs[pairs > 0]))
    return _Sheet(cells=int(pairs[best]), level=float((lowest + best + 1) * _SLAB), contrast=contrast)

"""`ObservedSpace`: where the past's beams have been, so that a ray is known to enter unobserved space.

A beam shows more than the point that it ends in: all the way there was free. What lies behind a house's front, or
beyond a parked lorry, no beam has passed, and there a surface may begin that no sweep has measured and no token shows:
the side of that house, when the ego turns the corner. Cells are coarse and flat, since beams lie close together side
by side and far apart above each other.

    R rays, D depths on each
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from copilot4d.compiled import compiled, in_threads
from copilot4d.geometry import Rays, Sweep, VoxelGrid, se3
from copilot4d.geometry.se3 import FloatArray

GRID = VoxelGrid(minimum=(-96.0, -96.0, -5.0), cell_size=(0.5, 0.5, 1.0), shape=(384, 384, 12))  # around the newest
STEP_M = 0.25  # between the places on a ray that are tested
SHORT_M = 0.5  # a beam counts as having passed up to so much before its point: behind, a slanted surface has begun
NOWHERE_M = 200.0  # how far rays are followed: what does not come before counts as beginning there
LEAST_M = 1.0  # a gap between beams is shorter than this, unobserved space is longer


@dataclass(frozen=True)
class ObservedSpace:
    """Cells of `GRID` in the frame of the newest past sweep that a beam has passed or ended in."""

    cells: NDArray[np.uint8]

    @classmethod
    def of(cls, past: Sequence[Sweep]) -> ObservedSpace:
        """Of sweeps, oldest first."""
        cells = np.zeros(GRID.shape, dtype=np.uint8)
        for sweep in past:
            reference_from_lidar = se3.relative_motion(past[-1].world_from_lidar, sweep.world_from_lidar)
            rays, depths_m = sweep.rays()
            in_cells = _in_cells(rays.transformed(reference_from_lidar))
            _mark(*in_cells, np.asarray(depths_m, dtype=np.float64), cells)
        return cls(cells)

    def along(self, rays: Rays, depths_m: FloatArray) -> Unobserved:
        """What of R rays, in the frame of the newest past sweep, no beam has passed. depths_m: (R, D) on the rays."""
        starts_m, lengths_m, before_m = np.empty(len(rays)), np.empty(len(rays)), np.zeros(depths_m.shape)
        stops_m = np.ascontiguousarray(depths_m, dtype=np.float64)
        arguments = (*_in_cells(rays), self.cells, stops_m, starts_m, lengths_m, before_m)
        in_threads(lambda first, last: _walk(first, last, *arguments), len(rays), torch.get_num_threads())
        return Unobserved(starts_m, lengths_m, before_m)


@dataclass(frozen=True)
class Unobserved:
    """Of R rays: where the first stretch begins that no beam has passed, its length (where there is none: 0, and it
    begins at `NOWHERE_M`), and how much of the way to each of D depths no beam has passed.
    """

    starts_m: FloatArray  # (R,)
    lengths_m: FloatArray  # (R,)
    before_m: FloatArray  # (R, D)


def _in_cells(rays: Rays) -> tuple[FloatArray, FloatArray]:
    """Where R rays start, and how far a step takes them: both (R, 3), in cells from the grid's corner."""
    size = np.array(GRID.cell_size)
    starts = (np.asarray(rays.origins, dtype=np.float64) - GRID.minimum) / size
    return np.ascontiguousarray(starts), np.ascontiguousarray(rays.directions * (STEP_M / size), dtype=np.float64)


@compiled
def _mark(starts: Any, strides: Any, depths_m: Any, cells: Any) -> None:
    """Set the cells that beams pass before they come near their points, and those that they end in."""
    for r in range(len(depths_m)):
        if not np.isfinite(depths_m[r]):
            continue
        passed = int(min(max(0.0, depths_m[r] - SHORT_M), NOWHERE_M) / STEP_M)
        for i in range(passed + 1):
            steps = float(i) if i < passed else depths_m[r] / STEP_M
            x = starts[r, 0] + steps * strides[r, 0]
            y = starts[r, 1] + steps * strides[r, 1]
            z = starts[r, 2] + steps * strides[r, 2]
            if 0 <= x < cells.shape[0] and 0 <= y < cells.shape[1] and 0 <= z < cells.shape[2]:
                cells[int(x), int(y), int(z)] = 1


@compiled
def _walk(
    first: int, last: int, starts: Any, strides: Any, cells: Any, stops_m: Any, starts_m: Any, lengths_m: Any,
    before_m: Any,
) -> None:  # fmt: skip
    """Write the first unobserved stretch of the rays first to last - 1; add up what is unobserved before stops."""
    x_cells, y_cells, z_cells = cells.shape
    most = int(NOWHERE_M / STEP_M)
    for r in range(first, last):
        starts_m[r], lengths_m[r] = NOWHERE_M, 0.0
        farthest_m = stops_m[r].max()
        depth, unobserved_m, is_over = 0.0, 0.0, False
        x, y, z = starts[r]
        dx, dy, dz = strides[r]
        # These steps stay inside for sure: rounding, over all of them, is far less than the one that is kept back.
        inside = 0.0
        if 0 <= x < x_cells and 0 <= y < y_cells and 0 <= z < z_cells:
            inside = min(_steps_inside(x, dx, x_cells), _steps_inside(y, dy, y_cells), _steps_inside(z, dz, z_cells))
        safe = int(min(max(inside - 1.0, 0.0), float(most)))
        for step in range(most):
            if step >= safe and not (0 <= x < x_cells and 0 <= y < y_cells and 0 <= z < z_cells):
                break
            if cells[np.uint64(x), np.uint64(y), np.uint64(z)] == 0:
                unobserved_m += STEP_M
                for i in range(stops_m.shape[1]):
                    if depth < stops_m[r, i]:
                        before_m[r, i] += STEP_M
                if not is_over and unobserved_m >= LEAST_M:
                    starts_m[r], lengths_m[r] = depth + STEP_M - unobserved_m, unobserved_m
            else:
                is_over = is_over or unobserved_m >= LEAST_M
                unobserved_m = 0.0
            depth += STEP_M
            if is_over and depth >= farthest_m:
                break
            x, y, z = x + dx, y + dy, z + dz


@compiled
def _steps_inside(place: float, stride: float, cells: int) -> float:
    """How many steps along one axis do not leave the grid."""
    if stride > 0:
        return (cells - place) / stride
    return place / -stride if stride < 0 else np.inf

"""Walking rays through a grid from cell to cell (Amanatides and Woo), sampling in occupied cells only."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from copilot4d.compiled import compiled
from copilot4d.geometry import VoxelGrid
from copilot4d.rendering.ray_batch import RayBatch


def walk_rays(
    rays: RayBatch, grid: VoxelGrid, occupied: Tensor | None, offsets: Tensor, step_m: float, max_samples: int
) -> tuple[Tensor, Tensor]:
    """(R,) samples of each ray, and their packed depths, near to far. See `sample_rays`."""
    # Without a mask the whole box is one cell, and a ray crosses it in one stride.
    shape = grid.shape if occupied is not None else (1, 1, 1)
    mask = np.ones((1, 1, 1, 1), dtype=np.bool_) if occupied is None else occupied.numpy()
    size = np.array(grid.cell_size) * (np.array(grid.shape) / np.array(shape))
    scenes = rays.scenes.numpy() if occupied is not None else np.zeros(len(rays), dtype=np.int64)
    entry, leave = rays.span(grid)
    arguments = (
        rays.origins.numpy(), rays.directions.numpy(), scenes, entry.numpy(), leave.numpy(),
        offsets.detach().numpy(), mask, np.array(grid.minimum), size, np.array(shape), step_m,
    )  # fmt: skip
    whole = _count(*arguments)
    thinning = np.maximum(1, -(-whole // max_samples))
    counts = _kept(whole, thinning)
    depths = np.empty(int(counts.sum()), dtype=np.float32)
    _fill(*arguments, thinning, np.cumsum(counts) - counts, depths)
    return torch.from_numpy(counts), torch.from_numpy(depths)


def _kept(whole: NDArray[np.int64], thinning: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of the numbers 0 ... whole - 1 are thinning // 2 modulo thinning."""
    return np.asarray(np.maximum(0, (whole - thinning // 2 + thinning - 1) // thinning))


@compiled
def _walk(
    origin: Any, direction: Any, scene: int, near: float, far: float, offset: float, mask: Any, minimum: Any,
    size: Any, shape: Any, step: float, thinning: int, out: Any, first: int, cell: Any, crossing: Any, stride: Any,
) -> int:  # fmt: skip
    """Samples of one ray before thinning; writes the kept ones to `out` from `first` on where thinning > 0.

    cell, crossing, stride: (3,) scratch, so that nothing is allocated for a ray.
    """
    if not far > near:
        return 0
    for axis in range(3):
        crossing[axis] = stride[axis] = np.inf
        position = (origin[axis] + near * direction[axis] - minimum[axis]) / size[axis]
        cell[axis] = min(max(int(np.floor(position)), 0), shape[axis] - 1)
        if direction[axis] != 0.0:
            edge = minimum[axis] + (cell[axis] + (1 if direction[axis] > 0 else 0)) * size[axis]
            crossing[axis] = (edge - origin[axis]) / direction[axis]
            stride[axis] = size[axis] / abs(direction[axis])
    here = near
    j = int(np.ceil(near / step - offset))
    number = 0
    written = first
    while here < far:
        axis = 0
        if crossing[1] < crossing[axis]:
            axis = 1
        if crossing[2] < crossing[axis]:
            axis = 2
        end = min(crossing[axis], far)
        if mask[scene, cell[0], cell[1], cell[2]]:
            j = max(j, int(np.ceil(here / step - offset)))
            while (j + offset) * step < end:
                if thinning > 0 and number % thinning == thinning // 2:
                    out[written] = (j + offset) * step
                    written += 1
                number += 1
                j += 1
        here = max(here, end)
        cell[axis] += 1 if direction[axis] > 0 else -1
        if cell[axis] < 0 or cell[axis] >= shape[axis]:
            break
        crossing[axis] += stride[axis]
    return number


@compiled
def _count(
    origins: Any, directions: Any, scenes: Any, entry: Any, leave: Any, offsets: Any, mask: Any, minimum: Any,
    size: Any, shape: Any, step: float,
) -> Any:  # fmt: skip
    counts = np.zeros(len(origins), dtype=np.int64)
    nothing = np.empty(0, dtype=np.float32)
    cell, crossing, stride = np.empty(3, dtype=np.int64), np.empty(3), np.empty(3)
    for r in range(len(origins)):
        counts[r] = _walk(
            origins[r], directions[r], scenes[r], entry[r], leave[r], offsets[r], mask, minimum, size, shape, step,
            0, nothing, 0, cell, crossing, stride,
        )  # fmt: skip
    return counts


@compiled
def _fill(
    origins: Any, directions: Any, scenes: Any, entry: Any, leave: Any, offsets: Any, mask: Any, minimum: Any,
    size: Any, shape: Any, step: float, thinning: Any, first: Any, out: Any,
) -> None:  # fmt: skip
    cell, crossing, stride = np.empty(3, dtype=np.int64), np.empty(3), np.empty(3)
    for r in range(len(origins)):
        _walk(
            origins[r], directions[r], scenes[r], entry[r], leave[r], offsets[r], mask, minimum, size, shape, step,
            thinning[r], out, first[r], cell, crossing, stride,
        )  # fmt: skip

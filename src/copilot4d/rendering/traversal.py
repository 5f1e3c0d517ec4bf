"""Walking rays through a grid from cell to cell (Amanatides and Woo), sampling in occupied cells only."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from copilot4d.geometry import VoxelGrid
from copilot4d.rendering.ray_batch import RayBatch
from copilot4d.rendering.ray_kernels import count_samples, fill_samples


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
    whole = count_samples(*arguments)
    thinning = np.maximum(1, -(-whole // max_samples))
    counts = _kept(whole, thinning)
    depths = np.empty(int(counts.sum()), dtype=np.float32)
    fill_samples(*arguments, thinning, np.cumsum(counts) - counts, depths)
    return torch.from_numpy(counts), torch.from_numpy(depths)


def _kept(whole: NDArray[np.int64], thinning: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of the numbers 0 ... whole - 1 are thinning // 2 modulo thinning."""
    return np.asarray(np.maximum(0, (whole - thinning // 2 + thinning - 1) // thinning))

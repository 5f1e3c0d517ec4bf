"""Rays through interpolated values in one pass on the CPU: walk, interpolate, ask a small network, composite, stop.

The twin of `sample_rays`, `interpolate` and `composite` for rays that need no gradient. A ray's samples live in a
scratch of its own, so that no table of all rays' samples is ever made, and samples behind what has stopped the ray are
never asked about.

    R rays, N columns (x, y) of the grid that have values, Z levels, K hidden units
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from copilot4d.compiled import in_threads
from copilot4d.geometry import VoxelGrid
from copilot4d.rendering.ray_batch import RayBatch
from copilot4d.rendering.ray_kernels import render_part


class HiddenGrid(NamedTuple):
    """One scene: what the hidden layer of a network reads at the centres of a grid's cells, before its ReLU.

    Interpolation and a linear layer may change places, so that the layer is applied to cells instead of samples.
    """

    grid: VoxelGrid
    values: Tensor  # (N * Z, K) float32
    columns: Tensor  # (X * Y,) int64: which of the N a column is; meaningless for those without values
    weights: Tensor  # (K,) of the layer that makes logits of the hidden units
    bias: float


class OnePass(NamedTuple):
    """What R rays see."""

    depth_m: Tensor  # (R,)
    opacity: Tensor  # (R,)
    samples: int  # on all rays, those behind what stops a ray included


def render(
    hidden: HiddenGrid, rays: RayBatch, mask_grid: VoxelGrid, *, step_m: float, max_samples: int, mask: Tensor | None,
    kind: int,
) -> OnePass:  # fmt: skip
    """Rays of one scene, sampled as `sample_rays` does with offsets of 1/2. mask: (X, Y, Z) bool on `mask_grid`."""
    count = len(rays)
    depth_m, opacity = torch.empty(count), torch.empty(count)
    samples = np.zeros(count, dtype=np.int64)
    shape = (1, 1, 1) if mask is None else mask_grid.shape
    occupied = np.ones((1, 1, 1, 1), dtype=np.bool_) if mask is None else mask[None].contiguous().numpy()
    size = np.array(mask_grid.cell_size) * (np.array(mask_grid.shape) / np.array(shape))
    entry, leave = rays.span(mask_grid)
    arguments = (
        rays.origins.contiguous().numpy(), rays.directions.contiguous().numpy(), entry.numpy(), leave.numpy(),
        occupied, np.array(mask_grid.minimum), size, np.array(shape), step_m, max_samples,
        hidden.values.flatten().numpy(), hidden.columns.contiguous().numpy(), np.array(hidden.grid.minimum),
        np.array(hidden.grid.cell_size), np.array(hidden.grid.shape), hidden.weights.contiguous().numpy(),
        np.float32(hidden.bias), (0,) * len(hidden.weights), kind, depth_m.numpy(), opacity.numpy(), samples,
    )  # fmt: skip
    order = _neighbours_together(rays)
    in_threads(lambda first, last: render_part(order[first:last], *arguments), count, torch.get_num_threads())
    return OnePass(depth_m, opacity, int(samples.sum()))


def _neighbours_together(rays: RayBatch) -> NDArray[np.int64]:
    """(R,) the rays' numbers, degree by degree around the vertical and from low to high in each."""
    x, y, z = rays.directions.double().numpy().T
    return np.argsort(4 * np.floor(np.rad2deg(np.arctan2(y, x))) + z)


def columns_under(mask: Tensor, mask_grid: VoxelGrid, grid: VoxelGrid) -> Tensor:
    """(X, Y, Z) bool on `mask_grid` -> (X * Y,) bool: the columns of `grid` that samples in these cells interpolate."""
    used = mask.any(dim=2).to(torch.float64)  # (x, y)
    for axis in (0, 1):
        reach = _reach(mask_grid, grid, axis)
        used = torch.tensordot(used, reach, dims=([0], [0]))  # the other axis comes first: after both, (X, Y) again
    return used.flatten() > 0


def _reach(mask_grid: VoxelGrid, grid: VoxelGrid, axis: int) -> Tensor:
    """(x, X) of one axis: 1 where a sample in cell x of the mask may lie between cell X's centre and the next one's."""
    edges = np.arange(mask_grid.shape[axis] + 1) * mask_grid.cell_size[axis] + mask_grid.minimum[axis]
    place = (edges - grid.minimum[axis]) / grid.cell_size[axis] - 0.5
    low, high = np.floor(place[:-1] - 1e-3), np.floor(place[1:] + 1e-3) + 1
    cells, last = np.arange(grid.shape[axis]), grid.shape[axis] - 1
    low, high = np.clip(low, 0, last), np.clip(high, 0, last)
    return torch.from_numpy(((cells >= low[:, None]) & (cells <= high[:, None])).astype(np.float64))

"""Depths of rays through voxels as 4D-Occ published them: a ray that is stopped in a voxel ends where it leaves it.

With d_i the depth at which a ray leaves its i-th voxel, L_i the way through it and tau_i = density_i L_i, the ray
reaches voxel i with T_i = exp(-tau_1 - ... - tau_{i-1}), is stopped there with p_i = T_i - T_{i+1}, and goes on with
what is left to the grid's exit d_n. Its expected depth is sum p_i d_i + T_{n+1} d_n = d_0 + sum_i T_i L_i, with d_0
where it enters; the slope by tau_j is -sum_{i>j} T_i L_i.

Densities are per cell size along x. Axes: B scenes, T steps of time, X/Y/Z voxels, f voxel columns a side of one map
cell, R rays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from copilot4d.compiled import compiled
from copilot4d.errors import UsageError
from copilot4d.geometry import VoxelGrid
from copilot4d.rendering.ray_batch import RayBatch
from copilot4d.rendering.voxel_depth import (
    CROSSINGS_AT_ONCE,
    RAYS_AT_ONCE,
    VoxelDepths,
    joined_depths,
    sorted_crossings,
    voxels_of,
)
from copilot4d.rendering.voxel_walk import NOTHING, cross_voxels, scatter_slopes


def exit_depths(densities: Tensor, rays: RayBatch, steps: Tensor, grid: VoxelGrid) -> VoxelDepths:
    """Render rays, each through its scene at its step of time.

    densities: (B, X/f, Y/f, f, f, T, Z), not negative. steps: (R,) int64 in [0, T).
    """
    if densities.ndim != 7 or densities.shape[3] != densities.shape[4] or voxels_of(densities) != grid.shape:
        raise UsageError(
            f"densities must be (B, X/f, Y/f, f, f, T, Z) of a grid {grid.shape}, got {tuple(densities.shape)}"
        )
    if steps.shape != rays.scenes.shape:
        raise UsageError(f"each ray needs its step of time: {tuple(steps.shape)} for {len(rays)} rays")
    on_cpu = densities.device.type == "cpu" and densities.dtype == torch.float32
    per_chunk = RAYS_AT_ONCE if on_cpu else max(1, CROSSINGS_AT_ONCE // (sum(grid.shape) + 5))
    chunks = [slice(i, i + per_chunk) for i in range(0, max(1, len(rays)), per_chunk)]
    if on_cpu:
        return joined_depths(
            [_ExitWalk.apply(densities, rays[chunk], steps[chunk], grid) for chunk in chunks]  # type: ignore[no-untyped-call]
        )
    return joined_depths([sorted_exit_depths(densities, rays[chunk], steps[chunk], grid) for chunk in chunks])


def sorted_exit_depths(densities: Tensor, rays: RayBatch, steps: Tensor, grid: VoxelGrid) -> VoxelDepths:
    """The same in plain PyTorch on any device."""
    found = sorted_crossings(densities, rays, steps, grid)
    density = found.values / grid.cell_size[0]
    tau = density * found.length
    after = tau.cumsum(dim=1)
    before = after - tau
    expected = found.entry + (torch.exp(-before) * found.length).sum(dim=1)
    with torch.no_grad():
        opacity = -torch.expm1(-after[:, -1])
        half = -torch.log1p(-opacity[:, None] / 2)
        stops = (before < half) & (after >= half) & (opacity[:, None] > NOTHING)
        depth = found.start + (half - before) / density.clamp(min=torch.finfo(density.dtype).tiny)
        median = torch.where(stops, depth, torch.inf).amin(dim=1)
    return VoxelDepths(expected, median, opacity)


class _ExitWalk(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, densities: Tensor, rays: RayBatch, steps: Tensor, grid: VoxelGrid) -> tuple[Tensor, ...]:
        entry, leave = rays.span(grid)
        crossings = cross_voxels(
            rays.origins.numpy(), rays.directions.numpy(), rays.scenes.numpy(), steps.numpy(), entry.numpy(),
            leave.numpy(), np.array(grid.minimum), np.array(grid.cell_size), np.array(densities.shape),
        )  # fmt: skip
        slopes = np.empty(len(crossings.voxels) if ctx.needs_input_grad[0] else 0, dtype=np.float32)
        expected, median, opacity = (torch.empty(len(rays)) for _ in range(3))
        _composite(
            densities.detach().contiguous().view(-1).numpy(), crossings.firsts, crossings.voxels, crossings.lengths_m,
            entry.numpy(), grid.cell_size[0], expected.numpy(), median.numpy(), opacity.numpy(), slopes,
        )  # fmt: skip
        ctx.crossings, ctx.slopes, ctx.shape = crossings, slopes, densities.shape
        ctx.mark_non_differentiable(median, opacity)
        return expected, median, opacity

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor, None, None, None]:
        gradient = torch.zeros(ctx.shape)
        firsts, voxels, _ = ctx.crossings
        scatter_slopes(firsts, voxels, ctx.slopes, incoming[0].contiguous().numpy(), gradient.view(-1).numpy())
        return gradient, None, None, None


@compiled
def _composite(
    densities: Any, firsts: Any, voxels: Any, lengths_m: Any, entry: Any, unit_m: float, expected: Any, median: Any,
    opacity: Any, slopes: Any,
) -> None:  # fmt: skip
    """Write (R,) expected depth, median depth of what is stopped (infinite where nothing is) and opacity.

    slopes: (S,) gets d expected / d density of each crossing; (0,) where nobody asks.
    """
    wanted = len(slopes) > 0
    arrived = np.empty(1)
    for r in range(len(entry)):
        first, last = firsts[r], firsts[r + 1]
        if last - first > len(arrived):
            arrived = np.empty(2 * (last - first))
        reached, depth, median[r] = 1.0, float(entry[r]), np.inf
        for i in range(first, last):
            arrived[i - first] = reached
            depth += reached * lengths_m[i]
            reached *= np.exp(-densities[voxels[i]] * lengths_m[i] / unit_m)
        expected[r], opacity[r] = depth, 1.0 - reached
        if 1.0 - reached > NOTHING:
            half = (1.0 + reached) / 2.0
            i = last - 1
            while arrived[i - first] <= half:
                i -= 1
            start = float(entry[r])
            for j in range(first, i):
                start += lengths_m[j]
            median[r] = start + np.log(arrived[i - first] / half) * unit_m / densities[voxels[i]]
        if wanted:
            behind = 0.0
            for i in range(last - 1, first - 1, -1):
                slopes[i] = -behind * lengths_m[i] / unit_m
                behind += arrived[i - first] * lengths_m[i]

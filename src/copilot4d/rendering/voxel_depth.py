"""Depths of rays through voxels of constant density, exactly: no sampling, whatever the voxels' size.

A ray that reaches a voxel with probability T_i and crosses it over L_i metres at optical depth tau_i = density_i L_i is
stopped there with probability 1 - e^-tau_i, and goes on average T_i L_i (1 - e^-tau_i) / tau_i inside it. Its expected
depth is the sum of these from where it enters the grid; a ray that nothing stops ends where it leaves.

Axes: B scenes, T steps of time, X/Y/Z voxels, f voxel columns a side of one map cell, R rays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from copilot4d.compiled import in_threads
from copilot4d.errors import UsageError
from copilot4d.geometry import VoxelGrid
from copilot4d.rendering.ray_batch import RayBatch
from copilot4d.rendering.voxel_pass import stop_rays
from copilot4d.rendering.voxel_walk import (
    NOTHING,
    composite_crossings,
    cross_voxels,
    cross_voxels_into,
    room_for,
    scatter_slopes,
)

CROSSINGS_AT_ONCE = 1 << 22
RAYS_AT_ONCE = 1 << 16
RAYS_IN_CACHE = 256
WORTH_A_TABLE = 1 << 14  # rays of one scene and step: from here on the table of its densities pays


class VoxelDepths(NamedTuple):
    """What R rays see. Only `expected_m` has a gradient."""

    expected_m: Tensor  # (R,) a ray that nothing stops ends at the grid's exit
    median_m: Tensor  # (R,) where half of what is stopped is stopped; infinite where nothing is
    opacity: Tensor  # (R,) the part that is stopped inside the grid


def voxel_depths(logits: Tensor, rays: RayBatch, steps: Tensor, grid: VoxelGrid) -> VoxelDepths:
    """Render rays, each through its scene at its step of time.

    logits: (B, X/f, Y/f, f, f, T, Z); a voxel's density is softplus(logit) per cell size along x.
    steps: (R,) int64 in [0, T).
    """
    if logits.ndim != 7 or logits.shape[3] != logits.shape[4] or voxels_of(logits) != grid.shape:
        raise UsageError(f"logits must be (B, X/f, Y/f, f, f, T, Z) of a grid {grid.shape}, got {tuple(logits.shape)}")
    if steps.shape != rays.scenes.shape:
        raise UsageError(f"each ray needs its step of time: {tuple(steps.shape)} for {len(rays)} rays")
    if logits.device.type == "cpu" and logits.dtype == torch.float32:
        if not (logits.requires_grad and torch.is_grad_enabled()):
            return _walked_or_passed(logits, rays, steps, grid)
        parts = [
            _Walk.apply(logits, rays[i : i + RAYS_AT_ONCE], steps[i : i + RAYS_AT_ONCE], grid)  # type: ignore[no-untyped-call]
            for i in range(0, max(1, len(rays)), RAYS_AT_ONCE)
        ]
        return joined_depths(parts)
    return sorted_voxel_depths(logits, rays, steps, grid)


def _walked_or_passed(logits: Tensor, rays: RayBatch, steps: Tensor, grid: VoxelGrid) -> VoxelDepths:
    """What `_Walk` gives, where no gradients are needed."""
    one_table = len(rays) >= WORTH_A_TABLE and bool((rays.scenes == rays.scenes[0]).all() & (steps == steps[0]).all())
    if not one_table:
        return _walked(logits, rays, steps, grid)
    return passed_voxels(logits[rays.scenes[0], :, :, :, :, steps[0]], rays, grid)


def passed_voxels(logits: Tensor, rays: RayBatch, grid: VoxelGrid) -> VoxelDepths:
    """Rays through one step of one scene, (X/f, Y/f, f, f, Z) logits, in one pass with a table of its densities."""
    table = functional.softplus(logits.detach().permute(0, 2, 1, 3, 4)) / grid.cell_size[0]
    densities = table.reshape(-1).numpy()
    entry, leave = rays.span(grid)
    origins, directions, near, far = (
        part.contiguous().numpy() for part in (rays.origins, rays.directions, entry, leave)
    )
    box = (np.array(grid.minimum), np.array(grid.cell_size), np.array(grid.shape))
    seen = VoxelDepths(*(torch.empty(len(rays)) for _ in range(3)))
    expected, median, opacity = (values.numpy() for values in seen)

    def render(first: int, last: int) -> None:
        part = slice(first, last)
        stop_rays(
            origins[part], directions[part], near[part], far[part], densities, *box, expected[part], median[part],
            opacity[part],
        )  # fmt: skip

    in_threads(render, len(rays), torch.get_num_threads())
    return seen


def _walked(logits: Tensor, rays: RayBatch, steps: Tensor, grid: VoxelGrid) -> VoxelDepths:
    """What `_Walk` gives, where no gradients are needed: some rays at a time, so that what they cross stays in the
    processor's cache, and threads side by side.
    """
    entry, leave = rays.span(grid)
    origins, directions, scenes, times, near, far = (
        part.contiguous().numpy() for part in (rays.origins, rays.directions, rays.scenes, steps, entry, leave)
    )
    sizes, corner, cell = np.array(logits.shape), np.array(grid.minimum), np.array(grid.cell_size)
    values = logits.detach().contiguous().view(-1).numpy()
    seen = VoxelDepths(*(torch.empty(len(rays)) for _ in range(3)))
    no_slopes = np.empty(0, dtype=np.float32)

    def render(first: int, last: int) -> None:
        room = room_for(min(RAYS_IN_CACHE, last - first), sizes)
        for start in range(first, last, RAYS_IN_CACHE):
            part = slice(start, min(start + RAYS_IN_CACHE, last))
            cross_voxels_into(
                room, origins[part], directions[part], scenes[part], times[part], near[part], far[part], corner, cell,
                sizes,
            )  # fmt: skip
            composite_crossings(
                values, room.firsts, room.voxels, room.lengths_m, near[part], grid.cell_size[0],
                seen.expected_m[part].numpy(), seen.median_m[part].numpy(), seen.opacity[part].numpy(), no_slopes,
            )  # fmt: skip

    in_threads(render, len(rays), torch.get_num_threads())
    return seen


def sorted_voxel_depths(logits: Tensor, rays: RayBatch, steps: Tensor, grid: VoxelGrid) -> VoxelDepths:
    """The same in plain PyTorch on any device: all planes between voxels that a ray meets, sorted by depth."""
    per_chunk = max(1, CROSSINGS_AT_ONCE // (sum(grid.shape) + 5))
    parts = [
        _sorted_part(logits, rays[i : i + per_chunk], steps[i : i + per_chunk], grid)
        for i in range(0, max(1, len(rays)), per_chunk)
    ]
    return joined_depths(parts)


class SortedCrossings(NamedTuple):
    """All pieces of way between planes of R rays, near to far; those that lie outside the grid have no length."""

    entry: Tensor  # (R,) where rays enter the grid
    start: Tensor  # (R, P)
    length: Tensor  # (R, P)
    values: Tensor  # (R, P) what their voxels hold


def sorted_crossings(logits: Tensor, rays: RayBatch, steps: Tensor, grid: VoxelGrid) -> SortedCrossings:
    """The voxels that rays cross, in plain PyTorch."""
    entry, leave = rays.span(grid)
    leave = torch.maximum(entry, leave)
    crossings = [entry[:, None], leave[:, None]]
    for axis in range(3):
        planes = torch.arange(grid.shape[axis] + 1, device=logits.device) * grid.cell_size[axis] + grid.minimum[axis]
        depth = (planes - rays.origins[:, axis, None]) / rays.directions[:, axis, None]  # parallel: infinite or NaN
        crossings.append(torch.nan_to_num(depth, nan=0.0, posinf=0.0, neginf=0.0))
    edges = torch.cat(crossings, dim=1).clamp(min=entry[:, None], max=leave[:, None]).sort(dim=1).values
    start, length = edges[:, :-1], edges.diff(dim=1)  # (R, P)
    middle = start + length / 2
    index = []
    for axis in range(3):
        position = rays.origins[:, axis, None] + middle * rays.directions[:, axis, None]
        cell = ((position - grid.minimum[axis]) / grid.cell_size[axis]).floor().long()
        index.append(cell.clamp(0, grid.shape[axis] - 1))
    x, y, z = index
    fold, scene, step = logits.shape[3], rays.scenes[:, None], steps[:, None]
    return SortedCrossings(entry, start, length, logits[scene, x // fold, y // fold, x % fold, y % fold, step, z])


def _sorted_part(logits: Tensor, rays: RayBatch, steps: Tensor, grid: VoxelGrid) -> VoxelDepths:
    entry, start, length, found = sorted_crossings(logits, rays, steps, grid)
    density = functional.softplus(found) / grid.cell_size[0]
    tau = density * length
    after = tau.cumsum(dim=1)
    before = after - tau
    safe = tau.clamp(min=1e-3)
    passage = torch.where(tau < 1e-3, 1 - tau / 2 + tau.square() / 6, -torch.expm1(-safe) / safe)
    expected = entry + (torch.exp(-before) * length * passage).sum(dim=1)
    with torch.no_grad():
        opacity = -torch.expm1(-after[:, -1])
        half = -torch.log1p(-opacity[:, None] / 2)
        stops = (before < half) & (after >= half) & (opacity[:, None] > NOTHING)
        depth = start + (half - before) / density.clamp(min=torch.finfo(density.dtype).tiny)
        median = torch.where(stops, depth, torch.inf).amin(dim=1)
    return VoxelDepths(expected, median, opacity)


def joined_depths(parts: Sequence[tuple[Tensor, ...]]) -> VoxelDepths:
    """The depths of several lots of rays, one after another."""
    return VoxelDepths(*(torch.cat(values) for values in zip(*parts, strict=True)))


def voxels_of(logits: Tensor) -> tuple[int, int, int]:
    """X, Y and Z of (B, X/f, Y/f, f, f, T, Z)."""
    _, height, width, fold, _, _, levels = logits.shape
    return (height * fold, width * fold, levels)


class _Walk(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, rays: RayBatch, steps: Tensor, grid: VoxelGrid) -> tuple[Tensor, ...]:
        entry, leave = rays.span(grid)
        crossings = cross_voxels(
            rays.origins.numpy(), rays.directions.numpy(), rays.scenes.numpy(), steps.numpy(), entry.numpy(),
            leave.numpy(), np.array(grid.minimum), np.array(grid.cell_size), np.array(logits.shape),
        )  # fmt: skip
        slopes = np.empty(len(crossings.voxels) if ctx.needs_input_grad[0] else 0, dtype=np.float32)
        expected, median, opacity = (torch.empty(len(rays)) for _ in range(3))
        composite_crossings(
            logits.detach().contiguous().view(-1).numpy(), crossings.firsts, crossings.voxels, crossings.lengths_m,
            entry.numpy(), grid.cell_size[0], expected.numpy(), median.numpy(), opacity.numpy(), slopes,
        )  # fmt: skip
        ctx.crossings, ctx.slopes, ctx.shape = crossings, slopes, logits.shape
        ctx.mark_non_differentiable(median, opacity)
        return expected, median, opacity

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor, None, None, None]:
        gradient = torch.zeros(ctx.shape)
        firsts, voxels, _ = ctx.crossings
        scatter_slopes(firsts, voxels, ctx.slopes, incoming[0].contiguous().numpy(), gradient.view(-1).numpy())
        return gradient, None, None, None

"""Where to look along a ray: an even lattice of depths, of which only those in occupied cells are kept.

The lattice of ray r is h_j = (j + offset_r) step for j = 0, 1, 2, ... Skipping leaves samples out and moves none, so
that where empty cells are truly empty it changes no depth. Training draws offset_r at random, inference uses 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from copilot4d.errors import UsageError
from copilot4d.geometry import VoxelGrid
from copilot4d.rendering.ray_batch import RayBatch
from copilot4d.rendering.traversal import walk_rays

LOOKUPS_AT_ONCE = 1 << 22


@dataclass(frozen=True, kw_only=True)
class RaySamples:
    """S samples, ray after ray, near to far within each."""

    rays: Tensor  # (S,) which ray
    slots: Tensor  # (S,) 0, 1, 2, ... along the ray
    depths_m: Tensor  # (S,)
    ray_count: int
    longest: int  # the most samples that a ray has

    def __len__(self) -> int:
        return len(self.rays)


def sample_rays(
    rays: RayBatch,
    grid: VoxelGrid,
    *,
    step_m: float,
    max_samples: int,
    occupied: Tensor | None = None,
    offsets: Tensor | None = None,
) -> RaySamples:
    """Depths to look at, inside the grid's box.

    occupied: (B, X, Y, Z) bool on `grid`: only samples in these cells are kept. None keeps all.
    offsets: (R,) in [0, 1), the lattice's jitter; None is 1/2.
    max_samples: a ray with k times as many keeps each k-th (rounded up).
    """
    if not step_m > 0 or max_samples < 1:
        raise UsageError(f"sampling needs step_m > 0 and max_samples >= 1, got {step_m} and {max_samples}")
    if occupied is not None and tuple(occupied.shape[1:]) != grid.shape:
        raise UsageError(f"occupied must be (B, {grid.shape}), got {tuple(occupied.shape)}")
    if offsets is None:
        offsets = torch.full_like(rays.origins[:, 0], 0.5)
    if rays.origins.device.type == "cpu":
        counts, depths = walk_rays(rays, grid, occupied, offsets, step_m, max_samples)
    else:
        counts, depths = look_up_rays(rays, grid, occupied, offsets, step_m, max_samples)
    ray = torch.repeat_interleave(torch.arange(len(rays), device=counts.device), counts)
    first = counts.cumsum(0) - counts
    slots = torch.arange(len(ray), device=counts.device) - first[ray]
    longest = int(counts.max()) if len(counts) else 0
    return RaySamples(rays=ray, slots=slots, depths_m=depths, ray_count=len(rays), longest=longest)


def look_up_rays(
    rays: RayBatch, grid: VoxelGrid, occupied: Tensor | None, offsets: Tensor, step_m: float, max_samples: int
) -> tuple[Tensor, Tensor]:
    """(R,) samples of each ray, and their packed depths, by looking up the cell of every point of the lattice.

    Runs on any device; on the CPU `walk_rays` gives the same by walking from cell to cell.
    """
    entry, leave = rays.span(grid)
    furthest = float(leave.max()) if len(rays) else 0.0
    lattice = max(1, int(furthest / step_m) + 1)
    per_chunk = max(1, LOOKUPS_AT_ONCE // lattice)
    counts, depths = [], []
    for start in range(0, len(rays), per_chunk):
        part = slice(start, start + per_chunk)
        h = (torch.arange(lattice, device=offsets.device) + offsets[part, None]) * step_m  # (r, J)
        kept = (h >= entry[part, None]) & (h < leave[part, None])
        if occupied is not None:
            kept &= _occupied_at(rays[part], h, grid, occupied)
        number = kept.cumsum(dim=1) - 1
        thinning = ((number[:, -1:] + max_samples) // max_samples).clamp(min=1)
        kept &= number % thinning == thinning // 2
        counts.append(kept.sum(dim=1))
        depths.append(h[kept])
    if not counts:
        return offsets.new_zeros(0, dtype=torch.int64), offsets.new_zeros(0)
    return torch.cat(counts), torch.cat(depths)


def _occupied_at(rays: RayBatch, depths_m: Tensor, grid: VoxelGrid, occupied: Tensor) -> Tensor:
    """(r, J) whether the lattice's points lie in occupied cells."""
    flat = rays.scenes[:, None].expand_as(depths_m)
    for axis in range(3):
        position = rays.origins[:, axis, None] + depths_m * rays.directions[:, axis, None]
        cell = ((position - grid.minimum[axis]) / grid.cell_size[axis]).floor().long()
        flat = flat * grid.shape[axis] + cell.clamp(0, grid.shape[axis] - 1)
    return occupied.flatten()[flat]

"""Points to occupied voxels, exactly and sparsely: only voxels that hold points exist.

Axes: N points, V occupied voxels, B scenes, C channels. Points are first put into an order that depends on the points
alone, so that every later sum is the same to the last bit however a sweep's points were ordered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from copilot4d.errors import UsageError
from copilot4d.geometry import Sweep, VoxelGrid


@dataclass(frozen=True, kw_only=True)
class PointBatch:
    """The points of several sweeps: (N, 3) float32, each in its own sweep's frame, and the scene (N,) of each."""

    points: Tensor
    scenes: Tensor
    count: int  # scenes, also those without points

    @classmethod
    def of(cls, sweeps: Sequence[Sweep], device: torch.device | str = "cpu") -> PointBatch:
        """One scene per sweep."""
        if not sweeps:
            raise UsageError("a batch needs at least one sweep, got none")
        lengths = torch.tensor([len(s) for s in sweeps], dtype=torch.int64)
        return cls(
            points=torch.cat([torch.from_numpy(s.points) for s in sweeps]).to(device),
            scenes=torch.repeat_interleave(torch.arange(len(sweeps)), lengths).to(device),
            count=len(sweeps),
        )


@dataclass(frozen=True, kw_only=True)
class Voxels:
    """V occupied voxels, in the order of an array (B, X, Y, Z), and the points inside them."""

    grid: VoxelGrid
    count: int  # scenes
    flat: Tensor  # (V,) position in an array (B, X, Y, Z), rising
    offsets: Tensor  # (N, 3) from the voxel's centre, in voxel sizes: within [-1/2, 1/2]
    voxel_of_point: Tensor  # (N,) rising

    @property
    def cells(self) -> Tensor:
        """(V, 4) scene, x, y, z."""
        x, y, z = self.grid.shape
        rest, k = self.flat // z, self.flat % z
        return torch.stack([rest // (x * y), rest // y % x, rest % y, k], dim=-1)


def voxelise(batch: PointBatch, grid: VoxelGrid) -> Voxels:
    """Which voxels hold points. Points outside the grid, on its upper edges, or not finite are left out."""
    shape = torch.tensor(grid.shape, device=batch.points.device)
    # float64, as VoxelGrid computes: the two must agree on which side of an edge a point lies.
    minimum = torch.tensor(grid.minimum, dtype=torch.float64, device=batch.points.device)
    size = torch.tensor(grid.cell_size, dtype=torch.float64, device=batch.points.device)
    scaled = (batch.points.double() - minimum) / size
    inside = ((scaled >= 0) & (scaled < shape)).all(dim=-1)
    scaled, points, scenes = scaled[inside], batch.points[inside], batch.scenes[inside]
    cell = scaled.floor()
    x, y, z = cell.long().unbind(-1)
    flat = ((scenes * grid.shape[0] + x) * grid.shape[1] + y) * grid.shape[2] + z
    order = _canonical_order(flat, points, batch.count * grid.cells)
    voxels, voxel_of_point = torch.unique_consecutive(flat[order], return_inverse=True)
    offsets = (scaled - cell - 0.5).float()[order]
    return Voxels(grid=grid, count=batch.count, flat=voxels, offsets=offsets, voxel_of_point=voxel_of_point)


def _canonical_order(flat: Tensor, points: Tensor, cells: int) -> Tensor:
    """(N,) an order by voxel, and within a voxel by a fingerprint of the point: the same for any permutation.

    Both share one 63-bit key, so that one sort does it. Two points of a voxel whose fingerprints meet (they have 30
    bits or more) could still swap; a sum of the two would not notice.
    """
    x, y, z = (points + 0.0).contiguous().view(torch.int32).long().unbind(-1)  # + 0.0 makes -0 and 0 one number
    mixed = x * 0x2545F4914F6CDD1D + y * 0x1B873593CC9E2D51 + z * 0x5851F42D4C957F2D  # int64 wraps around
    mixed = (mixed ^ (mixed >> 29)) * 0x369DEA0F31A53F85
    bits = 63 - cells.bit_length()
    key = (flat << bits) | ((mixed >> (64 - bits)) & ((1 << bits) - 1))
    if key.device.type == "cpu":
        return torch.from_numpy(np.argsort(key.numpy()))  # vectorised: several times faster than torch's
    return torch.argsort(key)


def segment_sum(rows: Tensor, segment: Tensor, count: int) -> Tensor:
    """(N, C) rows and the segment (N,) of each -> (count, C)."""
    return rows.new_zeros(count, rows.shape[1]).index_add(0, segment, rows)


class VoxelPointNet(nn.Module):
    """A PointNet per voxel on offsets to the voxel's centre, with a sum and LayerNorm instead of the maximum."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        # The bias tells a point at the very centre from no point; ReLU needs it to bend anywhere but there.
        self.enter = nn.Linear(3, dim, bias=True)
        self.leave = nn.Linear(dim, dim, bias=False)
        self.norm = nn.LayerNorm(dim)

    def forward(self, voxels: Voxels) -> Tensor:
        """(V, C) a feature of each occupied voxel."""
        of_points = self.leave(functional.relu(self.enter(2 * voxels.offsets)))
        result: Tensor = self.norm(segment_sum(of_points, voxels.voxel_of_point, len(voxels.flat)))
        return result

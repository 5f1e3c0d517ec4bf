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

from copilot4d.errors import UsageError
from copilot4d.geometry import Sweep, VoxelGrid
from copilot4d.tokenizer.point_keys import fingerprint_bits, keyed_points
from copilot4d.tokenizer.point_sums import relu_sums


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

    def empty_columns(self, columns: tuple[int, int]) -> Tensor:
        """(B, H, W) bool: which of H x W equal columns of the grid hold no point."""
        x, y, _ = self.grid.shape
        empty = torch.ones(self.count, *columns, dtype=torch.bool, device=self.flat.device)
        scene, i, j, _ = self.cells.unbind(-1)
        empty[scene, i // (x // columns[0]), j // (y // columns[1])] = False
        return empty


def voxelise(batch: PointBatch, grid: VoxelGrid) -> Voxels:
    """Which voxels hold points. Points outside the grid, on its upper edges, or not finite are left out."""
    bits = fingerprint_bits(batch.count, grid)
    keys, offsets = keyed_points(batch.points, batch.scenes, grid, bits)
    order = _ascending(keys)
    voxels, voxel_of_point = torch.unique_consecutive(keys[order] >> bits, return_inverse=True)
    return Voxels(grid=grid, count=batch.count, flat=voxels, offsets=offsets[order], voxel_of_point=voxel_of_point)


def _ascending(keys: Tensor) -> Tensor:
    if keys.device.type == "cpu":
        return torch.from_numpy(np.argsort(keys.numpy()))  # vectorised: several times faster than torch's
    return torch.argsort(keys)


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
        enter, points = self.enter, 2 * voxels.offsets
        sums = relu_sums(points, enter.weight, enter.bias, voxels.voxel_of_point, len(voxels.flat))
        result: Tensor = self.norm(self.leave(sums))  # a linear layer of a sum is the sum of a linear layer
        return result

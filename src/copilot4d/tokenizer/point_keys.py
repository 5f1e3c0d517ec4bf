"""Which voxel each point lies in, and where in it: keys whose order is the points' canonical order.

A key of 63 bits is the voxel's position in an array (B, X, Y, Z), and below it a fingerprint of the point's own
coordinates, so that one sort gives the same order however a sweep's points were listed. Two points of a voxel whose
fingerprints meet (they have 30 bits or more) could still swap; a sum of the two would not notice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from copilot4d.compiled import compiled
from copilot4d.geometry import VoxelGrid

KEY_BITS = 63
# Odd numbers without a pattern: products wrap around in 64 bits, and their upper bits depend on all bits of a point.
_MIX_X, _MIX_Y, _MIX_Z, _MIX_AGAIN = 0x2545F4914F6CDD1D, 0x1B873593CC9E2D51, 0x5851F42D4C957F2D, 0x369DEA0F31A53F85
_MIX_SHIFT = 29


class KeyedPoints(NamedTuple):
    """The points inside the grid, in the order in which they came."""

    keys: Tensor  # (N,) int64; shifted right by `bits`: the voxel
    offsets: Tensor  # (N, 3) float32 from the voxel's centre, in voxel sizes


def fingerprint_bits(scenes: int, grid: VoxelGrid) -> int:
    """How many bits of a key are left below the voxel's position."""
    return KEY_BITS - (scenes * grid.cells).bit_length()


def keyed_points(points: Tensor, scenes: Tensor, grid: VoxelGrid, bits: int) -> KeyedPoints:
    """(M, 3) float32 points of (M,) scenes, without those outside the grid, on its upper edges, or not finite."""
    if points.device.type != "cpu":
        return keyed_by_tensors(points, scenes, grid, bits)
    keys, offsets = np.empty(len(points), dtype=np.int64), np.empty((len(points), 3), dtype=np.float32)
    count = _key_all(
        points.contiguous().numpy(), (points + 0.0).contiguous().view(torch.int32).numpy(), scenes.contiguous().numpy(),
        np.array(grid.minimum, dtype=np.float64), np.array(grid.cell_size, dtype=np.float64),
        np.array(grid.shape, dtype=np.int64), bits, keys, offsets,
    )  # fmt: skip
    return KeyedPoints(torch.from_numpy(keys[:count]), torch.from_numpy(offsets[:count]))


def keyed_by_tensors(points: Tensor, scenes: Tensor, grid: VoxelGrid, bits: int) -> KeyedPoints:
    """The same to the last bit, on any device."""
    shape = torch.tensor(grid.shape, device=points.device)
    # float64, as VoxelGrid computes: the two must agree on which side of an edge a point lies.
    minimum = torch.tensor(grid.minimum, dtype=torch.float64, device=points.device)
    size = torch.tensor(grid.cell_size, dtype=torch.float64, device=points.device)
    scaled = (points.double() - minimum) / size
    inside = ((scaled >= 0) & (scaled < shape)).all(dim=-1)
    scaled, points, scenes = scaled[inside], points[inside], scenes[inside]
    cell = scaled.floor()
    i, j, k = cell.long().unbind(-1)
    flat = ((scenes * grid.shape[0] + i) * grid.shape[1] + j) * grid.shape[2] + k
    x, y, z = (points + 0.0).contiguous().view(torch.int32).long().unbind(-1)  # + 0.0 makes -0 and 0 one number
    mixed = x * _MIX_X + y * _MIX_Y + z * _MIX_Z
    mixed = (mixed ^ (mixed >> _MIX_SHIFT)) * _MIX_AGAIN
    fingerprint = (mixed >> (64 - bits)) & ((1 << bits) - 1)
    return KeyedPoints((flat << bits) | fingerprint, (scaled - cell - 0.5).float())


@compiled
def _key_all(
    points: Any, patterns: Any, scenes: Any, minimum: Any, size: Any, shape: Any, bits: int, keys: Any, offsets: Any
) -> int:
    """`keyed_by_tensors` in one pass; returns how many points are inside."""
    count = 0
    for p in range(len(points)):
        flat = scenes[p]
        inside = True
        for axis in range(3):
            scaled = (np.float64(points[p, axis]) - minimum[axis]) / size[axis]
            if not (scaled >= 0 and scaled < shape[axis]):
                inside = False
                break
            cell = np.floor(scaled)
            offsets[count, axis] = scaled - cell - 0.5
            flat = flat * shape[axis] + np.int64(cell)
        if inside:
            mixed = (
                np.int64(patterns[p, 0]) * _MIX_X
                + np.int64(patterns[p, 1]) * _MIX_Y
                + np.int64(patterns[p, 2]) * _MIX_Z
            )
            mixed = (mixed ^ (mixed >> _MIX_SHIFT)) * _MIX_AGAIN
            keys[count] = (flat << bits) | ((mixed >> (64 - bits)) & ((1 << bits) - 1))
            count += 1
    return count

"""Trilinear interpolation in grids whose values sit at the centres of their cells."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from copilot4d.geometry import VoxelGrid
from copilot4d.rendering.weighted_rows import weighted_rows


class Corners(NamedTuple):
    """The eight cells around each of S points, as 4 columns (x, y) times 2 levels (z), and their weights."""

    columns: Tensor  # (S, 4) position in an array (B, X, Y)
    column_weights: Tensor  # (S, 4)
    levels: Tensor  # (S, 2) position along z
    level_weights: Tensor  # (S, 2)

    def rows(self, columns: Tensor, levels: int) -> Tensor:
        """(S, 8) rows of a table (columns x levels, C), where the columns were given other numbers."""
        return (columns[:, :, None] * levels + self.levels[:, None, :]).flatten(1)

    @property
    def weights(self) -> Tensor:
        """(S, 8), summing to 1."""
        return (self.column_weights[:, :, None] * self.level_weights[:, None, :]).flatten(1)


def trilinear_corners(points: Tensor, scenes: Tensor, grid: VoxelGrid) -> Corners:
    """(S, 3) points in (S,) scenes -> the cells around them. Beyond the outermost centres the values are constant."""
    low, fraction = [], []
    for axis in range(3):
        cells = grid.shape[axis]
        position = (points[:, axis] - grid.minimum[axis]) / grid.cell_size[axis] - 0.5
        position = position.clamp(0, cells - 1)
        first = position.floor().clamp(max=max(cells - 2, 0))
        low.append(first.long())
        fraction.append(position - first)
    x, y, z = low
    fx, fy, fz = fraction
    # In a grid of one cell along an axis both neighbours are that cell.
    dx, dy, dz = (1 if cells > 1 else 0 for cells in grid.shape)
    base = (scenes * grid.shape[0] + x) * grid.shape[1] + y
    row = dx * grid.shape[1]
    return Corners(
        columns=torch.stack([base, base + dy, base + row, base + row + dy], dim=-1),
        column_weights=torch.stack([(1 - fx) * (1 - fy), (1 - fx) * fy, fx * (1 - fy), fx * fy], dim=-1),
        levels=torch.stack([z, z + dz], dim=-1),
        level_weights=torch.stack([1 - fz, fz], dim=-1),
    )


def interpolate(values: Tensor, points: Tensor, scenes: Tensor, grid: VoxelGrid) -> Tensor:
    """(B, X, Y, Z, C) values at (S, 3) points of (S,) scenes -> (S, C)."""
    corners = trilinear_corners(points, scenes, grid)
    return weighted_rows(values.flatten(0, 3), corners.rows(corners.columns, grid.shape[2]), corners.weights)

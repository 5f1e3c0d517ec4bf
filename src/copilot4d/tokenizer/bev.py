"""Occupied voxels to a bird's-eye-view map: pillars, then patches of pillars. H runs along x, W along y."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from copilot4d.tokenizer.voxels import Voxels, segment_sum

EmptyPillar = Literal["zero", "learned"]


class PillarPooling(nn.Module):
    """Linear, plus a learned embedding of the voxel's height, sum over z, LayerNorm: (V, C) -> (P, C)."""

    undecayed_parameters = ("height_embedding",)

    def __init__(self, dim: int, levels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim, bias=False)
        self.height_embedding = nn.Parameter(torch.randn(levels, dim) * (3 * dim) ** -0.5)
        self.norm = nn.LayerNorm(dim)

    def forward(self, features: Tensor, voxels: Voxels) -> tuple[Tensor, Tensor]:
        """Features of the P pillars that hold points, and their positions (P,) in an array (B, X, Y)."""
        levels = voxels.grid.shape[2]
        pillars, pillar_of_voxel = torch.unique_consecutive(voxels.flat // levels, return_inverse=True)
        rows = self.linear(features) + self.height_embedding[voxels.flat % levels]
        return self.norm(segment_sum(rows, pillar_of_voxel, len(pillars))), pillars


class PatchEmbedding(nn.Module):
    """Squares of patch x patch pillars through one Linear layer, touching only squares that hold points.

    An empty pillar is a zero or a learned vector; either way the result is that of the dense map.
    """

    def __init__(self, pillar_dim: int, dim: int, patch: int, empty: EmptyPillar = "zero") -> None:
        super().__init__()
        self.patch = patch
        self.linear = nn.Linear(patch * patch * pillar_dim, dim, bias=False)
        self.empty = nn.Parameter(torch.zeros(pillar_dim)) if empty == "learned" else None

    def forward(self, pillars: Tensor, positions: Tensor, count: int, shape: tuple[int, int]) -> Tensor:
        """(P, C) pillars at positions in (B, X, Y) -> (B, X / patch, Y / patch, D)."""
        (x_cells, y_cells), p = shape, self.patch
        height, width = x_cells // p, y_cells // p
        scene, x, y = positions // (x_cells * y_cells), positions // y_cells % x_cells, positions % y_cells
        squares, square_of_pillar = torch.unique(
            (scene * height + x // p) * width + y // p, return_inverse=True
        )  # fmt: skip
        place = (x % p) * p + y % p
        dim = pillars.shape[1]
        blank = pillars.new_zeros(dim) if self.empty is None else self.empty.to(pillars.dtype)
        filled = blank.expand(len(squares) * p * p, dim).index_copy(0, square_of_pillar * (p * p) + place, pillars)
        embedded = self.linear(filled.view(len(squares), p * p * dim))
        nothing = self.linear(blank.repeat(p * p))
        whole: Tensor = nothing.expand(count * height * width, -1).index_copy(0, squares, embedded)
        return whole.view(count, height, width, -1)

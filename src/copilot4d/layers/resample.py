"""Changes of resolution by a factor of two. All map (..., H, W, C) channels last."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from copilot4d.errors import UsageError


def fold_patches(x: Tensor) -> Tensor:
    """(..., 2h, 2w, C) -> (..., h, w, 4C): the four features of a patch side by side, row-major."""
    *batch, height, width, dim = x.shape
    if height % 2 or width % 2:
        raise UsageError(f"patches of 2 x 2 need even sides, the feature map is {height} x {width}")
    patches = x.reshape(*batch, height // 2, 2, width // 2, 2, dim)
    return patches.transpose(-4, -3).reshape(*batch, height // 2, width // 2, 4 * dim)


def unfold_patches(x: Tensor) -> Tensor:
    """(..., h, w, 4C) -> (..., 2h, 2w, C): the inverse of `fold_patches`."""
    *batch, height, width, dim = x.shape
    patches = x.reshape(*batch, height, width, 2, 2, dim // 4)
    return patches.transpose(-4, -3).reshape(*batch, 2 * height, 2 * width, dim // 4)


class PatchMerging(nn.Module):
    """Down: four neighbours side by side, LayerNorm, Linear. (..., 2h, 2w, C) -> (..., h, w, D)."""

    def __init__(self, dim: int, out_dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduce = nn.Linear(4 * dim, out_dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., 2h, 2w, C) -> (..., h, w, D)."""
        result: Tensor = self.reduce(self.norm(fold_patches(x)))
        return result


class PatchUpsample(nn.Module):
    """Up: Linear to four features, LayerNorm on each, Linear. (..., h, w, C) -> (..., 2h, 2w, D)."""

    def __init__(self, dim: int, out_dim: int) -> None:
        super().__init__()
        self.expand = nn.Linear(dim, 4 * dim, bias=False)
        self.norm = nn.LayerNorm(dim)
        self.reduce = nn.Linear(dim, out_dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., h, w, C) -> (..., 2h, 2w, D)."""
        result: Tensor = self.reduce(self.norm(unfold_patches(self.expand(x))))
        return result


class LevelMerging(nn.Module):
    """Up and merge: upsample by a Linear layer, set beside the lower level, LayerNorm, Linear, residual connection.

    upper (..., h, w, C) and lower (..., 2h, 2w, D) -> (..., 2h, 2w, D).
    """

    def __init__(self, upper_dim: int, lower_dim: int) -> None:
        super().__init__()
        self.expand = nn.Linear(upper_dim, 4 * upper_dim, bias=False)
        self.norm = nn.LayerNorm(upper_dim + lower_dim)
        self.reduce = nn.Linear(upper_dim + lower_dim, lower_dim, bias=False)

    def forward(self, upper: Tensor, lower: Tensor) -> Tensor:
        """lower + what the upper level adds to it."""
        upsampled = unfold_patches(self.expand(upper))
        merged: Tensor = self.reduce(self.norm(torch.cat([upsampled, lower], dim=-1)))
        return lower + merged

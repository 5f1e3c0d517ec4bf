"""The coarse branch: which voxels hold points, and from it where rays need not look.

Logits are kept in the order in which the network makes them, (B, H, W, u, u, Z): map cell (i, j), then the voxel
(u i + a, u j + b) inside it. `to_grid` turns them into (B, X, Y, Z). With `resolution: cell` the same holds of the
mask's cells instead of voxels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from copilot4d.errors import UsageError, check_range
from copilot4d.geometry import VoxelGrid
from copilot4d.tokenizer.voxels import Voxels

Resolution = Literal["voxel", "cell"]
QUIET_THRESHOLD = 0.2
NEVER = -30.0  # a logit that no threshold and no noise lets through


@dataclass(frozen=True, kw_only=True)
class SkippingConfig:
    """How predicted voxels become the mask of cells in which rays are sampled."""

    renamed: ClassVar[dict[str, str]] = {"inference_threshold": "mask_threshold"}

    pool: int = 8  # voxels along x and y that one cell of the mask covers
    threshold: float = 0.5  # of a voxel that is a point (mode voxel_centres)
    noise: bool = True  # logistic noise on the logits, from a seed
    # Of a cell in which rays are sampled, in training and at inference. None: `threshold` with noise, which now and
    # then samples an improbable cell; without noise such cells would never be sampled and thin things lost, so 0.2.
    mask_threshold: float | None = None
    initial_bias: float = -5.0  # most voxels are empty
    resolution: Resolution = "voxel"  # "cell" predicts the pooled mask itself: fewer logits, learned sooner

    def __post_init__(self) -> None:
        if self.resolution not in get_args(Resolution):
            known = ", ".join(get_args(Resolution))
            raise UsageError(f"tokenizer.skipping.resolution is one of {known}, got {self.resolution!r}")
        if self.pool < 1:
            raise UsageError(f"tokenizer.skipping.pool must be at least 1, got {self.pool}")
        check_range("tokenizer.skipping.pool", self.pool, 1, 1024)
        for name in ("threshold", "mask_threshold"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise UsageError(f"tokenizer.skipping.{name} must lie in (0, 1), got {value}")

    @property
    def of_mask(self) -> SkippingConfig:
        """The same with the mask's threshold."""
        usual = self.threshold if self.noise else QUIET_THRESHOLD
        return replace(self, threshold=usual if self.mask_threshold is None else self.mask_threshold)


class CoarseBranch(nn.Module):
    """LayerNorm and Linear from the decoder's map to one logit per voxel."""

    def __init__(self, dim: int, upsample: int, levels: int) -> None:
        super().__init__()
        self.upsample, self.levels = upsample, levels
        self.norm = nn.LayerNorm(dim)
        self.linear = nn.Linear(dim, upsample * upsample * levels, bias=True)

    def forward(self, features: Tensor) -> Tensor:
        """(B, H, W, D) -> (B, H, W, u, u, Z)."""
        logits = self.linear(self.norm(features))
        return logits.view(*features.shape[:3], self.upsample, self.upsample, self.levels)  # type: ignore[no-any-return]


def to_grid(values: Tensor) -> Tensor:
    """(B, H, W, u, u, Z) -> (B, X, Y, Z)."""
    batch, height, width, up, _, levels = values.shape
    return values.permute(0, 1, 3, 2, 4, 5).reshape(batch, height * up, width * up, levels)


def network_position(voxels: Voxels, patch: int, config: SkippingConfig) -> Tensor:
    """(V,) where what is occupied stands in a flat (B, H, W, u, u, Z) of logits, each place once."""
    x_cells, y_cells, levels = voxels.grid.shape
    scene, x, y, z = voxels.cells.unbind(-1)
    wide = config.pool if config.resolution == "cell" else 1
    up, x, y = patch // wide, x // wide, y // wide
    cell = (scene * (x_cells // patch) + x // up) * (y_cells // patch) + y // up
    position = ((cell * up + x % up) * up + y % up) * levels + z
    return position if wide == 1 else torch.unique(position)


def mask_grid(grid: VoxelGrid, pool: int) -> VoxelGrid:
    """The grid of the pooled mask: `pool` voxels wide along x and y, one high."""
    shape = (grid.shape[0] // pool, grid.shape[1] // pool, grid.shape[2])
    return VoxelGrid.from_bounds(grid.minimum, grid.maximum, shape)


def true_mask(voxels: Voxels, pool: int) -> Tensor:
    """(B, X / pool, Y / pool, Z) whether points lie in a cell."""
    x_cells, y_cells, levels = mask_grid(voxels.grid, pool).shape
    mask = torch.zeros(voxels.count, x_cells, y_cells, levels, dtype=torch.bool, device=voxels.flat.device)
    scene, x, y, z = voxels.cells.unbind(-1)
    mask[scene, x // pool, y // pool, z] = True
    return mask


@torch.no_grad()
def predicted_voxels(logits: Tensor, config: SkippingConfig, generator: torch.Generator | None) -> Tensor:
    """(B, ...) logits -> bool of the same shape: logistic noise, then the threshold. No generator: no noise.

    All scenes get the same draws, so that what a scene looks like does not depend on its batch.

    logit + log(u / (1 - u)) > log(t / (1 - t)) with u uniform is u < sigmoid(logit - log(t / (1 - t))), which is what
    is computed: one draw and one sigmoid per voxel.
    """
    threshold = _logit(config.threshold)
    if not config.noise or generator is None:
        return logits > threshold
    draws = torch.rand(logits.shape[1:], generator=generator, device=generator.device).to(logits.device)
    return draws < torch.sigmoid(logits.float() - threshold)


def pooled(occupied: Tensor, pool: int) -> Tensor:
    """(B, X, Y, Z) bool -> (B, X / pool, Y / pool, Z): the maximum."""
    return _blocks(occupied, pool).any(dim=4).any(dim=2)


@torch.no_grad()
def predicted_mask(logits: Tensor, config: SkippingConfig, generator: torch.Generator | None) -> Tensor:
    """(B, H, W, u, u, Z) -> (B, X / pool, Y / pool, Z): the cells that the coarse branch expects to hold points.

    The maximum over a cell's voxels, each with its own noise, is 1 with probability 1 - prod (1 - p_i): one draw per
    cell has the same law as one draw per voxel, and there are far fewer cells.
    """
    if config.resolution == "cell":
        return to_grid(predicted_voxels(logits, config, generator))
    up = logits.shape[3]
    if config.pool % up:
        return pooled(to_grid(predicted_voxels(logits, config, generator)), config.pool)
    threshold, wide = _logit(config.threshold), config.pool // up
    if not config.noise or generator is None:
        highest = logits.amax(dim=(3, 4))  # (B, H, W, Z)
        return _blocks(highest, wide).amax(dim=(2, 4)) > threshold
    empty = functional.softplus(logits.float() - threshold).sum(dim=(3, 4))  # -log prod (1 - p_i)
    empty = _blocks(empty, wide).sum(dim=(2, 4))
    draws = torch.rand(empty.shape[1:], generator=generator, device=generator.device).to(logits.device)
    return draws < -torch.expm1(-empty)


@torch.no_grad()
def ray_mask(
    logits: Tensor, config: SkippingConfig, generator: torch.Generator | None, held: Tensor | None = None
) -> Tensor:
    """(B, X / pool, Y / pool, Z): the cells in which rays are sampled, in training and at inference.

    This is the only place that decides it. held: (B, X / pool, Y / pool, Z) bool, the cells that hold points, which
    training adds; whatever inference samples has been trained, also where it is empty.
    """
    mask = predicted_mask(logits, config.of_mask, generator)
    return mask if held is None else mask | held


def without_columns(logits: Tensor, empty: Tensor | None) -> Tensor:
    """(B, H, W, u, u, Z) logits, NEVER in the columns (B, h, w) that are known to be empty."""
    if empty is None:
        return logits
    cells = repeated(empty, logits.shape[1] // empty.shape[1])
    return logits.masked_fill(cells[..., None, None, None], NEVER)


def repeated(columns: Tensor, times: int) -> Tensor:
    """(B, h, w) -> (B, times h, times w): every column as times x times smaller ones."""
    return columns.repeat_interleave(times, dim=1).repeat_interleave(times, dim=2)


def _blocks(values: Tensor, wide: int) -> Tensor:
    """(B, H, W, Z) -> (B, H / wide, wide, W / wide, wide, Z)."""
    batch, height, width, levels = values.shape
    return values.reshape(batch, height // wide, wide, width // wide, wide, levels)


def _logit(probability: float) -> float:
    return math.log(probability / (1 - probability))

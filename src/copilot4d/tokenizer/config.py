"""`TokenizerConfig`: everything that decides a tokenizer's weights and their meaning. The defaults are the paper's."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from copilot4d.errors import UsageError, check_range
from copilot4d.geometry import VoxelGrid
from copilot4d.layers.position import PositionKind
from copilot4d.tokenizer.bev import EmptyPillar
from copilot4d.tokenizer.codebook import CodebookConfig
from copilot4d.tokenizer.feature_grid import FeatureGridConfig
from copilot4d.tokenizer.losses import LossConfig
from copilot4d.tokenizer.renderer import DepthKind
from copilot4d.tokenizer.skipping import SkippingConfig

Mode = Literal["full", "no_skipping", "voxel_centres"]
TrainingMask = Literal["true", "union"]


def paper_grid() -> VoxelGrid:
    """160 m x 160 m x 9 m in voxels of 15.6 cm x 15.6 cm x 14.1 cm."""
    return VoxelGrid.from_bounds((-80.0, -80.0, -4.5), (80.0, 80.0, 4.5), shape=(1024, 1024, 64))


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """The Swin Transformer of the encoder; the decoder's is the same, upside down."""

    patch: int = 4  # pillars a side of the first tokens; the second level has twice as many
    dims: tuple[int, int] = (128, 256)
    heads: tuple[int, int] = (8, 16)
    depths: tuple[int, int] = (2, 6)
    window: int = 8
    mlp_ratio: float = 4.0
    position: PositionKind = "sincos"
    decoder_position: bool = True  # the decoder's input is told where it is, too

    def __post_init__(self) -> None:
        for dim, heads in zip(self.dims, self.heads, strict=True):
            if heads < 1 or dim % heads:
                raise UsageError(
                    f"tokenizer.backbone.heads must divide tokenizer.backbone.dims, got {self.heads} for {self.dims}"
                )
        if self.patch < 1 or min(self.depths) < 1:
            raise UsageError(
                f"tokenizer.backbone.patch and .depths must be at least 1, got {self.patch} and {self.depths}"
            )
        check_range("tokenizer.backbone.patch", self.patch, 1, 64)
        check_range("tokenizer.backbone.dims", self.dims, 1, 8192)
        check_range("tokenizer.backbone.depths", self.depths, 1, 64)
        check_range("tokenizer.backbone.window", self.window, 1, 64)
        check_range("tokenizer.backbone.mlp_ratio", self.mlp_ratio, 0.01, 32)


@dataclass(frozen=True, kw_only=True)
class RenderingConfig:
    """How rays are sampled and what their depth means."""

    step_m: float = 0.1
    max_samples: int = 128  # of a ray in training; one with more keeps each second, third, ...
    inference_max_samples: int = 4096
    depth: DepthKind = "sum"  # at inference: sum w h as the loss has it, divided by the opacity, or the median
    min_opacity: float = 0.5  # below it a ray has no return
    training_mask: TrainingMask = "union"  # sampled in training: what inference samples too, or only true cells

    def __post_init__(self) -> None:
        if not self.step_m > 0:
            raise UsageError(f"tokenizer.rendering.step_m must be positive, got {self.step_m}")
        if min(self.max_samples, self.inference_max_samples) < 1:
            raise UsageError("tokenizer.rendering.max_samples and .inference_max_samples must be at least 1")
        check_range("tokenizer.rendering.step_m", self.step_m, 0.005, 100)
        check_range("tokenizer.rendering.max_samples", self.max_samples, 1, 1 << 16)
        check_range("tokenizer.rendering.inference_max_samples", self.inference_max_samples, 1, 1 << 16)
        if self.depth not in get_args(DepthKind):
            raise UsageError(
                f"tokenizer.rendering.depth is one of {', '.join(get_args(DepthKind))}, got {self.depth!r}"
            )
        if not 0 <= self.min_opacity <= 1:
            raise UsageError(f"tokenizer.rendering.min_opacity must lie in [0, 1], got {self.min_opacity}")
        if self.training_mask not in get_args(TrainingMask):
            known = ", ".join(get_args(TrainingMask))
            raise UsageError(f"tokenizer.rendering.training_mask is one of {known}, got {self.training_mask!r}")


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """A tokenizer. `mode` is "full", or one of the paper's two ablations: without coarse branch and skipping, or with
    the coarse branch alone, whose voxel centres are the points (as in UltraLiDAR).
    """

    grid: VoxelGrid = field(default_factory=paper_grid)
    mode: Mode = "full"
    point_dim: int = 64
    empty_pillar: EmptyPillar = "zero"
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    codebook: CodebookConfig = field(default_factory=CodebookConfig)
    feature_grid: FeatureGridConfig = field(default_factory=FeatureGridConfig)
    skipping: SkippingConfig = field(default_factory=SkippingConfig)
    rendering: RenderingConfig = field(default_factory=RenderingConfig)
    losses: LossConfig = field(default_factory=LossConfig)
    activation_checkpointing: bool = False  # recompute the backbone instead of storing it: a third more time

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise UsageError(f"tokenizer.mode is one of {', '.join(get_args(Mode))}, got {self.mode!r}")
        if self.empty_pillar not in get_args(EmptyPillar):
            known = ", ".join(get_args(EmptyPillar))
            raise UsageError(f"tokenizer.empty_pillar is one of {known}, got {self.empty_pillar!r}")
        if self.skipping.resolution == "cell":
            if self.mode == "voxel_centres":
                raise UsageError(
                    "mode 'voxel_centres' needs tokenizer.skipping.resolution voxel: its points are the voxels"
                )
            if self.backbone.patch % self.skipping.pool:
                raise UsageError(
                    f"tokenizer.skipping.resolution cell needs a .pool that divides tokenizer.backbone.patch, got "
                    f"{self.skipping.pool} and {self.backbone.patch}"
                )
        check_range("tokenizer.point_dim", self.point_dim, 1, 4096)
        levels = self.feature_grid.levels or self.grid.shape[2]
        columns = math.prod(self.map_size) * self.feature_grid.upsample**2
        check_range("the feature grid's numbers", columns * levels * self.feature_grid.channels, 1, 1 << 30)
        token = 2 * self.backbone.patch
        for name, unit in (("2 x tokenizer.backbone.patch", token), ("tokenizer.skipping.pool", self.skipping.pool)):
            if self.grid.shape[0] % unit or self.grid.shape[1] % unit:
                raise UsageError(f"{name} = {unit} must divide the grid's x and y cells, {self.grid.shape[:2]}")

    @property
    def samples_in_training(self) -> int:
        """The most samples of a ray in training.

        Without skipping as many as at inference: rays composited more densely than they were trained would stop too
        early, because each sample has learned the occupancy of a longer stretch.
        """
        return self.rendering.inference_max_samples if self.mode == "no_skipping" else self.rendering.max_samples

    @property
    def logits_per_cell(self) -> int:
        """Logits of the coarse branch along x (and y) of a cell of the finer feature map."""
        return self.backbone.patch // (self.skipping.pool if self.skipping.resolution == "cell" else 1)

    @property
    def map_size(self) -> tuple[int, int]:
        """Cells of the finer feature map, along x and y."""
        return (self.grid.shape[0] // self.backbone.patch, self.grid.shape[1] // self.backbone.patch)

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of a sweep, along x and y."""
        return (self.map_size[0] // 2, self.map_size[1] // 2)

    @property
    def vocabulary(self) -> int:
        """How many codes there are."""
        return self.codebook.codes

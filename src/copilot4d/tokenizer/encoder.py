"""Points to one feature per token: PointNet, pillars, patches, Swin Transformer. H runs along x, W along y."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from copilot4d.layers.init import init_fan_in, scale_residuals
from copilot4d.layers.position import SpatialPosition
from copilot4d.layers.resample import PatchMerging
from copilot4d.layers.swin import SwinStage
from copilot4d.tokenizer.bev import PatchEmbedding, PillarPooling
from copilot4d.tokenizer.config import BackboneConfig, TokenizerConfig
from copilot4d.tokenizer.voxels import VoxelPointNet, Voxels


def swin_stage(config: BackboneConfig, level: int, size: tuple[int, int]) -> SwinStage:
    """The Swin layers of a level: 0 is the finer one."""
    return SwinStage(
        dim=config.dims[level], heads=config.heads[level], depth=config.depths[level], size=size,
        window=config.window, mlp_ratio=config.mlp_ratio,
    )  # fmt: skip


class Encoder(nn.Module):
    """Occupied voxels -> (B, H, W, D), before quantisation."""

    def __init__(self, config: TokenizerConfig) -> None:
        super().__init__()
        backbone, (fine, coarse) = config.backbone, config.backbone.dims
        self.checkpointing = config.activation_checkpointing
        self.point_net = VoxelPointNet(config.point_dim)
        self.pillars = PillarPooling(config.point_dim, config.grid.shape[2])
        self.patches = PatchEmbedding(config.point_dim, fine, backbone.patch, config.empty_pillar)
        self.position = SpatialPosition(config.map_size, fine, backbone.position)
        self.fine = swin_stage(backbone, 0, config.map_size)
        self.merge = PatchMerging(fine, coarse)
        self.coarse = swin_stage(backbone, 1, config.tokens)
        self.norm = nn.LayerNorm(coarse)
        self.leave = nn.Linear(coarse, config.codebook.dim, bias=False)
        init_fan_in(self)
        for stage in (self.fine, self.coarse):
            scale_residuals(stage.residual_outputs(), 2 * len(stage.blocks))

    def forward(self, voxels: Voxels) -> Tensor:
        """(B, H, W, D)."""
        x = self.bev(voxels)
        x = self.merge(self.fine(self.position(x), checkpointing=self.checkpointing and torch.is_grad_enabled()))
        x = self.coarse(x, checkpointing=self.checkpointing and torch.is_grad_enabled())
        return self.leave(functional.gelu(self.norm(x)))  # type: ignore[no-any-return]

    def bev(self, voxels: Voxels) -> Tensor:
        """(B, 2 H, 2 W, C): the map that the Swin Transformer reads."""
        pillars, positions = self.pillars(self.point_net(voxels), voxels)
        x, y, _ = voxels.grid.shape
        return self.patches(pillars, positions, voxels.count, (x, y))  # type: ignore[no-any-return]

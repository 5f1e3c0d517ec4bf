"""Codes to the map from which both branches read: the encoder's backbone upside down."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from copilot4d.layers.init import init_fan_in, scale_residuals
from copilot4d.layers.position import SpatialPosition
from copilot4d.layers.resample import PatchUpsample
from copilot4d.tokenizer.config import TokenizerConfig
from copilot4d.tokenizer.encoder import swin_stage


class Decoder(nn.Module):
    """(B, H, W, D) codes -> (B, 2 H, 2 W, C)."""

    def __init__(self, config: TokenizerConfig) -> None:
        super().__init__()
        backbone, (fine, coarse) = config.backbone, config.backbone.dims
        self.checkpointing = config.activation_checkpointing
        self.enter = nn.Linear(config.codebook.dim, coarse, bias=False)
        place = backbone.decoder_position
        self.position = SpatialPosition(config.tokens, coarse, backbone.position) if place else nn.Identity()
        self.coarse = swin_stage(backbone, 1, config.tokens)
        self.upsample = PatchUpsample(coarse, fine)
        self.fine = swin_stage(backbone, 0, config.map_size)
        init_fan_in(self)
        for stage in (self.fine, self.coarse):
            scale_residuals(stage.residual_outputs(), 2 * len(stage.blocks))

    def forward(self, codes: Tensor) -> Tensor:
        """(B, H, W, D) -> (B, 2 H, 2 W, C)."""
        again = self.checkpointing and torch.is_grad_enabled()
        x = self.coarse(self.position(self.enter(codes)), checkpointing=again)
        return self.fine(self.upsample(x), checkpointing=again)  # type: ignore[no-any-return]

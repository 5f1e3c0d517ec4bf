"""Presets: whole configurations by name. Same code, other numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from copilot4d.errors import UsageError
from copilot4d.geometry import VoxelGrid
from copilot4d.tokenizer.codebook import CodebookConfig
from copilot4d.tokenizer.config import BackboneConfig, RenderingConfig, TokenizerConfig
from copilot4d.tokenizer.losses import LossConfig
from copilot4d.tokenizer.skipping import SkippingConfig
from copilot4d.world_model.model import WorldModelConfig
from copilot4d.world_model.unet import UNetConfig


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The models that make a forecast."""

    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    world_model: WorldModelConfig = field(default_factory=WorldModelConfig)

    def __post_init__(self) -> None:
        made, read = self.tokenizer, self.world_model
        if (made.vocabulary, made.tokens) != (read.vocabulary, read.tokens):
            raise UsageError(
                f"the tokenizer makes {made.tokens} tokens of {made.vocabulary} codes, but the world model reads "
                f"{read.tokens} of {read.vocabulary}; change one of them"
            )


def paper() -> ModelConfig:
    """The paper's sizes: 128 x 128 tokens, clips of 5 + 5 frames, 39 million parameters."""
    return ModelConfig()


def mini() -> ModelConfig:
    """Small enough to train on a two-core CPU within hours: 32 x 32 tokens, clips of 5 + 5 frames."""
    unet = UNetConfig(dims=(64, 96, 128), heads=(2, 3, 4), windows=(8, 8, 8), down_groups=(1, 1, 1), up_groups=(1, 1))
    tokenizer = TokenizerConfig(
        grid=VoxelGrid.from_bounds((-32.0, -32.0, -4.0), (32.0, 32.0, 4.0), shape=(256, 256, 32)),
        point_dim=32,
        backbone=BackboneConfig(dims=(64, 128), heads=(2, 4), depths=(1, 2), mlp_ratio=2.0),
        codebook=CodebookConfig(dim=64, warm_up=1000, empty_columns="reserved"),
        skipping=SkippingConfig(pool=4, resolution="cell", noise=False),
        rendering=RenderingConfig(depth="median"),
        losses=LossConfig(occupied_weight=5.0, termination=1.0),
    )
    world_model = WorldModelConfig(tokens=(32, 32), unet=unet, token_frame="reference")
    return ModelConfig(tokenizer=tokenizer, world_model=world_model)


def tiny() -> ModelConfig:
    """Seconds, for tests: 16 x 16 tokens of a vocabulary of 32, clips of 2 + 2 frames."""
    unet = UNetConfig(dims=(16, 24, 32), heads=(2, 3, 4), windows=(4, 4, 4), down_groups=(1, 1, 1), up_groups=(1, 1))
    tokenizer = TokenizerConfig(
        grid=VoxelGrid.from_bounds((-16.0, -16.0, -3.0), (16.0, 16.0, 3.0), shape=(128, 128, 12)),
        point_dim=8,
        backbone=BackboneConfig(dims=(16, 32), heads=(2, 4), depths=(2, 2), window=4),
        codebook=CodebookConfig(codes=32, dim=32, start_from_data=True),
        skipping=SkippingConfig(pool=4),
        rendering=RenderingConfig(step_m=0.2, max_samples=48),
        losses=LossConfig(occupied_weight=20.0),
    )
    world_model = WorldModelConfig(vocabulary=32, tokens=(16, 16), frames=4, past_frames=2, unet=unet)
    return ModelConfig(tokenizer=tokenizer, world_model=world_model)


PRESETS = {"paper": paper, "mini": mini, "tiny": tiny}


def preset(name: str) -> ModelConfig:
    """A preset by its name."""
    if name not in PRESETS:
        raise UsageError(f"`preset` is one of {', '.join(PRESETS)}, got {name!r}")
    return PRESETS[name]()

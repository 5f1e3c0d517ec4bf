"""Presets: whole configurations by name. Same code, other numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from copilot4d.errors import UsageError
from copilot4d.world_model.model import WorldModelConfig
from copilot4d.world_model.unet import UNetConfig


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The models that make a forecast."""

    world_model: WorldModelConfig = field(default_factory=WorldModelConfig)


def paper() -> ModelConfig:
    """The paper's sizes: 128 x 128 tokens, clips of 5 + 5 frames, 39 million parameters."""
    return ModelConfig(world_model=WorldModelConfig())


def mini() -> ModelConfig:
    """Small enough to train on a two-core CPU within hours: 32 x 32 tokens, clips of 5 + 5 frames."""
    unet = UNetConfig(dims=(64, 96, 128), heads=(2, 3, 4), windows=(8, 8, 8))
    return ModelConfig(world_model=WorldModelConfig(tokens=(32, 32), unet=unet, token_frame="reference"))


def tiny() -> ModelConfig:
    """Seconds, for tests: 16 x 16 tokens of a vocabulary of 32, clips of 2 + 2 frames."""
    unet = UNetConfig(dims=(16, 24, 32), heads=(2, 3, 4), windows=(4, 4, 4), down_groups=(1, 1, 1), up_groups=(1, 1))
    return ModelConfig(world_model=WorldModelConfig(vocabulary=32, tokens=(16, 16), frames=4, past_frames=2, unet=unet))


PRESETS = {"paper": paper, "mini": mini, "tiny": tiny}


def preset(name: str) -> ModelConfig:
    """A preset by its name."""
    if name not in PRESETS:
        raise UsageError(f"--preset is one of {', '.join(PRESETS)}, got {name!r}")
    return PRESETS[name]()

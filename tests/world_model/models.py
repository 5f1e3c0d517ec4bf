"""Small world models for tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from copilot4d import presets
from copilot4d.geometry import se3
from copilot4d.world_model import Actions, UNetConfig, WorldModel, WorldModelConfig, actions_of

SMALL_UNET = UNetConfig(
    dims=(16, 24, 32), heads=(2, 3, 4), windows=(4, 4, 4), down_groups=(1, 1, 1), up_groups=(1, 1), mlp_ratio=2
)


def small_config(**changes) -> WorldModelConfig:
    """8 x 8 tokens of 11, clips of up to 4 frames; level 2 and 3 are one window each."""
    base = replace(presets.tiny().world_model, vocabulary=11, tokens=(8, 8), unet=SMALL_UNET)
    return replace(base, **changes)


def small_model(seed: int = 0, **changes) -> WorldModel:
    """A model whose every parameter matters: nothing is left at zero or one, and residuals are not scaled down."""
    torch.manual_seed(seed)
    model = WorldModel(small_config(**changes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def random_tokens(shape: tuple[int, ...], seed: int = 0, vocabulary: int = 11) -> torch.Tensor:
    return torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(seed))


def random_poses(batch: int, frames: int, seed: int = 0) -> np.ndarray:
    """(B, T, 4, 4): a drive with turns."""
    rng = np.random.default_rng(seed)
    poses = np.tile(np.eye(4), (batch, frames, 1, 1))
    for t in range(1, frames):
        step = se3.from_yaw(rng.uniform(-0.2, 0.2, batch), np.c_[rng.uniform(0.5, 2, batch), np.zeros((batch, 2))])
        poses[:, t] = poses[:, t - 1] @ step
    return poses


def random_actions(batch: int, frames: int, seed: int = 0) -> Actions:
    return actions_of(random_poses(batch, frames, seed), "own")

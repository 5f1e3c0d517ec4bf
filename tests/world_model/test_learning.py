"""Small models, trained by a plain loop, learn what they must. Minutes on two cores."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from copilot4d.geometry import se3
from copilot4d.world_model import (
    Actions,
    DiffusionConfig,
    SamplerConfig,
    UNetConfig,
    WorldModel,
    WorldModelConfig,
    actions_of,
    denoising_loss,
    draw_noise,
    make_denoising,
    rollout,
)  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
MOTIONS = np.array([(1, 0), (0, 1)])  # cells along x and y between two frames
SIDE, VOCABULARY, CELL_M = 4, 32, 4.0


def train(
    model: WorldModel, batch_of: Callable[[np.random.Generator], tuple[torch.Tensor, Actions]], steps: int, rate: float
) -> None:
    """AdamW with warm-up and cosine, Algorithm 1 with the model's own mixture of objectives."""
    config, rng = model.config, np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=1e-4, fused=True)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = (
            rate * min(1, (step + 1) / 30) * max(0.1, math.cos(math.pi / 2 * step / steps))
        )
        tokens, actions = batch_of(rng)
        generators = [torch.Generator().manual_seed(int(seed)) for seed in rng.integers(1 << 62, size=len(tokens))]
        noise = draw_noise(generators, tokens.shape[1], tokens.shape[2] * tokens.shape[3], config.vocabulary)
        task = make_denoising(
            tokens, config.diffusion.objective(rng.random()), noise, config.diffusion,
            past_frames=config.past_frames, mask_token=config.mask_token,
        )  # fmt: skip
        optimizer.zero_grad()
        denoising_loss(model, task, actions).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
    model.eval()


def test_overfits_one_clip_and_forecasts_its_future():
    torch.manual_seed(0)
    unet = UNetConfig(
        dims=(48, 64, 96), heads=(3, 4, 6), windows=(4, 4, 2), down_groups=(1, 1, 1), up_groups=(1, 1), mlp_ratio=2
    )
    model = WorldModel(WorldModelConfig(vocabulary=64, tokens=(8, 8), unet=unet))
    rng = np.random.default_rng(1)
    tokens = torch.from_numpy(rng.integers(0, 64, (1, 10, 8, 8)))
    poses = np.tile(np.eye(4), (1, 10, 1, 1))
    poses[0, :, 0, 3] = 1.3 * np.arange(10)
    actions = actions_of(poses, "own")
    train(model, lambda _: (tokens.expand(4, -1, -1, -1), actions.repeated(4)), steps=200, rate=4e-3)
    made = rollout(model, tokens[:, :5], poses[:, :5], poses[:, 5:], config=SamplerConfig(top_k=1))
    assert float((made[:, 0] == tokens[:, 5:]).float().mean()) >= 0.99


def scenes(rng: np.random.Generator, motions: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
    """Tokens (n, 2, SIDE, SIDE) of worlds that only shift as the ego moves, and poses (n, 2, 4, 4).

    What was at cell c before a motion m is at cell c - m after it; `motions` is (n, 2).
    """
    count = len(motions)
    world = rng.integers(0, VOCABULARY, (count, SIDE + 1, SIDE + 1))
    before = world[:, :SIDE, :SIDE]
    after = np.stack([world[i, x : x + SIDE, y : y + SIDE] for i, (x, y) in enumerate(motions)])
    poses = np.tile(np.eye(4), (count, 2, 1, 1))
    poses[:, 1] = se3.from_yaw(np.zeros(count), np.c_[CELL_M * motions, np.zeros(count)])
    return torch.from_numpy(np.stack([before, after], axis=1)), poses


def test_a_scene_that_only_shifts_is_predicted_and_follows_a_changed_motion():
    torch.manual_seed(0)
    unet = UNetConfig(dims=(64,), heads=(4,), windows=(SIDE,), down_groups=(2,), up_groups=())
    diffusion = DiffusionConfig(future_probability=0.9, joint_probability=0.0)
    model = WorldModel(
        WorldModelConfig(
            vocabulary=VOCABULARY, tokens=(SIDE, SIDE), frames=2, past_frames=1, unet=unet, diffusion=diffusion
        )
    )

    def batch_of(rng: np.random.Generator) -> tuple[torch.Tensor, Actions]:
        tokens, poses = scenes(rng, MOTIONS[rng.integers(len(MOTIONS), size=64)])
        return tokens, actions_of(poses, "own")

    train(model, batch_of, steps=1000, rate=2e-3)
    config = SamplerConfig(top_k=1, guidance=0)
    for motion in MOTIONS:  # the same new scenes, under each motion: what remains in view must move accordingly
        tokens, poses = scenes(np.random.default_rng(99), np.tile(motion, (200, 1)))
        made = rollout(model, tokens[:, :1], poses[:, :1], poses[:, 1:], config=config)[:, 0, 0]
        x, y = motion
        shifted = tokens[:, 0, x:, y:]  # was at (x, y) and beyond, is now at the origin and beyond
        kept = made[:, : SIDE - x, : SIDE - y]
        assert float((kept == shifted).float().mean()) > 0.95, motion

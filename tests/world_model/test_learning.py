"""Small models learn what they must, by a plain loop and by the training engine. Minutes on two cores."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from copilot4d.checkpoints.load_world_model import load_world_model
from copilot4d.datasets import open_dataset
from copilot4d.geometry import se3
from copilot4d.training import Recipe, TrainingConfig
from copilot4d.training import train as training_engine
from copilot4d.training.tasks.world_model import WorldModelTask, WorldModelTraining
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
from tests.support.real_data import unpack_drive
from tests.support.token_clips import MemoryClips
from tests.tokenizer.clouds import tiny_tokenizer

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


def real_clip(folder: Path) -> tuple[torch.Tensor, np.ndarray]:
    """Tokens (1, 10, 16, 16) and poses (1, 10, 4, 4) of ten real sweeps 0.2 s apart, each in its own frame.

    The tokenizer has random weights; its codes are features of these sweeps, so that tokens tell them apart.
    """
    drive = open_dataset(unpack_drive("train_0001", folder, sweeps=19))["train_0001"]
    sweeps = [drive[t].without_box(drive.ego_box) for t in range(0, 19, 2)]
    tokenizer = tiny_tokenizer()
    with torch.no_grad():
        features = tokenizer.encode_features(sweeps).flatten(0, 2)
        spread = torch.linspace(0, len(features) - 1, len(tokenizer.codebook.weight)).long()
        tokenizer.codebook.weight.copy_(features[features.norm(dim=-1).argsort()[spread]])
        tokens = tokenizer.encode(sweeps)
    return tokens[None], np.stack([sweep.world_from_lidar for sweep in sweeps])[None]


def test_overfits_one_real_clip_and_forecasts_its_future(tmp_path):
    tokens, poses = real_clip(tmp_path)
    assert len(tokens.unique()) >= 16
    assert (tokens[:, 5:] != tokens[:, 4:5]).float().mean() > 0.2  # copying would not do
    unet = UNetConfig(dims=(48, 64, 96), heads=(3, 4, 6), windows=(4, 4, 4), down_groups=(1, 1, 1), up_groups=(1, 1))
    config = WorldModelConfig(vocabulary=32, tokens=(16, 16), unet=unet)
    clips = MemoryClips(tokens, poses, past_frames=5, vocabulary=32)
    recipe = Recipe(batch=1, learning_rate=4e-3, warmup_steps=20, cosine_steps=280, clip_norm=5.0)
    run = TrainingConfig(recipe=recipe, run=tmp_path / "run", workers=0, precision="fp32", device="cpu",
                         tensorboard=False, evaluate_every=None, save_every=1000)  # fmt: skip
    training_engine(WorldModelTask(WorldModelTraining(world_model=config), clips), run)
    model = load_world_model(tmp_path / "run").world_model
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

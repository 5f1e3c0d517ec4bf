"""4D-Occ as published through the training engine: it overfits a clip, and a stopped run goes on."""

from __future__ import annotations

import numpy as np
import torch

from copilot4d.baselines.occupancy_4d import published_preset
from copilot4d.tokens.augmentation import AugmentationConfig
from copilot4d.training import Recipe, SampleKey, StepCounter
from copilot4d.training.tasks.occupancy_4d import OccupancyTraining
from copilot4d.training.tasks.occupancy_4d_published import PublishedOccupancyTask
from tests.support.scenes import make_drive
from tests.training.small_runs import quiet_config, state_after


def small_task(rays: int = 300) -> PublishedOccupancyTask:
    config = OccupancyTraining(
        model=published_preset("tiny"), settings=("1s",), rays_per_frame=rays,
        augmentation=AugmentationConfig(max_yaw_deg=0, mirror_probability=0.0),
    )  # fmt: skip
    return PublishedOccupancyTask(config, [make_drive(7, rings=16, azimuths=90)[2:]])


def test_it_overfits_one_clip():
    """After 60 steps the depth error on the rays that end in the region is a third of what it was."""
    task = small_task()
    batch = task.collate([task.sample(SampleKey(seed=1, step=0, index=0, batch=1))])
    torch.manual_seed(0)
    model = task.build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    errors = []
    for step in range(60):
        losses = task.loss(model, batch, StepCounter(seed=0, step=step, indices=(0,)))
        optimizer.zero_grad()
        losses["total"].backward()
        optimizer.step()
        errors.append(losses["surface"].item())
    assert np.mean(errors[-3:]) < errors[0] / 3


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    recipe = Recipe(batch=2, warmup_steps=1, cosine_steps=3, clip_norm=1.0)
    whole = state_after(small_task(40), quiet_config(tmp_path / "whole", recipe))
    state_after(small_task(40), quiet_config(tmp_path / "parts", recipe, max_steps=2))
    resumed = state_after(small_task(40), quiet_config(tmp_path / "parts", recipe))
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())

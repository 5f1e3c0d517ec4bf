"""Runs of a few steps: a configuration without anything that a test does not ask for, and what a run ends with."""

from __future__ import annotations

from pathlib import Path

import torch

from copilot4d.training import Recipe, TrainingConfig, TrainingTask, open_checkpoint, train
from tests.training.toy import Heard

QUIET = {"workers": 0, "precision": "fp32", "device": "cpu", "tensorboard": False, "save_every": 99, "log_every": 1,
         "evaluate_every": None, "seed": 3}  # fmt: skip


def quiet_config(run: Path, recipe: Recipe, **changes) -> TrainingConfig:
    return TrainingConfig(recipe=recipe, run=run, **(QUIET | changes))


def state_after(task: TrainingTask, config: TrainingConfig) -> dict[str, torch.Tensor]:
    """The model's parameters and buffers in the last checkpoint."""
    return open_checkpoint(train(task, config, Heard()).checkpoint).tensors("model")

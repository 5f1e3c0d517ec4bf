"""What the model cards say: a summary of each part, its training as its checkpoint records it, its limits."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from copilot4d.baselines.occupancy_4d import Occupancy4dConfig
from copilot4d.checkpoints.checkpoint import Checkpoint
from copilot4d.checkpoints.depth_parts import depth_selector_training
from copilot4d.checkpoints.model_card import RESEARCH_ONLY, ModelCard, Score
from copilot4d.cli.options.export import Options
from copilot4d.geometry import VoxelGrid
from copilot4d.tokenizer.config import TokenizerConfig
from copilot4d.world_model import WorldModelConfig

METRICS = {  # of the best checkpoint, by the run's task
    "tokenizer": "ROI Chamfer (m²)",
    "world_model": "loss (nats per token)",
    "occupancy_4d": "ROI Chamfer (m²)",
}
SELECTOR_SUMMARY = (
    "A depth selector. For each ray of a forecast it chooses the depth: rendered from the predicted tokens, measured "
    "by the past sweeps, or predicted by an occupancy network if the model has one."
)
TOKEN_FRAMES = {"own": "each sweep's own frame", "reference": "the frame of the newest past sweep"}


def tokenizer_summary(config: TokenizerConfig) -> str:
    """What a tokenizer does."""
    rows, columns = config.tokens
    return (
        f"A tokenizer for lidar sweeps. It encodes a sweep ({_size(config.grid)} around the sensor) as "
        f"{rows} x {columns} tokens of {config.vocabulary} codes, and decodes tokens to depths along any ray."
    )


def world_model_summary(config: WorldModelConfig) -> str:
    """What a world model does."""
    return (
        f"A lidar world model. It predicts the tokens of the next sweeps, given {config.past_frames} past sweeps and "
        f"the ego's motion. It was trained on clips of {config.frames} frames, with tokens in "
        f"{TOKEN_FRAMES[config.token_frame]}."
    )


def world_model_limits(grid: VoxelGrid) -> str:
    """Where a world model on this grid predicts, and what else its user must know."""
    return (
        f"- It predicts within {min(grid.maximum[0], grid.maximum[1]):g} m of the ego's starting position. Farther "
        "out, a depth selector (if the model has one) repeats what the past sweeps measured.\n"
        "- Expect larger errors with another sensor, frame rate or place than in the training data.\n"
        f"- {RESEARCH_ONLY}"
    )


def occupancy_summary(config: Occupancy4dConfig) -> str:
    """What an occupancy network does."""
    cells = " x ".join(f"{100 * size:g}" for size in config.grid.cell_size)
    return (
        f"It reads {config.past_frames} past sweeps as voxels of {cells} cm ({_size(config.grid)} around the newest "
        f"one), and predicts occupancy for {config.future_frames} future frames and depths along any ray."
    )


def selector_card(options: Options, home: Path) -> ModelCard:
    """What is known about the depth selector in this run or model folder."""
    trained = depth_selector_training(home)
    return replace(
        card(options, "depth selector", None, SELECTOR_SUMMARY),
        steps=int(trained["steps"]), samples=int(trained["samples"]), training_s=trained["training_s"],
    )  # fmt: skip


def card(
    options: Options, part: str, checkpoint: Checkpoint | None, summary: str, limits: str = RESEARCH_ONLY
) -> ModelCard:
    """What is known about one part of a model: from its checkpoint, and from the options."""
    state: Mapping[str, Any] = {} if checkpoint is None else checkpoint.state
    content: Mapping[str, Any] = {} if checkpoint is None else checkpoint.content
    batch = content.get("config", {}).get("recipe", {}).get("batch", 0)
    steps, score = int(state.get("step", 0)), state.get("score")
    return ModelCard(
        title=f"{options.title or model_name(options)}: {part}",
        summary=summary,
        trained_on=options.trained_on or ("not stated",),
        steps=steps,
        samples=steps * int(batch),
        training_s=float(state.get("seconds", 0.0)),
        hardware=options.hardware or f"{platform.machine()}, {sys.platform}",
        scores=[] if score is None else [_score(float(score), str(content.get("task")))],
        limits=limits,
        command="\n".join(options.command),
        license=options.license,
    )


def model_name(options: Options) -> str:
    """The name that scores and pictures use."""
    return options.name or options.out.resolve().name


def _score(value: float, task: str) -> Score:
    metric = METRICS.get(task, "validation score")
    return Score(metric=metric, value=value, dataset="held-out data of the run", protocol="the run's own score")


def _size(region: VoxelGrid) -> str:
    return " x ".join(f"{b - a:g} m" for a, b in zip(region.minimum, region.maximum, strict=True))

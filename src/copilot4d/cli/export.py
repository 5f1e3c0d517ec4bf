"""`copilot4d export`: a trained tokenizer and world model as one model folder."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from copilot4d.cli.console import console, next_step
from copilot4d.cli.outputs import check_output_folder
from copilot4d.model_folder import ModelCards, copy_gate_in, copy_gate_training, join, run_of, save_model
from copilot4d.training.checkpoint import Checkpoint
from copilot4d.training.load_tokenizer import load_tokenizer
from copilot4d.training.load_world_model import load_world_model
from copilot4d.training.pretrained import ModelCard, Score

DTYPES = {"fp32": torch.float32, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Put a trained tokenizer and its world model into one folder that can be shared and forecast with. Example:

        copilot4d export --tokenizer runs/tokenizer --world-model runs/world --out models/mine --trained-on "my logs"

    The best checkpoints are taken, with averaged weights where there are, and the copy gate that lies in the world
    model's run. What only training needs stays behind.
    """

    tokenizer: Path
    """The tokenizer's run, checkpoint or folder."""
    world_model: Path
    """The world model's run, checkpoint or folder; it must have been trained on that tokenizer's tokens."""
    out: Path
    """The model folder to write."""
    name: str | None = None
    """What scores and pictures call the model; by default the folder's name."""
    title: str | None = None
    """The heading of its model cards; by default the name."""
    trained_on: tuple[str, ...] = ()
    """The data, in words, for the model cards."""
    command: tuple[str, ...] = ()
    """The commands that trained it, for the model cards."""
    hardware: str = ""
    """What it was trained on, for the model cards; by default this machine."""
    license: str = "apache-2.0"
    """Of the weights."""
    precision: Literal["fp32", "fp16"] = "fp32"
    """Of the weights in the files. fp16 halves them; some tokens then differ from those of the training."""


def run(options: Options) -> int:
    """Run the verb."""
    check_output_folder("--out", options.out)
    tokenizer, world_model = load_tokenizer(options.tokenizer), load_world_model(options.world_model)
    name = options.name or options.out.resolve().name
    joined = join(tokenizer, world_model, name=name)  # refuses a tokenizer that the world model was not trained with
    gate = copy_gate_in(_home_of_gate(options.world_model))
    region, frames = joined.tokenizer.config.grid, joined.world_model.config.frames
    size = " x ".join(f"{b - a:g} m" for a, b in zip(region.minimum, region.maximum, strict=True))
    rows, columns = joined.tokenizer.config.tokens
    cards = ModelCards(
        tokenizer=card(
            options, "tokenizer", tokenizer.checkpoint,
            f"Turns a lidar sweep ({size} around the sensor) into {rows} x {columns} tokens of "
            f"{joined.tokenizer.config.vocabulary} codes, and tokens into depths along any ray.",
        ),
        world_model=card(
            options, "world model", world_model.checkpoint,
            f"Predicts the tokens of the next sweeps, given {joined.world_model.config.past_frames} past ones and the "
            f"ego's motion; clips of {frames} frames, tokens in the frame '{joined.world_model.config.token_frame}'.",
        ),
        copy_gate=None if gate is None else gate_card(options),
    )  # fmt: skip
    save_model(
        options.out, joined.tokenizer, joined.world_model, cards=cards, name=name, dtype=DTYPES[options.precision],
        copy_gate=gate,
    )  # fmt: skip
    total = sum(path.stat().st_size for path in options.out.rglob("*") if path.is_file())
    console.print(f"Wrote {options.out}: {total / 1e6:.1f} MB in {options.precision}", markup=False, highlight=False)
    place = str(options.out)
    model = shlex.quote(place if "/" in place else f"./{place}")  # a bare word could be the name of a shipped model
    next_step(f"copilot4d evaluate --model {model} --data street-v1/val --setting 1s --every 12 --out scores.json")
    return 0


def _home_of_gate(world_model: Path) -> Path:
    """Where the copy gate of a world model lies: in its run, or in the model folder whose world model is named."""
    return run_of(world_model) if not (world_model / "config.json").is_file() else world_model.resolve().parent


def gate_card(options: Options) -> ModelCard:
    """What is known about the copy gate."""
    trained = copy_gate_training(_home_of_gate(options.world_model))
    summary = "Says of each ray whether to believe what is imagined along it or what the past measured."
    return replace(
        card(options, "copy gate", None, summary), steps=int(trained["steps"]), samples=int(trained["samples"]),
        training_s=trained["training_s"],
    )  # fmt: skip


def card(options: Options, half: str, checkpoint: Checkpoint | None, summary: str) -> ModelCard:
    """What is known about one half: from its checkpoint, and from the options."""
    state: Mapping[str, Any] = {} if checkpoint is None else checkpoint.state
    config: Mapping[str, Any] = {} if checkpoint is None else checkpoint.content.get("config", {})
    batch = config.get("recipe", {}).get("batch", 0)
    steps, score = int(state.get("step", 0)), state.get("score")
    return ModelCard(
        title=f"{options.title or options.name or options.out.resolve().name}: {half}",
        summary=summary,
        trained_on=options.trained_on or ("not stated",),
        steps=steps,
        samples=steps * int(batch),
        training_s=float(state.get("seconds", 0.0)),
        hardware=options.hardware or f"{platform.machine()}, {sys.platform}",
        scores=[] if score is None else [_score(float(score))],
        command="\n".join(options.command),
        license=options.license,
    )


def _score(value: float) -> Score:
    return Score(metric="validation", value=value, dataset="held-out data of the run", protocol="the run's own score")

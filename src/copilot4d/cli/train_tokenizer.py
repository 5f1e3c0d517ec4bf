"""`copilot4d train tokenizer`: learn to turn sweeps into tokens and back."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from copilot4d.cli.console import console, next_step
from copilot4d.config import from_mapping, read_yaml, to_mapping
from copilot4d.datasets import open_dataset
from copilot4d.errors import UsageError
from copilot4d.geometry import Drive
from copilot4d.presets import preset
from copilot4d.tokenizer.config import Mode, TokenizerConfig
from copilot4d.training import LogRecord, Recipe, TrainingConfig, paper_recipe, train
from copilot4d.training.augmentation import AugmentationConfig
from copilot4d.training.precision import PrecisionName
from copilot4d.training.tokenizer_task import TokenizerTask, TokenizerTraining

MINI_RECIPE = Recipe(batch=8, learning_rate=1e-3, warmup_steps=200, cosine_steps=5800, clip_norm=0.1)
TINY_RECIPE = Recipe(batch=2, learning_rate=3e-3, warmup_steps=20, cosine_steps=180, clip_norm=0.1)
RAYS_PER_SWEEP = {"paper": 16384, "mini": 2048, "tiny": 1024}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Learn to turn sweeps into tokens and back. No labels are needed, only sweeps.

    The run's folder holds checkpoints, a log, TensorBoard events and pictures; the same command goes on where an
    interrupted run stopped. Example:

        copilot4d train tokenizer --preset mini --data path/to/kitti --held-out train_0011 --run runs/tokenizer
    """

    data: tuple[Path, ...]
    """One or several data sets; the format of each is recognised."""
    run: Path
    """The run's folder. A run that is already there goes on."""
    preset: Literal["paper", "mini", "tiny"] = "mini"
    """The sizes: paper (13M parameters), mini (a 2-core machine), tiny (tests)."""
    mode: Mode | None = None
    """The paper's ablations: no_skipping (no coarse branch), voxel_centres (no rendering)."""
    config: Path | None = None
    """YAML with changes to the preset's tokenizer, e.g. `rendering: {step_m: 0.05}`."""
    drives: tuple[str, ...] = ()
    """Train only on these drives."""
    split: str | None = None
    """Train only on the drives of this split."""
    held_out: tuple[str, ...] = ()
    """Drives never trained on, on which checkpoints are scored."""
    held_out_sweeps: int = 8
    """How many sweeps of those, evenly spread, each scoring looks at."""
    steps: int | None = None
    """Updates of the whole schedule, warm-up and cosine; by default the preset's."""
    batch: int | None = None
    """Sweeps of one update, over all processes."""
    learning_rate: float | None = None
    """The peak; by default the preset's."""
    rays_per_sweep: int | None = None
    """Rays supervised at each visit of a sweep."""
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    """Mirrors and turns."""
    ema_decay: float | None = None
    """Also keep a moving average of the weights, and use it for scoring."""
    init_from: Path | None = None
    """Start from the weights of this run or checkpoint."""
    max_steps: int | None = None
    """Stop earlier, without changing the schedule."""
    accumulation: int = 1
    """Passes that share one update: less memory."""
    workers: int = 1
    """Loader processes."""
    device: str = "auto"
    """cpu, cuda, cuda:1."""
    precision: PrecisionName = "auto"
    """auto probes whether bf16 works."""
    seed: int = 0
    """Of weights, data order, augmentation, rays."""
    log_every: int = 20
    """Steps between two lines of the log."""
    save_every: int = 500
    """Steps between two checkpoints."""
    evaluate_every: int = 500
    """Steps between two scorings of the held-out drives."""
    pictures_every: int | None = 500
    """Steps between two pictures of them."""
    dry_run: bool = False
    """Only say what the run would cost."""


class Shown:
    """Prints what the loop reports."""

    def on_log(self, record: LogRecord) -> None:
        """A progress line."""
        console.print(record.line(), markup=False, highlight=False)

    def on_message(self, message: str) -> None:
        """Something to know."""
        console.print(message, markup=False, highlight=False)


def run(options: Options) -> int:
    """Run the verb."""
    training = TokenizerTraining(
        tokenizer=tokenizer_config(options),
        rays_per_sweep=options.rays_per_sweep or RAYS_PER_SWEEP[options.preset],
        augmentation=options.augmentation,
    )
    drives, held_out = choose_drives(options)
    task = TokenizerTask(training, drives, held_out, held_out_sweeps=options.held_out_sweeps)
    console.print(
        f"{len(task.items)} sweeps of {len(drives)} drives to learn from, {len(task.held_out)} sweeps of "
        f"{len(held_out)} drives to score on",
        highlight=False,
    )
    result = train(task, training_config(options), Shown())
    if result.checkpoint is not None:
        console.print(f"\n{result.step} steps done; the newest checkpoint is {result.checkpoint}", highlight=False)
        drive = shlex.quote((held_out or drives)[0].name)
        data = shlex.quote(str(options.data[0]))
        next_step(f"copilot4d evaluate-tokenizer --model {options.run} --data {data} --drives {drive} --out scores")
    return result.exit_code


def tokenizer_config(options: Options) -> TokenizerConfig:
    """The preset's tokenizer with the changes that were asked for."""
    config = preset(options.preset).tokenizer
    if options.config is not None:
        changed = merged(to_mapping(config), read_yaml(options.config))
        config = from_mapping(TokenizerConfig, changed, source=options.config)
    return config if options.mode is None else dataclasses.replace(config, mode=options.mode)


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with the values of `changes`, mapping by mapping."""
    result = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        result[key] = merged(base[key], value) if both else value
    return result


def training_config(options: Options) -> TrainingConfig:
    """The preset's recipe with the changes that were asked for."""
    recipe = {"paper": paper_recipe("tokenizer"), "mini": MINI_RECIPE, "tiny": TINY_RECIPE}[options.preset]
    changes: dict[str, Any] = {"ema_decay": options.ema_decay}
    if options.steps is not None:
        warmup = min(recipe.warmup_steps, options.steps // 10)
        changes |= {"warmup_steps": warmup, "cosine_steps": max(1, options.steps - warmup)}
    changes |= {n: v for n in ("batch", "learning_rate") if (v := getattr(options, n)) is not None}
    passed = (
        "run", "seed", "max_steps", "accumulation", "workers", "device", "precision", "init_from", "log_every",
        "save_every", "evaluate_every", "pictures_every", "dry_run",
    )  # fmt: skip
    return TrainingConfig(
        recipe=dataclasses.replace(recipe, **changes), **{name: getattr(options, name) for name in passed}
    )


def choose_drives(options: Options) -> tuple[list[Drive], list[Drive]]:
    """Drives to train on, and drives to score on; no drive is both."""
    train_on: list[Drive] = []
    held_out: list[Drive] = []
    known: set[str] = set()
    for path in options.data:
        dataset = open_dataset(path)
        known |= set(dataset.names)
        members = set(dataset.split(options.split).names) if options.split is not None else set(dataset.names)
        for name in dataset.names:
            if name in options.held_out:
                held_out.append(dataset[name])
            elif name in members and (not options.drives or name in options.drives):
                train_on.append(dataset[name])
    for flag, names in (("--held-out", options.held_out), ("--drives", options.drives)):
        missing = [name for name in names if name not in known]
        if missing:
            raise UsageError(f"{flag} {' '.join(missing)}: no such drive; there are {', '.join(sorted(known)[:12])}")
    if not train_on:
        raise UsageError("no drive is left to train on; look at --drives, --split and --held-out")
    return train_on, held_out

"""What all `copilot4d train ...` verbs share: the options of a run, the changed preset, the lines that are shown."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from copilot4d.cli.console import console
from copilot4d.config import from_mapping, read_yaml, to_mapping
from copilot4d.training import LogRecord, Recipe, TrainingConfig
from copilot4d.training.precision import PrecisionName

C = TypeVar("C")
PASSED = (
    "run", "seed", "accumulation", "workers", "loader_timeout_s", "device", "precision", "compile", "parallel",
    "init_from", "log_every", "save_every", "evaluate_every", "pictures_every", "keep_last", "dry_run",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run is carried out, whatever it trains."""

    run: Path
    """The run's folder. A run that is already there goes on."""
    preset: Literal["paper", "mini", "tiny"] = "mini"
    """Sizes and recipe: paper, mini (a 2-core machine), tiny (tests)."""
    config: Path | None = None
    """YAML with changes to the preset's model."""
    updates: int | None = None
    """Updates of the whole schedule, warm-up and cosine; by default the preset's."""
    batch: int | None = None
    """Samples of one update, over all processes."""
    learning_rate: float | None = None
    """The peak; by default the preset's."""
    ema_decay: float | None = None
    """Also keep a moving average of the weights, and use it for scoring."""
    init_from: Path | None = None
    """Start from the weights of this run or checkpoint."""
    max_updates: int | None = None
    """Stop earlier, without changing the schedule."""
    accumulation: int = 1
    """Passes that share one update: less memory."""
    workers: int = 1
    """Loader processes."""
    loader_timeout_s: float = 600.0
    """Seconds without a batch after which the run saves, ends, and names the loader process that is stuck; 0: never."""
    device: str = "auto"
    """cpu, cuda, cuda:1."""
    precision: PrecisionName = "auto"
    """auto probes whether bf16 works."""
    compile: bool = False
    """Compile the blocks with torch.compile: worth it on a GPU."""
    parallel: Literal["ddp", "fully_shard"] = "ddp"
    """How processes of torchrun share the model."""
    seed: int = 0
    """Of weights, data order, augmentation, noise."""
    log_every: int = 20
    """Updates between two lines of the log."""
    save_every: int = 500
    """Updates between two checkpoints."""
    keep_last: int = 3
    """Checkpoints that stay, beside the best."""
    evaluate_every: int | None = 500
    """Updates between two scorings of the held-out data."""
    pictures_every: int | None = 500
    """Updates between two pictures of it."""
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


def training_config(options: RunOptions, recipe: Recipe) -> TrainingConfig:
    """The preset's recipe with the changes that were asked for."""
    changes: dict[str, Any] = {"ema_decay": options.ema_decay}
    if options.updates is not None:
        warmup = min(recipe.warmup_steps, options.updates // 10)
        changes |= {"warmup_steps": warmup, "cosine_steps": max(1, options.updates - warmup)}
    changes |= {n: v for n in ("batch", "learning_rate") if (v := getattr(options, n)) is not None}
    return TrainingConfig(
        recipe=dataclasses.replace(recipe, **changes),
        max_steps=options.max_updates,
        **{name: getattr(options, name) for name in PASSED},
    )


def with_changes(config: C, file: Path | None) -> C:
    """A preset's configuration with the values of a YAML file."""
    if file is None:
        return config
    return from_mapping(type(config), merged(to_mapping(config), read_yaml(file)), source=file)


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with the values of `changes`, mapping by mapping."""
    result = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        result[key] = merged(base[key], value) if both else value
    return result

"""What all `copilot4d train ...` verbs share: the options of a run, the changed preset, the lines that are shown."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, TypeVar

from copilot4d.cli.console import console
from copilot4d.cli.options.training_options import RunOptions
from copilot4d.config import from_mapping, read_yaml, to_mapping
from copilot4d.training import LogRecord, Recipe, TrainingConfig

C = TypeVar("C")
PASSED = (
    "run", "seed", "accumulation", "workers", "loader_timeout_s", "device", "precision", "compile", "parallel",
    "init_from", "log_every", "save_every", "evaluate_every", "pictures_every", "keep_last", "checkpoints_to",
    "dry_run",
)  # fmt: skip


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

"""From a run's folder to a model in use: which checkpoint, its configuration, its weights. For every kind of model."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from torch import nn

from copilot4d.config import from_mapping
from copilot4d.errors import DataError, UsageError
from copilot4d.training.checkpoint import Checkpoint, CheckpointStore, open_checkpoint

Config = TypeVar("Config")


def best_checkpoint(folder: Path) -> Checkpoint:
    """A checkpoint folder itself, or a run's best checkpoint, or its newest where none was scored."""
    if not (folder / "checkpoints").is_dir():
        return open_checkpoint(folder)
    store = CheckpointStore(folder=folder / "checkpoints")
    best = store.best_step()
    found = store.newest() if best is None else open_checkpoint(store.path(best))
    if found is None:
        raise DataError(folder, "checkpoints", expected="an intact checkpoint", found="none",
                        remedy="pass a run that has saved one")  # fmt: skip
    return found


def task_config(checkpoint: Checkpoint, kind: type[Config], *, task: str, section: str, verb: str) -> Config:
    """The model's configuration as the task recorded it, below `section`."""
    if checkpoint.content.get("task") != task:
        found = checkpoint.content.get("task")
        raise UsageError(f"{checkpoint.path} is of task {found!r}, not {task!r}: pass a run of `copilot4d {verb}`")
    manifest = checkpoint.path / "manifest.json"
    stated = checkpoint.content.get("config", {}).get("task", {}).get(section)
    if not isinstance(stated, dict):
        raise DataError(manifest, f"config.task.{section}", expected="a configuration", found="none",
                        remedy=f"pass a checkpoint that `copilot4d {verb}` wrote")  # fmt: skip
    return from_mapping(kind, stated, source=manifest)


def fill(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's weights into a model: the averaged ones where there are."""
    tensors = checkpoint.tensors("model")
    if checkpoint.has("ema"):
        tensors |= checkpoint.tensors("ema")
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        found = " ".join(str(error).split())[:300]
        raise DataError(checkpoint.path / "model.safetensors", "weights", expected="those of its own configuration",
                        found=found, remedy="copy the checkpoint again") from error  # fmt: skip

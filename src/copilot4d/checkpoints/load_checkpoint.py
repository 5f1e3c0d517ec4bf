"""From a run's folder to a model in use: which checkpoint, its configuration, its weights. For every kind of model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import nn

from copilot4d.checkpoints.checkpoint import Checkpoint, CheckpointStore, open_checkpoint
from copilot4d.checkpoints.pretrained import load_pretrained
from copilot4d.checkpoints.tensors import named_state
from copilot4d.checkpoints.weights_check import check_header, check_names_and_shapes
from copilot4d.config import from_mapping
from copilot4d.errors import DataError, UsageError

Config = TypeVar("Config")
Network = TypeVar("Network", bound=nn.Module)


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


def build(network: Callable[[Config], Network], config: Config, checkpoint: Checkpoint) -> Network:
    """The network of a configuration with a checkpoint's weights, which are compared before it is built."""
    check_header(lambda: network(config), checkpoint.path / "model.safetensors")
    model = network(config)
    fill(model, checkpoint)
    return model


def fill(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's weights into a model: the averaged ones where there are."""
    tensors = checkpoint.tensors("model")
    if checkpoint.has("ema"):
        tensors |= checkpoint.tensors("ema")
    check_names_and_shapes(dict(named_state(model)), tensors, checkpoint.path / "model.safetensors")
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        found = " ".join(str(error).split())[:300]
        raise DataError(checkpoint.path / "model.safetensors", "weights", expected="those of its own configuration",
                        found=found, remedy="copy the checkpoint again") from error  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Loaded(Generic[Network]):
    """A network in evaluation mode, and where it came from."""

    network: Network
    path: Path  # the checkpoint or the shared folder
    conventions: Mapping[str, Any]  # what it was trained with, as its checkpoint or folder states
    checkpoint: Checkpoint | None  # None for a shared folder


def load_network(
    folder: str | Path, make: Callable[[Config], Network], kind: type[Config], *, task: str, section: str, verb: str
) -> Loaded[Network]:
    """From a checkpoint, from a run (its best checkpoint, or the newest where none was scored), or from a folder of
    `save_pretrained`. Averaged weights where there are.

    make: the network of a configuration, which is of this kind. task: of runs, and the kind of shared folders.
    section: where a run's configuration has the network's. verb: that trains it, for messages.
    """
    folder = Path(folder)
    if (folder / "config.json").is_file():
        shared = load_pretrained(folder, kind=task)
        network = shared.build(make, from_mapping(kind, shared.config, source=folder / "config.json"))
        return Loaded(network=network.eval(), path=folder, conventions=shared.conventions, checkpoint=None)
    checkpoint = best_checkpoint(folder)
    network = build(make, task_config(checkpoint, kind, task=task, section=section, verb=verb), checkpoint)
    conventions = checkpoint.content.get("conventions", {})
    return Loaded(network=network.eval(), path=checkpoint.path, conventions=conventions, checkpoint=checkpoint)

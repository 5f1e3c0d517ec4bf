"""A trained world model from its run, its checkpoint, or the folder in which it was shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from copilot4d.config import from_mapping
from copilot4d.errors import DataError, UsageError
from copilot4d.training.checkpoint import Checkpoint, CheckpointStore, open_checkpoint
from copilot4d.training.distributed import World
from copilot4d.training.pretrained import load_pretrained
from copilot4d.training.state import load_model
from copilot4d.world_model import WorldModel, WorldModelConfig


@dataclass(frozen=True, kw_only=True)
class LoadedWorldModel:
    """A world model in evaluation mode, and where it came from."""

    world_model: WorldModel
    path: Path  # the checkpoint or the shared folder
    tokenizer_sha256: str | None  # of the tokenizer whose tokens it was trained on
    checkpoint: Checkpoint | None  # None for a shared folder

    @property
    def step(self) -> int | None:
        """Updates that it was trained for, where that is known."""
        return None if self.checkpoint is None else self.checkpoint.step


def load_world_model(folder: str | Path) -> LoadedWorldModel:
    """From a checkpoint, from a run (its best checkpoint, or the newest where none was scored), or from a folder of
    `save_pretrained`. Averaged weights where there are.
    """
    folder = Path(folder)
    if (folder / "config.json").is_file():
        shared = load_pretrained(folder, kind="world_model")
        model = WorldModel(from_mapping(WorldModelConfig, shared.config, source=folder / "config.json"))
        shared.fill(model)
        return LoadedWorldModel(
            world_model=model.eval(), path=folder, tokenizer_sha256=_sha256(shared.conventions), checkpoint=None
        )
    checkpoint = best_checkpoint(folder)
    model = WorldModel(_config(checkpoint))
    tensors = checkpoint.tensors("model")
    if checkpoint.has("ema"):
        tensors |= checkpoint.tensors("ema")
    load_model(model, tensors, World(device=torch.device("cpu")), checkpoint)
    conventions = checkpoint.content.get("conventions", {})
    return LoadedWorldModel(
        world_model=model.eval(),
        path=checkpoint.path,
        tokenizer_sha256=_sha256(conventions),
        checkpoint=checkpoint,
    )


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


def _config(checkpoint: Checkpoint) -> WorldModelConfig:
    if checkpoint.content.get("task") != "world_model":
        raise UsageError(f"{checkpoint.path} holds a {checkpoint.content.get('task')}, not a world model")
    stated: Mapping[str, Any] = checkpoint.content.get("config", {}).get("task", {})
    config = stated.get("world_model")
    if not isinstance(config, dict):
        raise DataError(checkpoint.path / "manifest.json", "config.task.world_model", expected="a configuration",
                        found="none", remedy="pass a checkpoint that `copilot4d train world-model` wrote")  # fmt: skip
    return from_mapping(WorldModelConfig, config, source=checkpoint.path / "manifest.json")


def _sha256(conventions: Mapping[str, Any]) -> str | None:
    stated = conventions.get("tokenizer_sha256")
    return stated if isinstance(stated, str) else None

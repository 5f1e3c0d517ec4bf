"""A trained world model from its run, its checkpoint, or the folder in which it was shared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copilot4d.checkpoints.checkpoint import Checkpoint
from copilot4d.checkpoints.load_checkpoint import load_network
from copilot4d.errors import DataError
from copilot4d.world_model import WorldModel, WorldModelConfig


@dataclass(frozen=True, kw_only=True)
class LoadedWorldModel:
    """A world model in evaluation mode, and where it came from."""

    world_model: WorldModel
    path: Path  # the checkpoint or the shared folder
    tokenizer_sha256: str | None  # of the tokenizer whose tokens it was trained on
    intervals_s: tuple[float, ...]  # seconds between the frames that it was trained on; empty where that is not known
    checkpoint: Checkpoint | None  # None for a shared folder

    @property
    def step(self) -> int | None:
        """Updates that it was trained for, where that is known."""
        return None if self.checkpoint is None else self.checkpoint.step


def load_world_model(folder: str | Path) -> LoadedWorldModel:
    """From a checkpoint, from a run (its best checkpoint, or the newest where none was scored), or from a folder of
    `save_pretrained`. Averaged weights where there are.
    """
    loaded = load_network(
        folder, WorldModel, WorldModelConfig, task="world_model", section="world_model", verb="train world-model"
    )
    return LoadedWorldModel(
        world_model=loaded.network, path=loaded.path, tokenizer_sha256=_sha256(loaded.conventions),
        checkpoint=loaded.checkpoint,
        intervals_s=checked_intervals(loaded.conventions.get("intervals_s", []), loaded.path),
    )  # fmt: skip


def _sha256(conventions: Mapping[str, Any]) -> str | None:
    stated = conventions.get("tokenizer_sha256")
    return stated if isinstance(stated, str) else None


def checked_intervals(stated: Any, place: Path) -> tuple[float, ...]:
    """Intervals in seconds, as a checkpoint or a model folder states them; DataError where they are none."""
    numbers: list[Any] = stated if isinstance(stated, list) else [stated]
    known = all(isinstance(s, (int, float)) and not isinstance(s, bool) and 0 < s < math.inf for s in numbers)
    if not isinstance(stated, list) or not known:
        raise DataError(
            place, "intervals_s", expected="a list of seconds between frames, such as [0.2, 0.6]",
            found=repr(stated)[:60], remedy="write those of the clips that it was trained on, or leave them out",
        )  # fmt: skip
    return tuple(float(seconds) for seconds in numbers)

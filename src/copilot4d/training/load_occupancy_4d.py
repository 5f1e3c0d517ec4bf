"""A trained 4D-Occ forecaster from its run or checkpoint."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from copilot4d.baselines.occupancy_4d import Occupancy4d, Occupancy4dConfig, Occupancy4dForecaster
from copilot4d.baselines.occupancy_4d.config import DepthKind
from copilot4d.config import from_mapping
from copilot4d.errors import DataError, UsageError
from copilot4d.training.load_world_model import best_checkpoint


def load_occupancy_4d(folder: str | Path, *, depth: DepthKind | None = None) -> Occupancy4dForecaster:
    """From a checkpoint, or from a run: its best checkpoint, or the newest where none was scored. Averaged weights
    where there are.

    depth: what to answer, where it should not be what the run's configuration says; then part of the name.
    """
    checkpoint = best_checkpoint(Path(folder))
    if checkpoint.content.get("task") != "occupancy_4d":
        raise UsageError(f"{checkpoint.path} holds a {checkpoint.content.get('task')}, not an occupancy_4d")
    stated = checkpoint.content.get("config", {}).get("task", {}).get("model")
    if not isinstance(stated, dict):
        raise DataError(checkpoint.path / "manifest.json", "config.task.model", expected="a configuration",
                        found="none", remedy="pass a run of `copilot4d train occupancy-4d`")  # fmt: skip
    config = from_mapping(Occupancy4dConfig, stated, source=checkpoint.path / "manifest.json")
    if depth is not None:
        config = dataclasses.replace(config, depth=depth)
    model = Occupancy4d(config)
    tensors = checkpoint.tensors("model")
    if checkpoint.has("ema"):
        tensors |= checkpoint.tensors("ema")
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        found = " ".join(str(error).split())[:300]
        raise DataError(checkpoint.path / "model.safetensors", "weights", expected="those of its own configuration",
                        found=found, remedy="copy the checkpoint again") from error  # fmt: skip
    return Occupancy4dForecaster(model, name="occupancy_4d" if depth is None else f"occupancy_4d_{depth}")

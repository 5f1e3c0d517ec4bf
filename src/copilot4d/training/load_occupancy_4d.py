"""A trained 4D-Occ forecaster from its run or checkpoint."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from copilot4d.baselines.occupancy_4d import Occupancy4d, Occupancy4dConfig, Occupancy4dForecaster
from copilot4d.baselines.occupancy_4d.config import DepthKind
from copilot4d.training.load_checkpoint import best_checkpoint, fill, task_config


def load_occupancy_4d(folder: str | Path, *, depth: DepthKind | None = None) -> Occupancy4dForecaster:
    """From a checkpoint, or from a run: its best checkpoint, or the newest where none was scored. Averaged weights
    where there are.

    depth: what to answer, where it should not be what the run's configuration says; then part of the name.
    """
    checkpoint = best_checkpoint(Path(folder))
    config = task_config(checkpoint, Occupancy4dConfig, task="occupancy_4d", section="model", verb="train occupancy-4d")
    if depth is not None:
        config = dataclasses.replace(config, depth=depth)
    model = Occupancy4d(config)
    fill(model, checkpoint)
    return Occupancy4dForecaster(model, name="occupancy_4d" if depth is None else f"occupancy_4d_{depth}")

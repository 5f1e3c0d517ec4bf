"""A trained 4D-Occ, ours or the published one, from its run, its checkpoint, or a shared folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from copilot4d.baselines.occupancy_4d import (
    Occupancy4d,
    Occupancy4dConfig,
    Occupancy4dForecaster,
    PublishedOccupancy4d,
    PublishedOccupancy4dConfig,
)
from copilot4d.baselines.occupancy_4d.config import DepthKind
from copilot4d.checkpoints.checkpoint import Checkpoint
from copilot4d.checkpoints.load_checkpoint import load_network

KIND = "occupancy_4d"  # of shared folders, and the task of runs: our variant
PUBLISHED_KIND = "4d_occ"  # the authors' network


@dataclass(frozen=True, kw_only=True)
class LoadedOccupancy4d:
    """A network in evaluation mode, and where it came from."""

    model: Occupancy4d
    checkpoint: Checkpoint | None  # None for a shared folder


def load_occupancy_4d_network(folder: str | Path) -> LoadedOccupancy4d:
    """From a checkpoint, from a run (its best checkpoint, or the newest where none was scored), or from a folder of
    `save_pretrained`. Averaged weights where there are.
    """
    loaded = load_network(folder, Occupancy4d, Occupancy4dConfig, task=KIND, section="model", verb="train occupancy-4d")
    return LoadedOccupancy4d(model=loaded.network, checkpoint=loaded.checkpoint)


def load_occupancy_4d(folder: str | Path, *, depth: DepthKind | None = None) -> Occupancy4dForecaster:
    """The network of a run, checkpoint or shared folder, to forecast with. depth: see `Occupancy4dForecaster`."""
    return Occupancy4dForecaster(load_occupancy_4d_network(folder).model, name=KIND, depth=depth)


def load_published_occupancy_4d(folder: str | Path, *, depth: DepthKind | None = None) -> Occupancy4dForecaster:
    """The published network of a run or checkpoint, to forecast with. depth: see `Occupancy4dForecaster`."""
    loaded = load_network(
        folder, PublishedOccupancy4d, PublishedOccupancy4dConfig, task=PUBLISHED_KIND, section="model",
        verb="train baseline 4d_occ",
    )  # fmt: skip
    return Occupancy4dForecaster(loaded.network, name=PUBLISHED_KIND, depth=depth)

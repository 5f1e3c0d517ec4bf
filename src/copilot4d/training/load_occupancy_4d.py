"""A trained 4D-Occ forecaster from its run, its checkpoint, or the folder in which it was shared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from copilot4d.baselines.occupancy_4d import Occupancy4d, Occupancy4dConfig, Occupancy4dForecaster
from copilot4d.baselines.occupancy_4d.config import DepthKind
from copilot4d.config import from_mapping
from copilot4d.training.checkpoint import Checkpoint
from copilot4d.training.load_checkpoint import best_checkpoint, fill, task_config
from copilot4d.training.pretrained import load_pretrained

KIND = "occupancy_4d"  # of shared folders, and the task of runs


@dataclass(frozen=True, kw_only=True)
class LoadedOccupancy4d:
    """A network in evaluation mode, and where it came from."""

    model: Occupancy4d
    checkpoint: Checkpoint | None  # None for a shared folder


def load_occupancy_4d_network(folder: str | Path) -> LoadedOccupancy4d:
    """From a checkpoint, from a run (its best checkpoint, or the newest where none was scored), or from a folder of
    `save_pretrained`. Averaged weights where there are.
    """
    folder = Path(folder)
    if (folder / "config.json").is_file():
        shared = load_pretrained(folder, kind=KIND)
        model = Occupancy4d(from_mapping(Occupancy4dConfig, shared.config, source=folder / "config.json"))
        shared.fill(model)
        return LoadedOccupancy4d(model=model.eval(), checkpoint=None)
    checkpoint = best_checkpoint(folder)
    model = Occupancy4d(
        task_config(checkpoint, Occupancy4dConfig, task=KIND, section="model", verb="train occupancy-4d")
    )
    fill(model, checkpoint)
    return LoadedOccupancy4d(model=model.eval(), checkpoint=checkpoint)


def load_occupancy_4d(folder: str | Path, *, depth: DepthKind | None = None) -> Occupancy4dForecaster:
    """The network of a run, checkpoint or shared folder, to forecast with. depth: see `Occupancy4dForecaster`."""
    return Occupancy4dForecaster(load_occupancy_4d_network(folder).model, name=KIND, depth=depth)

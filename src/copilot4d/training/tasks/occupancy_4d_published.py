"""Training 4D-Occ as published: as our variant of it, with the authors' network, densities and rendering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from copilot4d.baselines.occupancy_4d import PublishedOccupancy4d, PublishedOccupancy4dConfig
from copilot4d.config import default_values, to_mapping
from copilot4d.training.tasks.occupancy_4d import OccupancyTask


class PublishedOccupancyTask(OccupancyTask):
    """L1 of the expected depth; a ray that leaves the region counts up to its exit."""

    name = "4d_occ"

    def build_model(self) -> nn.Module:
        """A fresh network."""
        assert isinstance(self.training.model, PublishedOccupancy4dConfig)
        return PublishedOccupancy4d(self.training.model)

    def default_config(self) -> Mapping[str, Any]:
        """See `TrainingTask`."""
        return {**default_values(self.training), "model": default_values(self.training.model)}

    def conventions(self) -> Mapping[str, Any]:
        """What the densities mean."""
        return {
            "frame": "the newest past sweep's lidar frame",
            "density": "ReLU per cell size along x; a stopped ray ends where it leaves the voxel",
            "grid": to_mapping(self.training.model.grid),
        }

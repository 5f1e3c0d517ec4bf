"""What the two networks of the 4D-Occ kind, the published one and ours, have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from copilot4d.baselines.occupancy_4d.config import OccupancyConfig
from copilot4d.baselines.occupancy_4d.past import PastVoxels
from copilot4d.rendering import RayBatch
from copilot4d.rendering.voxel_depth import VoxelDepths


class OccupancyNetwork(nn.Module, ABC):
    """Voxels of the past -> densities of the future's voxels, and depths of rays in them."""

    config: OccupancyConfig

    @abstractmethod
    def forward(self, past: PastVoxels) -> Tensor:
        """(B, X/f, Y/f, f, f, T, Z) what `render` reads."""

    @abstractmethod
    def render(self, densities: Tensor, rays: RayBatch, steps: Tensor) -> VoxelDepths:
        """What rays see; each knows its clip (`scenes`) and its future step (R,), and lies in the reference frame."""

    @abstractmethod
    def blocks(self) -> Iterable[nn.Module]:
        """The parts that a training run may shard or compile one by one."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

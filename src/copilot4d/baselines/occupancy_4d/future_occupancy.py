"""`FutureOccupancy`: the network's densities of the frames after a past, and what rays of those frames read in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from copilot4d.baselines.occupancy_4d.network import OccupancyNetwork
from copilot4d.baselines.occupancy_4d.past import past_voxels
from copilot4d.geometry import Rays, Sweep, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.rendering import SOME_OPACITY, RayBatch, answered_depths
from copilot4d.rendering.voxel_depth import VoxelDepths


@dataclass(frozen=True)
class FutureOccupancy:
    """The densities of one past's future steps, in the newest past sweep's frame."""

    network: OccupancyNetwork
    logits: Tensor
    world_from_reference: FloatArray

    @classmethod
    @torch.no_grad()
    def of(cls, network: OccupancyNetwork, past: Sequence[Sweep]) -> FutureOccupancy:
        """One pass of the network over sweeps, oldest first."""
        logits = network(past_voxels(past, network.config).to(network.device))
        return cls(network, logits, np.asarray(past[-1].world_from_lidar, dtype=np.float64))

    @property
    def steps(self) -> int:
        """How many frames ahead are predicted."""
        return self.network.config.future_frames

    @torch.no_grad()
    def along(self, rays: Rays, world_from_lidar: FloatArray, step: int) -> OccupancyReading:
        """What rays of a lidar at this pose read, `step` frames after the first future one."""
        in_reference = rays.transformed(se3.relative_motion(self.world_from_reference, world_from_lidar))
        batch = RayBatch.of([in_reference], self.network.device)
        rendered = self.network.render(self.logits, batch, torch.full_like(batch.scenes, step))
        entry, leave = batch.span(self.network.config.grid)
        # A ray that misses the region starts outside it.
        return OccupancyReading(rendered, torch.where(leave > entry, leave, 0.0))


@dataclass(frozen=True)
class OccupancyReading:
    """R rays: what is rendered along them, and where they leave the region."""

    rendered: VoxelDepths
    exit_m: Tensor

    @property
    def mean_m(self) -> Tensor:
        """(R,) the mean depth of what is stopped."""
        stopped = self.rendered.opacity.clamp(min=SOME_OPACITY)
        return (self.rendered.expected_m - (1 - self.rendered.opacity) * self.exit_m) / stopped

    def answered(self, depth_m: Tensor) -> Tensor:
        """(R,) these depths where anything stops a ray in the region, else just behind the region's exit."""
        is_answered = (depth_m <= self.exit_m) & (self.rendered.opacity >= SOME_OPACITY)
        return answered_depths(depth_m, is_answered, self.exit_m)

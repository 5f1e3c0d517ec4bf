"""What the network sees: which voxels of the reference frame held points, at each of the past frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from copilot4d.baselines.occupancy_4d.config import OccupancyConfig
from copilot4d.geometry import Sweep, se3

ONE_SWEEP_INTERVAL_S = 0.2  # taken where the past is a single sweep, which tells nothing about the rate


@dataclass(frozen=True, kw_only=True)
class PastVoxels:
    """The occupied voxels of B pasts, as positions in the network's input map, and each past's rate."""

    cells: Tensor  # (V,) int64, flat position in (B, X/f, Y/f)
    channels: Tensor  # (V,) int64, flat position in (f, f, past frames, Z)
    intervals_s: Tensor  # (B,) float32, between two frames

    def __len__(self) -> int:
        return len(self.intervals_s)

    @classmethod
    def joined(cls, pasts: Sequence[PastVoxels], config: OccupancyConfig) -> PastVoxels:
        """Several pasts as one batch."""
        height, width = config.map_size
        starts = np.cumsum([0, *(len(past) for past in pasts[:-1])]) * height * width
        return cls(
            cells=torch.cat([past.cells + int(start) for past, start in zip(pasts, starts, strict=True)]),
            channels=torch.cat([past.channels for past in pasts]),
            intervals_s=torch.cat([past.intervals_s for past in pasts]),
        )

    def to(self, device: torch.device) -> PastVoxels:
        """On another device."""
        return PastVoxels(
            cells=self.cells.to(device), channels=self.channels.to(device), intervals_s=self.intervals_s.to(device)
        )  # fmt: skip


def past_voxels(past: Sequence[Sweep], config: OccupancyConfig) -> PastVoxels:
    """The newest `past_frames` sweeps in the frame of the newest; frames that are missing at the start stay empty."""
    seen = list(past)[-config.past_frames :]
    grid, fold = config.grid, config.fold
    reference_from_world = se3.invert(np.asarray(seen[-1].world_from_lidar, dtype=np.float64))
    found = []
    for age, sweep in enumerate(reversed(seen)):
        points = sweep.points_in(reference_from_world)
        index = grid.index_of(points[grid.contains(points)])
        slot = config.past_frames - 1 - age
        found.append(slot * grid.cells + np.unique(grid.flat_index(index)))
    voxels: NDArray[np.int64] = np.concatenate(found)
    slots, (x, y, z) = voxels // grid.cells, np.moveaxis(grid.unflat_index(voxels % grid.cells), -1, 0)
    cells = (x // fold) * config.map_size[1] + y // fold
    channels = (((x % fold) * fold + y % fold) * config.past_frames + slots) * grid.shape[2] + z
    return PastVoxels(
        cells=torch.from_numpy(cells),
        channels=torch.from_numpy(channels),
        intervals_s=torch.tensor([interval_s(past)], dtype=torch.float32),
    )


def interval_s(past: Sequence[Sweep]) -> float:
    """The time between two frames."""
    if len(past) < 2:
        return ONE_SWEEP_INTERVAL_S
    return float(np.median(np.diff([sweep.timestamp_ns for sweep in past]))) * 1e-9

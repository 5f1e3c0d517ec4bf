"""Forecasters that know the answer and drives that cannot be read, for tests of the runner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree

from copilot4d.errors import DataError
from copilot4d.forecaster import Forecast, PlainForecaster
from copilot4d.geometry import Drive, Rays, Sweep


class Oracle(PlainForecaster):
    """Looks up the true sweep at each future pose (or `lag` frames earlier), then changes its depths by `change`."""

    name = "oracle"

    def __init__(self, drive: Drive, *, lag: int = 0, change: Callable[[np.ndarray], np.ndarray] | None = None) -> None:
        self.drive, self.lag, self.change = drive, lag, change or (lambda depths: depths)
        self.calls: list[dict[str, object]] = []

    def forecast(self, past, future_poses, rays=None, *, guidance=None, steps=None, seed=0, futures=1):
        self.calls.append({"past": list(past), "poses": future_poses, "rays": rays, "guidance": guidance,
                           "steps": steps, "seed": seed})  # fmt: skip
        sweeps, depths = [], []
        for pose, asked in zip(future_poses, rays, strict=True):
            frame = int(np.flatnonzero((self.drive.world_from_lidar == pose).all(axis=(1, 2)))[0])
            depth = self.change(true_depths(self.drive[frame - self.lag], asked))
            points = asked.points_at(depth).astype(np.float32)
            sweeps.append(Sweep(points=points, world_from_lidar=pose, timestamp_ns=0))
            depths.append(depth)
        return Forecast(sweeps=tuple(sweeps), depths=tuple(depths))


def true_depths(sweep: Sweep, asked: Rays) -> np.ndarray:
    """The range of the sweep's return that lies on each ray (origin and direction both agree)."""
    known, depths = sweep.rays()
    if len(asked) == 0:
        return np.zeros(0, dtype=np.float32)
    key = np.hstack([known.directions, known.origins])
    _, nearest = cKDTree(key).query(np.hstack([asked.directions, asked.origins]))
    return depths[nearest]


def broken(drive: Drive, *frames: int) -> Drive:
    """The drive with frames that cannot be read."""

    def read(frame: int) -> Sweep:
        if frame in frames:
            raise DataError(f"{frame:06d}.bin", "points", expected="16 bytes a point", found="7", remedy="copy again")
        return drive[frame]

    return replace(drive, read=read)

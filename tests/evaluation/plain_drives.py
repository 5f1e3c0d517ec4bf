"""Drives of one cloud, seen again and again."""

from __future__ import annotations

import numpy as np

from copilot4d.geometry import Drive, Sweep, se3


def plain_drive(frames: int, points: np.ndarray, *, step_m: float = 1.0, **about: object) -> Drive:
    """An ego that moves `step_m` along x per sweep and always sees the same points in its own frame, at 5 Hz."""
    sweeps = [
        Sweep(
            points=np.asarray(points, dtype=np.float32),
            world_from_lidar=se3.from_yaw(0.0, (i * step_m, 0, 0)),
            timestamp_ns=i * 200_000_000,
        )
        for i in range(frames)
    ]
    return Drive.from_sweeps("plain", sweeps, **about)

"""Do poses bring two sweeps together? The mean distance from the points of one to the other, under some motion."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from copilot4d.geometry import Drive, Sweep, se3


def mean_distance(drive: Drive, first: int, second: int, how: str) -> float:
    """Metres, capped at 2; how: "poses", "none" or "inverse"."""
    a, b = (drive[i].without_box(drive.ego_box) for i in (first, second))
    a_from_b = se3.relative_motion(a.world_from_lidar, b.world_from_lidar)
    motion = {"poses": a_from_b, "none": se3.identity(), "inverse": se3.invert(a_from_b)}[how]
    moved = se3.transform_points(motion, b.points[::3])
    distances, _ = cKDTree(a.points).query(moved, distance_upper_bound=2.0)
    return float(np.minimum(distances, 2.0).mean())


def landmark_drive(frames: int = 4) -> Drive:
    """A drive round a bend past landmarks that every sweep sees: under its poses they coincide exactly."""
    angle, radius, height = np.random.default_rng(1).uniform((0, 12, 0), (2 * np.pi, 30, 6), size=(400, 3)).T
    landmarks = np.stack([radius * np.cos(angle), radius * np.sin(angle), height], axis=-1)
    poses = [se3.from_yaw(0.08 * i, (1.1 * i, 0.2 * i * i, 1.8)) for i in range(frames)]
    return Drive.from_sweeps(
        "landmarks",
        [
            Sweep(
                points=se3.transform_points(se3.invert(pose), landmarks).astype(np.float32),
                world_from_lidar=pose,
                timestamp_ns=i * 100_000_000,
            )
            for i, pose in enumerate(poses)
        ],
    )

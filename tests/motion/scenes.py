"""A street made by hand: flat ground, a wall, a box on wheels, and a sensor that may move."""

from __future__ import annotations

import numpy as np

from copilot4d.geometry import Sweep, se3

SENSOR_HEIGHT_M = 1.8


def grid(first, second, third):
    """All combinations of some coordinates as points (N, 3)."""
    return np.stack(np.meshgrid(first, second, third, indexing="ij"), axis=-1).reshape(-1, 3)


def ground() -> np.ndarray:
    return grid(np.arange(-30, 30, 0.7), np.arange(-30, 30, 0.7), [-SENSOR_HEIGHT_M])


def wall(y_m: float) -> np.ndarray:
    return grid(np.arange(-30, 30, 0.2), [y_m], np.arange(-1.7, 1.2, 0.2))


def car(x_m: float, y_m: float) -> np.ndarray:
    """The two sides of a car of 4.4 m x 1.8 m that a sensor behind and to the right of it sees."""
    heights = np.arange(-1.4, -0.3, 0.15)
    rear = grid([x_m], np.arange(y_m, y_m + 1.8, 0.15), heights)
    side = grid(np.arange(x_m, x_m + 4.4, 0.15), [y_m], heights)
    return np.concatenate([rear, side])


def visible(points: np.ndarray, sensor: np.ndarray) -> np.ndarray:
    """Of points (N, 3) those that no other hides, in bins of half a degree."""
    away = points - sensor
    far = np.linalg.norm(away, axis=1)
    turn = np.floor(np.degrees(np.arctan2(away[:, 1], away[:, 0])) * 2).astype(int)
    lift = np.floor(np.degrees(np.arcsin(away[:, 2] / far)) * 2).astype(int)
    _, bin_of = np.unique(np.stack([turn, lift]), axis=1, return_inverse=True)
    nearest = np.full(bin_of.max() + 1, np.inf)
    np.minimum.at(nearest, bin_of.reshape(-1), far)
    return points[far < nearest[bin_of.reshape(-1)] + 0.4]


def drive_past(
    velocity=(8.0, 0.0), *, sweeps=5, step_s=0.2, ego_m_s=0.0, start=(6.0, 4.0), with_car=True, with_ground=True,
    mirrored=False,
) -> list[Sweep]:  # fmt: skip
    """Sweeps in their own lidar frames, oldest first: the car starts at `start` and goes on with `velocity`."""
    made = []
    for i in range(sweeps):
        t = i * step_s
        pose = se3.from_yaw(0.0, (ego_m_s * t, 0.0, 0.0))
        parts = [*([ground()] if with_ground else []), wall(9.0)]
        if with_car:
            parts.append(car(start[0] + velocity[0] * t, start[1] + velocity[1] * t))
        world = visible(np.concatenate(parts), pose[:3, 3])
        if mirrored:
            world = world * [1.0, -1.0, 1.0]
        points = se3.transform_points(se3.invert(pose), world).astype(np.float32)
        made.append(Sweep(points=points, world_from_lidar=pose, timestamp_ns=int(t * 1e9)))
    return made

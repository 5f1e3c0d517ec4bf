"""A healthy log with a known answer whose motion changes all the time, and ways to damage it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from copilot4d.geometry import Drive, Sweep, se3
from tests.support.scenes import BOXES, SENSOR_HEIGHT, beam_directions, cast

MORE_BOXES = np.array(
    [
        [-8, 6, 0, -4, 7.8, 1.6], [2, -9, 0, 2.5, -8.5, 5], [31, 7.5, 0, 35, 9, 1.7], [14, -10, 0, 18, -8.2, 1.5],
        [-14, 3.5, 0, -13.6, 3.9, 4], [-25, 9, 0, -6, 16, 6], [60, -30, 0, 75, -12, 5], [56, 12, 0, 64, 20, 4],
        [38, -13, 0, 38.5, -12.5, 6], [-35, -8, 0, -30, 9, 4],
    ],
    dtype=np.float64,
)  # fmt: skip


def varied_poses(frames: int, rate_hz: float = 5.0) -> np.ndarray:
    """(N, 4, 4): speeds up and slows down between 2 and 9 m/s while it sways left and right."""
    steps = 20  # integration steps a frame
    t = np.arange(frames * steps) / (rate_hz * steps)
    speed = 5.5 + 3.5 * np.sin(2.6 * t)
    heading = 0.25 * np.sin(1.9 * t) + 0.05 * t
    x = np.concatenate([[0], np.cumsum(speed * np.cos(heading))[:-1]]) / (rate_hz * steps)
    y = np.concatenate([[0], np.cumsum(speed * np.sin(heading))[:-1]]) / (rate_hz * steps)
    positions = np.stack([x, y, np.full_like(x, SENSOR_HEIGHT)], axis=-1)
    return se3.from_yaw(heading, positions)[::steps]


@cache
def healthy_log(frames: int = 14, rate_hz: float = 5.0, name: str = "town") -> Drive:
    """14 sweeps at 5 Hz through boxes, without anything that moves by itself."""
    poses = varied_poses(frames, rate_hz)
    boxes, directions = np.concatenate([BOXES, MORE_BOXES]), beam_directions(24, 360)
    noise = np.random.default_rng(7)
    sweeps = []
    for i, pose in enumerate(poses):
        points = cast(pose, boxes, directions)
        points = (points + noise.normal(0, 0.01, points.shape)).astype(np.float32)
        sweeps.append(Sweep(points=points, world_from_lidar=pose, timestamp_ns=round(i / rate_hz * 1e9)))
    return Drive.from_sweeps(name, sweeps)


def with_poses(drive: Drive, poses: np.ndarray) -> Drive:
    """The same sweeps with other poses."""
    sweeps = [replace(sweep, world_from_lidar=pose) for sweep, pose in zip(drive, poses, strict=True)]
    return Drive.from_sweeps(drive.name, sweeps)


def with_points(drive: Drive, change: Callable[[np.ndarray], np.ndarray]) -> Drive:
    """The same poses with other points."""
    sweeps = [replace(sweep, points=change(sweep.points).astype(np.float32)) for sweep in drive]
    return Drive.from_sweeps(drive.name, sweeps)


def turned(drive: Drive, change: np.ndarray) -> Drive:
    """Points and poses alike in other axes: p' = change p."""
    motion = np.eye(4)
    motion[:3, :3] = change
    return with_poses(with_points(drive, lambda p: p @ change.T), drive.world_from_lidar @ motion.T)


def shifted(poses: np.ndarray, frames: int) -> np.ndarray:
    """Sweep i gets the pose of sweep i + frames (the ends repeat)."""
    return poses[np.clip(np.arange(len(poses)) + frames, 0, len(poses) - 1)]


def scaled(poses: np.ndarray, factor: float) -> np.ndarray:
    return se3.from_rotation_translation(poses[:, :3, :3], poses[:, :3, 3] * factor)


def degrees_as_radians(poses: np.ndarray) -> np.ndarray:
    """What comes out if headings in degrees are handed to a function that wants radians."""
    return se3.from_yaw(np.rad2deg(se3.yaw_of(poses)), poses[:, :3, 3])


def radians_as_degrees(poses: np.ndarray) -> np.ndarray:
    return se3.from_yaw(np.deg2rad(se3.yaw_of(poses)), poses[:, :3, 3])


def rotations_transposed(poses: np.ndarray) -> np.ndarray:
    return se3.from_rotation_translation(np.swapaxes(poses[:, :3, :3], 1, 2), poses[:, :3, 3])


def quaternions_reordered(poses: np.ndarray) -> np.ndarray:
    """x y z w read as if it were w x y z."""
    quaternion = se3.quaternion_from_rotation(poses[:, :3, :3])
    return se3.from_quaternion(np.roll(quaternion, -1, axis=-1), poses[:, :3, 3])


@cache
def thicket_log(frames: int = 8) -> Drive:
    """The same motion through a thicket of points that every sweep sees again: what lidar odometry likes best."""
    world = np.random.default_rng(3).uniform([-40, -40, 0.3], [55, 40, 6], (6000, 3))
    sweeps = []
    for i, pose in enumerate(varied_poses(frames)):
        points = se3.transform_points(se3.invert(pose), world).astype(np.float32)
        sweeps.append(Sweep(points=points, world_from_lidar=pose, timestamp_ns=i * 200_000_000))
    return Drive.from_sweeps("town", sweeps)

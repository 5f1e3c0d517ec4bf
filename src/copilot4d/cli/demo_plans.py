"""Other ways that the ego of a log could have gone: slower along its own path, or aside and back."""

from __future__ import annotations

import numpy as np

from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator.ego import EgoPlan, swerve_offset

BRAKING_M_S2 = 5.0
SWERVE_M = 2.0  # to the left; less where the ego hardly moves
SWERVE_ROOM_M = 8.0  # of way that a full swerve needs


def braked(world_from_lidar: FloatArray, times_s: FloatArray, *, braking_m_s2: float = BRAKING_M_S2) -> FloatArray:
    """(N, 4, 4) poses at increasing times from 0 on -> the same way, driven by an ego that brakes to a stop.

    It starts with the speed of the first step. Where the log's own ego is slower still, it stays that slow.
    """
    travelled = _travelled_m(world_from_lidar)
    speed = travelled[1] / times_s[1]
    moving_s = np.minimum(times_s, speed / braking_m_s2)
    distance = np.minimum(speed * moving_s - 0.5 * braking_m_s2 * moving_s**2, travelled)
    reached_s = np.interp(distance, travelled + 1e-9 * np.arange(len(travelled)), times_s)
    return se3.interpolate_trajectory(times_s, world_from_lidar, reached_s)


def swerved(world_from_lidar: FloatArray, times_s: FloatArray, *, offset_m: float = SWERVE_M) -> FloatArray:
    """(N, 4, 4) poses at increasing times from 0 on -> aside (left positive) and back, headed along the new way."""
    travelled = _travelled_m(world_from_lidar)
    plan = EgoPlan.swerve(offset_m * min(1.0, travelled[-1] / SWERVE_ROOM_M))
    offsets = np.array([swerve_offset(plan, t) for t in times_s])
    slopes = np.gradient(offsets, times_s) / np.maximum(np.gradient(travelled, times_s), 1.0)
    slopes[0] = 0.0  # the moment itself is common to all plans
    aside = np.stack([np.zeros_like(offsets), offsets, np.zeros_like(offsets)], axis=-1)
    return se3.compose(world_from_lidar, se3.from_yaw(np.arctan(slopes), aside))


def _travelled_m(world_from_lidar: FloatArray) -> FloatArray:
    """(N,) metres since the first pose."""
    steps = np.linalg.norm(np.diff(world_from_lidar[:, :3, 3], axis=0), axis=1)
    return np.concatenate([np.zeros(1), np.cumsum(steps)])

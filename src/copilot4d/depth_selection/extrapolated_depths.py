"""Extrapolated depths: what a ray meets if what moves goes on, and what stands still behind the traces of what moved.

R rays, K neighbours in angle, N gathered points
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.baselines.angular import AngularMatches, nearest_in_angle
from copilot4d.compiled import compiled
from copilot4d.geometry import Rays
from copilot4d.geometry.se3 import FloatArray, transform_points
from copilot4d.motion import ExtrapolatedPast

FAR_OFF = 2.0  # the angle where nothing moves: the chord of opposite directions


@dataclass(frozen=True)
class ExtrapolatedDepths:
    """Of R rays: the nearest in angle of what stands still, where age counts as further off, and of what moves, carried
    on to the time of the rays.

    Where nothing moves, the point that stands still takes its place, at an angle of FAR_OFF.
    """

    still_m: NDArray[np.float32]
    still_angle: NDArray[np.float32]
    moving_m: NDArray[np.float32]
    moving_angle: NDArray[np.float32]
    moving_age: NDArray[np.float32]  # in sweeps
    speed_m_s: NDArray[np.float32]

    @classmethod
    def of(
        cls, past: ExtrapolatedPast, near: AngularMatches, rays: Rays, lidar_from_reference: FloatArray, ahead_s: float,
        age_rad: float,
    ) -> ExtrapolatedDepths:  # fmt: skip
        """near: the gathered points nearest to the rays in angle. age_rad: how much further off a point counts for each
        sweep that it is older than the newest.
        """
        still_m, still_angle, moving_m = (np.empty(len(rays), dtype=np.float32) for _ in range(3))
        _nearest_still(*near, past.is_still, past.ages, age_rad, still_m, still_angle)
        moving_m[:] = still_m
        moving_angle = np.full(len(rays), FAR_OFF, dtype=np.float32)
        moving_age, speed_m_s = np.zeros((2, len(rays)), dtype=np.float32)
        if len(past.moving) and len(rays):
            there = transform_points(lidar_from_reference, past.moving_at(ahead_s))
            found = nearest_in_angle(there, rays)
            nearest = found.indices[:, 0]
            moving_m, moving_angle = found.ranges_m[:, 0], found.chords[:, 0]
            moving_age = past.moving_ages[nearest]
            speed_m_s = np.linalg.norm(past.velocities_m_s[nearest], axis=-1)
        return cls(still_m, still_angle, moving_m, moving_angle, moving_age, speed_m_s)


@compiled
def _nearest_still(
    indices: Any, chords: Any, ranges_m: Any, is_still: Any, ages: Any, age_rad: float, still_m: Any, still_angle: Any
) -> None:
    """Write range and angle of each ray's nearest neighbour that stands still; of the first of all where none does."""
    for r in range(len(indices)):
        still_m[r], still_angle[r] = ranges_m[r, 0], chords[r, 0]
        best = np.inf
        for k in range(indices.shape[1]):
            point = indices[r, k]
            if point >= 0 and is_still[point]:
                angle = np.hypot(float(chords[r, k]), age_rad * float(ages[point]))
                if angle < best:
                    best, still_m[r], still_angle[r] = angle, ranges_m[r, k], angle

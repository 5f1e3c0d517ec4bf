"""`constant_velocity`: the gathered past, whose moving objects go on with the velocity that the past shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from copilot4d.baselines.angular import nearest_in_angle
from copilot4d.baselines.deterministic import DeterministicForecaster, newest_with_points
from copilot4d.forecaster import future_timestamps
from copilot4d.geometry import Rays, Sweep, se3, sweep_on
from copilot4d.geometry.se3 import FloatArray
from copilot4d.motion import extrapolate

AGE_RAD = float(
    np.deg2rad(0.05)
)  # as `ray_tracing_recent`: how much further off a point counts for each sweep that it is older than the newest
REACH_RAD = 0.03  # a ray meets a moving object if one of its points is so near in angle


class ConstantVelocity(DeterministicForecaster):
    """`ray_tracing` that moves what moves: no learning, no labels.

    Moving objects are found in the past sweeps (`copilot4d.motion`) and carried on. A ray that passes near one of their
    points takes its range; every other ray takes that of the nearest point that stands still, newer points first.
    """

    name = "constant_velocity"

    def predict(
        self, past: Sequence[Sweep], future_poses: FloatArray, rays: Sequence[Rays] | None
    ) -> tuple[list[Sweep], list[FloatArray]]:
        """See `DeterministicForecaster.predict`."""
        carried_on = extrapolate(past)
        kept = carried_on.is_still if carried_on.is_still.any() else np.ones(len(carried_on.points), dtype=bool)
        still, ages = carried_on.points[kept], AGE_RAD * carried_on.ages[kept]
        asked = rays if rays is not None else [newest_with_points(past).rays()[0]] * len(future_poses)
        sweeps: list[Sweep] = []
        depths: list[FloatArray] = []
        for pose, its_rays, timestamp_ns in zip(
            future_poses, asked, future_timestamps(past, len(future_poses)), strict=True
        ):
            lidar_from_reference = se3.relative_motion(pose, past[-1].world_from_lidar)
            depth = nearest_in_angle(
                se3.transform_points(lidar_from_reference, still), its_rays, handicaps=ages
            ).ranges_m[:, 0].astype(np.float64)  # fmt: skip
            if len(carried_on.moving):
                ahead_s = (timestamp_ns - past[-1].timestamp_ns) * 1e-9
                there = se3.transform_points(lidar_from_reference, carried_on.moving_at(ahead_s))
                found = nearest_in_angle(there, its_rays)
                depth = np.where(found.chords[:, 0] < REACH_RAD, found.ranges_m[:, 0], depth)
            sweeps.append(sweep_on(its_rays, depth, pose, timestamp_ns))
            depths.append(depth)
        return sweeps, depths

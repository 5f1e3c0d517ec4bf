"""`copy_last`: the newest sweep, carried by the ego's motion. The world stands still, nothing new comes into view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from copilot4d.baselines.angular import nearest_in_angle
from copilot4d.baselines.deterministic import DeterministicForecaster, newest_with_points
from copilot4d.forecaster import future_timestamps
from copilot4d.geometry import Rays, Sweep, se3
from copilot4d.geometry.se3 import FloatArray


class CopyLast(DeterministicForecaster):
    """Carries the points of the newest sweep that has any into each future lidar frame.

    The predicted sweeps are free clouds: all points of that sweep, also those that the ego has driven past, with their
    intensity. Given rays are answered by the point nearest in angle, seen from the ray's origin.
    """

    name: str = "copy_last"

    def predict(
        self, past: Sequence[Sweep], future_poses: FloatArray, rays: Sequence[Rays] | None
    ) -> tuple[list[Sweep], list[FloatArray]]:
        """See `DeterministicForecaster.predict`."""
        last = newest_with_points(past)
        sweeps = [
            _carried(last, world_from_future, timestamp_ns)
            for world_from_future, timestamp_ns in zip(
                future_poses, future_timestamps(past, len(future_poses)), strict=True
            )
        ]
        asked = zip(sweeps, rays, strict=True) if rays is not None else ()
        return sweeps, [nearest_in_angle(sweep.points, its_rays).ranges_m[:, 0] for sweep, its_rays in asked]


def _carried(last: Sweep, world_from_future: FloatArray, timestamp_ns: int) -> Sweep:
    """The sweep as it lies in the future lidar frame. Per-point origins stay: the lidars move with the ego."""
    world_from_future = np.asarray(world_from_future, dtype=np.float64)
    future_from_last = se3.relative_motion(world_from_future, last.world_from_lidar)
    return replace(
        last,
        points=se3.transform_points(future_from_last, last.points),
        world_from_lidar=world_from_future,
        timestamp_ns=timestamp_ns,
    )

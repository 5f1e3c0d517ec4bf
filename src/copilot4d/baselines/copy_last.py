"""`copy_last`: the newest sweep, carried by the ego's motion. The world stands still, nothing new comes into view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from copilot4d.baselines.angular import nearest_in_angle
from copilot4d.baselines.deterministic import newest_with_points, same_futures
from copilot4d.forecaster import Forecast, PlainForecaster, check_forecast_input, future_timestamps
from copilot4d.geometry import Rays, Sweep, se3
from copilot4d.geometry.se3 import FloatArray


class CopyLast(PlainForecaster):
    """Carries the points of the newest sweep that has any into each future lidar frame.

    The predicted sweeps are free clouds: all points of that sweep, also those that the ego has driven past, with their
    intensity. Given rays are answered by the point nearest in angle, seen from the ray's origin. `guidance`, `steps`
    and `seed` change nothing: there is nothing to sample.
    """

    name: str = "copy_last"

    def forecast(
        self,
        past: Sequence[Sweep],
        future_poses: FloatArray,
        rays: Sequence[Rays] | None = None,
        *,
        guidance: float = 1.0,
        steps: int = 10,
        seed: int = 0,
        futures: int = 1,
    ) -> Forecast:
        """See `Forecaster.forecast`."""
        check_forecast_input(past, future_poses, rays, futures=futures)
        last = newest_with_points(past)
        sweeps = [
            _carried(last, world_from_future, timestamp_ns)
            for world_from_future, timestamp_ns in zip(
                future_poses, future_timestamps(past, len(future_poses)), strict=True
            )
        ]
        depths = None
        if rays is not None:
            depths = [
                nearest_in_angle(sweep.points, asked).ranges_m[:, 0] for sweep, asked in zip(sweeps, rays, strict=True)
            ]
        return same_futures(sweeps, depths, futures)


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

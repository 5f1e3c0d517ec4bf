"""The `Forecaster` protocol: the one door through which models and baselines give their forecasts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from copilot4d.errors import ForecastError
from copilot4d.geometry import se3
from copilot4d.geometry.rays import Rays
from copilot4d.geometry.se3 import FloatArray
from copilot4d.geometry.sweep import Sweep


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Predicted sweeps, one per future pose, each in its own lidar frame.

    `depths[i]` (R,) has one depth per ray of `rays[i]`, where rays were given. A model that renders on the given rays
    has its points on them; a free cloud (copy_last) keeps its own points and answers the rays by the point nearest in
    angle. `alternatives` holds further futures where several were asked for (the first one is this object).
    """

    sweeps: tuple[Sweep, ...]
    depths: tuple[FloatArray, ...] | None = None
    alternatives: tuple[Forecast, ...] = ()

    @property
    def futures(self) -> tuple[Forecast, ...]:
        """All futures, this one first."""
        return (self, *self.alternatives)


@runtime_checkable
class Forecaster(Protocol):
    """Past sweeps and the ego's future poses -> future sweeps."""

    name: str

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
        """Forecast one sweep per future pose.

        past: sweeps, oldest first, evenly spaced, poses in one world frame.
        future_poses: (F, 4, 4) world_from_lidar in that world.
        rays: one `Rays` per future pose, in that frame's own lidar frame; None lets the model choose its points.
        """
        ...


def check_forecast_input(
    past: Sequence[Sweep], future_poses: FloatArray, rays: Sequence[Rays] | None, *, futures: int = 1
) -> None:
    """Raise ForecastError where the arguments of `Forecaster.forecast` do not fit together."""
    if not past:
        raise ForecastError("a forecast needs at least one past sweep, got none; pass the newest sweep last")
    if not any(len(sweep) for sweep in past):
        raise ForecastError("all past sweeps are empty: there is nothing to forecast from")
    if any(b.timestamp_ns <= a.timestamp_ns for a, b in itertools.pairwise(past)):
        raise ForecastError("past sweeps must be in order of time, oldest first; their timestamps do not increase")
    if future_poses.ndim != 3 or future_poses.shape[1:] != (4, 4) or len(future_poses) == 0:
        raise ForecastError(f"future_poses must be (F, 4, 4) with F >= 1, got {future_poses.shape}")
    error = float(se3.rigidity_error(future_poses).max())
    if error > se3.RIGID_TOLERANCE:
        raise ForecastError(f"future_poses must be rigid motions; the worst is off by {error:.3g}")
    if rays is not None and len(rays) != len(future_poses):
        raise ForecastError(f"one Rays per future pose is needed: {len(rays)} for {len(future_poses)} poses")
    if futures < 1:
        raise ForecastError(f"futures must be at least 1, got {futures}")


def future_timestamps(past: Sequence[Sweep], count: int) -> list[int]:
    """Timestamps that continue the past at its own rate (0.1 s where the past is a single sweep)."""
    stamps = np.array([sweep.timestamp_ns for sweep in past], dtype=np.int64)
    step = int(np.median(np.diff(stamps))) if len(stamps) > 1 else 100_000_000
    return [int(stamps[-1]) + step * (i + 1) for i in range(count)]

"""What the baselines that draw nothing at random share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from copilot4d.forecaster import Forecast, PlainForecaster, check_forecast_input
from copilot4d.geometry import Rays, Sweep
from copilot4d.geometry.se3 import FloatArray


def newest_with_points(past: Sequence[Sweep]) -> Sweep:
    """The newest sweep that is not empty (an input frame that a log lacks is an empty sweep)."""
    return next(sweep for sweep in reversed(past) if len(sweep))


def same_futures(sweeps: Sequence[Sweep], depths: Sequence[FloatArray] | None, futures: int) -> Forecast:
    """A forecast whose alternatives are all the same: there is only one thing this forecaster can say."""
    only = Forecast(sweeps=tuple(sweeps), depths=None if depths is None else tuple(depths))
    return replace(only, alternatives=(only,) * (futures - 1))


class DeterministicForecaster(PlainForecaster, ABC):
    """A forecaster that draws nothing at random: `guidance`, `steps` and `seed` change nothing, all futures are one."""

    def forecast(
        self, past: Sequence[Sweep], future_poses: FloatArray, rays: Sequence[Rays] | None = None, *,
        guidance: float | None = None, steps: int | None = None, seed: int = 0, futures: int = 1,
    ) -> Forecast:  # fmt: skip
        """See `Forecaster.forecast`."""
        check_forecast_input(past, future_poses, rays, futures=futures)
        sweeps, depths = self.predict(past, np.asarray(future_poses, dtype=np.float64), rays)
        return same_futures(sweeps, None if rays is None else depths, futures)

    @abstractmethod
    def predict(
        self, past: Sequence[Sweep], future_poses: FloatArray, rays: Sequence[Rays] | None
    ) -> tuple[list[Sweep], list[FloatArray]]:
        """A sweep for each future pose, and the depths (R,) along its rays where rays are given."""

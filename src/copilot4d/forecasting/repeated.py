"""`imagine` with any forecaster: one that cannot step by itself forecasts all frames so far at every step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from copilot4d.errors import ForecastError
from copilot4d.forecaster import Forecaster, Imagination, Imaginative, ImaginedFrame, sampling_of
from copilot4d.geometry import Rays, Sweep
from copilot4d.geometry.se3 import FloatArray


def imagine(
    forecaster: Forecaster,
    past: Sequence[Sweep],
    *,
    guidance: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    futures: int = 1,
) -> Imagination:
    """Begin to imagine with any forecaster. guidance, steps: None: as stored with the model."""
    used = sampling_of(forecaster, guidance=guidance, steps=steps)
    if isinstance(forecaster, Imaginative):
        return forecaster.imagine(past, guidance=used.guidance, steps=used.steps, seed=seed, futures=futures)
    return RepeatedForecast(
        forecaster, past, guidance=used.guidance, steps=used.steps, seed=seed, futures=futures
    )  # fmt: skip


class RepeatedForecast:
    """Any forecaster, asked again at every step for all frames so far; the last of them is the step's."""

    def __init__(
        self, forecaster: Forecaster, past: Sequence[Sweep], *, guidance: float, steps: int, seed: int, futures: int
    ) -> None:
        self.forecaster = forecaster
        self.past = tuple(past)
        self.futures = futures
        self._settings = (guidance, steps, seed)
        self._poses: tuple[FloatArray, ...] = ()

    def step(self, world_from_lidar: FloatArray, rays: Rays | None = None) -> tuple[ImaginedFrame, ...]:
        """Forecast to the given pose."""
        if world_from_lidar.shape != (4, 4):
            raise ForecastError(f"the ego's next pose must be (4, 4), got {world_from_lidar.shape}")
        poses = (*self._poses, world_from_lidar)
        guidance, steps, seed = self._settings
        nothing = Rays(origins=np.zeros((0, 3)), directions=np.zeros((0, 3)))
        given = None if rays is None else [*[nothing] * len(self._poses), rays]
        forecast = self.forecaster.forecast(
            self.past, np.stack(poses), given, guidance=guidance, steps=steps, seed=seed, futures=self.futures
        )  # fmt: skip
        self._poses = poses  # only now: a step that failed was not taken
        return tuple(
            ImaginedFrame(sweep=f.sweeps[-1], depths=None if f.depths is None else f.depths[-1])
            for f in forecast.futures
        )

    def fork(self) -> RepeatedForecast:
        """A copy: poses are never changed in place, so it is cheap."""
        guidance, steps, seed = self._settings
        copy = RepeatedForecast(
            self.forecaster, self.past, guidance=guidance, steps=steps, seed=seed, futures=self.futures
        )  # fmt: skip
        copy._poses = self._poses
        return copy

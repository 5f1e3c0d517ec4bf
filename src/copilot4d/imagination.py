"""`Imagination`: a forecast one frame at a time, where the ego's next pose is chosen after the last frame was seen.

Planners, the environment and the studio stand on it. A model that samples frame by frame brings its own (with tokens
and opacity); `of_forecaster` makes one of any `Forecaster`, which then forecasts all frames so far at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import ForecastError
from copilot4d.forecaster import Forecaster
from copilot4d.geometry import Rays, Sweep
from copilot4d.geometry.se3 import FloatArray


@dataclass(frozen=True, kw_only=True)
class ImaginedFrame:
    """One future's next sweep, in its own lidar frame, and what the model knows about it."""

    sweep: Sweep
    depths: FloatArray | None = None  # (R,) one per ray, where rays were given
    opacity: FloatArray | None = None  # one per point of `sweep`, in [0, 1]; None where the model has no such thing
    tokens: NDArray[np.int64] | None = None  # (H, W); None for models without tokens


class Imagination(Protocol):
    """Futures of one past that are imagined frame by frame. All futures share the ego's poses."""

    futures: int

    def step(self, world_from_lidar: FloatArray, rays: Rays | None = None) -> tuple[ImaginedFrame, ...]:
        """The ego's next pose (4, 4) -> the next frame of every future. rays: in that frame's own lidar frame."""
        ...

    def fork(self) -> Imagination:
        """A copy that goes on by itself: steps of one never change the other."""
        ...


@runtime_checkable
class Imaginative(Protocol):
    """A forecaster that imagines frame by frame by itself."""

    def imagine(
        self, past: Sequence[Sweep], *, guidance: float = 1.0, steps: int = 10, seed: int = 0, futures: int = 1
    ) -> Imagination:
        """Begin after the past (oldest first, evenly spaced)."""
        ...


def imagine(
    forecaster: Forecaster,
    past: Sequence[Sweep],
    *,
    guidance: float = 1.0,
    steps: int = 10,
    seed: int = 0,
    futures: int = 1,
) -> Imagination:
    """Begin to imagine with any forecaster."""
    if isinstance(forecaster, Imaginative):
        return forecaster.imagine(past, guidance=guidance, steps=steps, seed=seed, futures=futures)
    return RepeatedForecast(forecaster, past, guidance=guidance, steps=steps, seed=seed, futures=futures)


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

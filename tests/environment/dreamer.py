"""A stand-in for a model that samples: it has tokens, opacities and a state that its steps change in place."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from copilot4d.baselines import CopyLast
from copilot4d.forecaster import ImaginedFrame
from copilot4d.geometry import Sweep


class Dreamer(CopyLast):
    """Carries the last sweep along and jitters it, each future and frame with its own random numbers."""

    name = "dreamer"

    def __init__(self, noise_m: float = 0.1, blind: tuple[int, ...] = ()) -> None:
        self.noise_m, self.blind = noise_m, blind  # blind: the futures that see nothing

    def imagine(
        self, past: Sequence[Sweep], *, guidance: float | None = None, steps: int | None = None, seed: int = 0,
        futures: int = 1,
    ) -> Dream:  # fmt: skip
        return Dream(self, past, seed, futures)


class Dream:
    def __init__(self, dreamer: Dreamer, past: Sequence[Sweep], seed: int, futures: int) -> None:
        self.dreamer, self.past, self.seed, self.futures = dreamer, tuple(past), seed, futures
        self.poses: list[np.ndarray] = []

    def step(self, world_from_lidar, rays=None):
        self.poses.append(world_from_lidar)  # before anything can fail: a step that fails has been taken
        sweep = self.dreamer.forecast(self.past, np.stack(self.poses)).sweeps[-1]
        return tuple(self._frame(sweep, future) for future in range(self.futures))

    def _frame(self, sweep: Sweep, future: int) -> ImaginedFrame:
        rng = np.random.default_rng([self.seed, future, len(self.poses)])
        if future in self.dreamer.blind:
            sweep = sweep.select(np.zeros(len(sweep), dtype=bool))
        points = sweep.points + rng.normal(scale=self.dreamer.noise_m, size=sweep.points.shape).astype(np.float32)
        jittered = Sweep(points=points, world_from_lidar=sweep.world_from_lidar, timestamp_ns=sweep.timestamp_ns)
        opacity = rng.uniform(size=len(points)).astype(np.float32)
        return ImaginedFrame(sweep=jittered, opacity=opacity, tokens=rng.integers(1024, size=(4, 6)))

    def fork(self) -> Dream:
        other = copy.copy(self)
        other.poses = list(self.poses)
        return other

"""The protocols of models and baselines: `Forecaster`, all frames at once, and `Imagination`, one frame at a time.

Planners, the environment and the studio stand on `Imagination`: the ego's next pose is chosen after the last frame was
rendered. A model that samples frame by frame brings its own; `copilot4d.forecasting.repeated` makes one of any other.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import Copilot4dWarning, ForecastError
from copilot4d.geometry import se3
from copilot4d.geometry.rays import Rays
from copilot4d.geometry.se3 import FloatArray
from copilot4d.geometry.sweep import Sweep

LONGEST_STEP_M = 200.0  # between two frames: 3 s settings are 0.6 s apart
INTERVAL_TOLERANCE = 0.1  # of an interval: a past this much quicker or slower is another rate


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

    def __repr__(self) -> str:
        points = ", ".join(f"{len(sweep):,}" for sweep in self.sweeps[:5]) + (", ..." if len(self.sweeps) > 5 else "")
        more = f", {len(self.alternatives)} alternatives" if self.alternatives else ""
        return f"Forecast({len(self.sweeps)} sweeps of {points} points{more})"

    @property
    def futures(self) -> tuple[Forecast, ...]:
        """All futures, this one first."""
        return (self, *self.alternatives)


@runtime_checkable
class Forecaster(Protocol):
    """Past sweeps and the ego's future poses -> future sweeps; and all that a caller may ask about who made them."""

    @property
    def name(self) -> str:
        """What scores and pictures call it."""
        ...

    @property
    def limits(self) -> str:
        """What those who read its forecasts should know, in a sentence or two; may be empty."""
        ...

    @property
    def region_half_m(self) -> float:
        """How far it predicts, forward, back and to the sides; infinite where it has no region."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """What decides a forecast beside guidance, steps and seed, for the files that tell how it was made."""
        ...

    @property
    def fingerprint(self) -> str:
        """Tells its weights and settings from all others; empty where the name and the settings do."""
        ...

    def forecast(
        self,
        past: Sequence[Sweep],
        future_poses: FloatArray,
        rays: Sequence[Rays] | None = None,
        *,
        guidance: float | None = None,
        steps: int | None = None,
        seed: int = 0,
        futures: int = 1,
    ) -> Forecast:
        """Forecast one sweep per future pose.

        past: sweeps, oldest first, evenly spaced, poses in one world frame.
        future_poses: (F, 4, 4) world_from_lidar in that world.
        rays: one `Rays` per future pose, in that frame's own lidar frame; None lets the model choose its points.
        guidance, steps: None: as stored with the model (`sampling_of`).
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How strongly and how finely a forecaster samples. The defaults are those of a model that stores nothing else, and
    stand in score files for forecasters that draw nothing.
    """

    guidance: float = 1.0
    steps: int = 10

    def changed(self, *, guidance: float | None = None, steps: int | None = None) -> Sampling:
        """The same, but for what is given."""
        return Sampling(
            guidance=self.guidance if guidance is None else guidance, steps=self.steps if steps is None else steps
        )


@runtime_checkable
class StoresSampling(Protocol):
    """A forecaster that has guidance and steps of its own."""

    @property
    def sampling(self) -> Sampling:
        """What it uses where a call leaves them open."""
        ...


def sampling_of(forecaster: object, *, guidance: float | None = None, steps: int | None = None) -> Sampling:
    """The numbers that a forecast with these arguments is made with, none of them open."""
    stored = forecaster.sampling if isinstance(forecaster, StoresSampling) else Sampling()
    return stored.changed(guidance=guidance, steps=steps)


class PlainForecaster:
    """What forecasters without weights and region say about themselves: a base class for baselines."""

    limits = ""
    region_half_m = math.inf
    settings: Mapping[str, Any] = MappingProxyType({})
    fingerprint = ""
    name: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


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
        self, past: Sequence[Sweep], *, guidance: float | None = None, steps: int | None = None, seed: int = 0,
        futures: int = 1,
    ) -> Imagination:  # fmt: skip
        """Begin after the past (oldest first, evenly spaced)."""
        ...


def check_forecast_input(
    past: Sequence[Sweep], future_poses: FloatArray, rays: Sequence[Rays] | None, *, futures: int = 1
) -> None:
    """Raise ForecastError where the arguments of `Forecaster.forecast` do not fit together."""
    check_past(past, futures=futures)
    if future_poses.ndim != 3 or future_poses.shape[1:] != (4, 4) or len(future_poses) == 0:
        raise ForecastError(f"future_poses must be (F, 4, 4) with F >= 1, got {future_poses.shape}")
    error = float(se3.rigidity_error(future_poses).max())
    if error > se3.RIGID_TOLERANCE:
        raise ForecastError(f"future_poses must be rigid motions; the worst is off by {error:.3g}")
    before = past[-1].world_from_lidar
    for at, pose in enumerate(future_poses):
        check_step(
            before, pose, name=f"future pose {at}", after=f"future pose {at - 1}" if at else "the newest past sweep"
        )
        before = pose
    if rays is not None and len(rays) != len(future_poses):
        raise ForecastError(f"one Rays per future pose is needed: {len(rays)} for {len(future_poses)} poses")


def check_past(past: Sequence[Sweep], *, futures: int) -> None:
    """Raise ForecastError where a forecast cannot begin after these sweeps."""
    if not past:
        raise ForecastError("a forecast needs at least one past sweep, got none; pass the newest sweep last")
    if not any(len(sweep) for sweep in past):
        raise ForecastError("all past sweeps are empty: there is nothing to forecast from")
    if any(b.timestamp_ns <= a.timestamp_ns for a, b in itertools.pairwise(past)):
        raise ForecastError("past sweeps must be in order of time, oldest first; their timestamps do not increase")
    if futures < 1:
        raise ForecastError(f"futures must be at least 1, got {futures}")


def check_step(world_from_before: FloatArray, world_from_next: FloatArray, *, name: str, after: str) -> None:
    """Raise ForecastError where a pose lies too far from the one before it to be of the same drive and world."""
    jump_m = float(np.linalg.norm(world_from_next[:3, 3] - world_from_before[:3, 3]))
    if jump_m > LONGEST_STEP_M:
        raise ForecastError(
            f"{name} lies {jump_m:.0f} m from {after}; at most {LONGEST_STEP_M:.0f} m lie between two "
            "frames of a drive. Give poses in the same world frame as the past sweeps' world_from_lidar"
        )


def warn_of_empty_frames(name: str, futures: Sequence[Forecast], newest: Sweep, *, region_half_m: float) -> None:
    """A frame without points, of an ego that has left the region of a model, is no forecast: say so."""
    for i, sweeps in enumerate(zip(*(future.sweeps for future in futures), strict=True)):
        ahead = se3.relative_motion(newest.world_from_lidar, sweeps[0].world_from_lidar)
        away_m = float(np.linalg.norm(ahead[:2, 3]))
        if away_m > region_half_m and not any(len(sweep) for sweep in sweeps):
            warnings.warn(
                f"frame {i} of the forecast has no points: its pose lies {away_m:.0f} m from the newest past sweep, "
                f"and {name} sees {region_half_m:.0f} m around it. Ask for poses nearer by",
                Copilot4dWarning, stacklevel=3,
            )  # fmt: skip


def warn_of_interval(name: str, past: Sequence[Sweep], known_s: Sequence[float]) -> bool:
    """A past whose median interval is none that a model was trained on (empty: not known): say so, and whether."""
    stamps = np.array([sweep.timestamp_ns for sweep in past], dtype=np.int64)
    if len(stamps) < 2 or not known_s:
        return False
    found_s = float(np.median(np.diff(stamps))) * 1e-9
    if any(abs(found_s - interval_s) <= INTERVAL_TOLERANCE * interval_s for interval_s in known_s):
        return False
    expected = " or ".join(f"{interval_s:g} s" for interval_s in known_s)
    warnings.warn(
        f"{name} was trained on sweeps {expected} apart, and these past sweeps are {found_s:.3g} s apart: its "
        f"forecasts may be worse than its scores. Take sweeps {expected} apart (`resample` picks them from a log), or "
        "train it with this interval",
        Copilot4dWarning, stacklevel=3,
    )  # fmt: skip
    return True


def future_timestamps(past: Sequence[Sweep], count: int) -> list[int]:
    """Timestamps that continue the past at its own rate (0.1 s where the past is a single sweep)."""
    stamps = np.array([sweep.timestamp_ns for sweep in past], dtype=np.int64)
    step = int(np.median(np.diff(stamps))) if len(stamps) > 1 else 100_000_000
    return [int(stamps[-1]) + step * (i + 1) for i in range(count)]

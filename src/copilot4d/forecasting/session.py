"""`ForecastSession`: a forecast one frame at a time. `step` is the method: encode, sample, decode, render, select.

Axes: S futures, P past frames, H/W tokens of a frame, R rays.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from copilot4d.baselines.occupancy_4d import FutureOccupancy, Occupancy4d
from copilot4d.depth_selection import DepthSelector, MeasuredPast, OccupancyDepths
from copilot4d.errors import ForecastError
from copilot4d.forecaster import ImaginedFrame, check_past, check_step, future_timestamps
from copilot4d.forecasting import stages
from copilot4d.forecasting.ray_reading import RayReading
from copilot4d.geometry import BeamPattern, Rays, Sweep, se3
from copilot4d.geometry.beam_pattern import estimate_beam_pattern
from copilot4d.geometry.se3 import FloatArray
from copilot4d.motion import ExtrapolatedPast, extrapolate
from copilot4d.tokenizer import Tokenizer
from copilot4d.world_model import Rollout, SamplerConfig, WorldModel


@dataclass(frozen=True)
class _Stretch:
    """Frames whose tokens share a reference: a rollout, the sweeps that it began with, that reference's pose, and the
    occupancy that was predicted after these sweeps.
    """

    rollout: Rollout
    sweeps: tuple[Sweep, ...]
    world_from_reference: FloatArray
    future_occupancy: FutureOccupancy | None = None
    carried_on: ExtrapolatedPast | None = None  # these sweeps, for a world model that reads what is expected

    @property
    def newest(self) -> int:
        """The index of its newest frame, counted from its first sweep."""
        return self.rollout.tokens.shape[1] - 1

    def fork(self) -> _Stretch:
        return replace(self, rollout=self.rollout.fork())


class ForecastSession:
    """Futures of one past, one frame at a time (see `copilot4d.forecaster.Imagination`).

    Of the past, the newest sweeps that the world model was trained with are used. Random numbers depend on (seed,
    future, frame, step) alone: a future is the same whether it is sampled alone or with others.

    When the window of the world model is full, token frame "own" forgets its oldest frames. With "reference" the
    reference moves: the newest frames are rendered with the sensor's beams, and what they show is encoded in the frame
    of the newest. That also happens, before the window is full, when the ego's next place lies outside the region (the
    tokenizer's grid around the reference): from there on, all that is ahead of the ego would be outside too. It never
    happens sooner: as long as the ego is in the region a forecast is what the model was trained on, one clip with one
    reference, the same whether it is scored, shown or driven through.

    readings: what the rays of the newest frame read in each future, before depths were selected.
    """

    def __init__(
        self, past: Sequence[Sweep], *, tokenizer: Tokenizer, world_model: WorldModel,
        depth_selector: DepthSelector | None, occupancy: Occupancy4d | None, pattern: BeamPattern | None,
        sampler: SamplerConfig, seed: int, futures: int,
    ) -> None:  # fmt: skip
        check_past(past, futures=futures)
        self.futures = futures
        self.readings: tuple[RayReading, ...] = ()
        self._tokenizer, self._world_model = tokenizer, world_model
        self._selector, self._occupancy = depth_selector, occupancy
        self._sampler, self._seed = sampler, seed
        self._frames = world_model.config.past_frames
        self._past = tuple(past[-self._frames :])
        if not any(len(sweep) for sweep in self._past):
            raise ForecastError(
                f"the newest {len(self._past)} sweeps are empty, and this model reads no older ones: "
                "there is nothing to forecast from"
            )
        # Estimated once, when it is first needed, for all forks.
        self._beams = functools.cache(lambda: pattern or estimate_beam_pattern(self._past))
        self._made = 0
        # The sweeps of the newest frames, of every future; None where other rays than the sensor's were given.
        self._generated: tuple[tuple[Sweep, ...] | None, ...] = ()
        selects_motion = depth_selector is not None and depth_selector.config.needs_motion
        # Found once, for the world model and the selector.
        self._carried_on = extrapolate(self._past) if selects_motion or world_model.config.expected_input else None
        self._measured = None
        if depth_selector is not None:
            self._measured = MeasuredPast.of(self._past, self._carried_on if selects_motion else None)
        self._stretches = [self._encode(self._past, range(futures))]

    def step(self, world_from_lidar: FloatArray, rays: Rays | None = None) -> tuple[ImaginedFrame, ...]:
        """The ego's next pose (4, 4) -> the next frame of every future. rays: in that frame's own lidar frame."""
        pose, pattern = _checked_pose(world_from_lidar), self.pattern if rays is None else None
        check_step(
            self._stretches[0].rollout.poses[0, -1], pose, name="the ego's next pose", after="the pose before it"
        )
        rays = self.pattern.rays() if rays is None else _checked_rays(rays)
        # Encode: the past was when the session began; here only where the reference must move.
        stretches = self._encode_newest() if self._must_move_reference(pose) else self._stretches
        # Sample: Algorithm 2, futures with one reference in one batch.
        timestamp_ns = future_timestamps(self._past, self._made + 1)[-1]
        sampled = [
            stretch.rollout.step(pose[None], self._expected(stretch, pose, timestamp_ns))[0] for stretch in stretches
        ]  # each (S, H, W)
        self._stretches, self._made = stretches, self._made + 1  # only now: a step that failed was not taken
        self._generated = (*self._generated, None)[-self._frames :]
        # Decode and render.
        self.readings = tuple(
            reading
            for stretch, tokens in zip(stretches, sampled, strict=True)
            for reading in self._render(stretch, stretch.newest, tokens, pose, rays)
        )
        # Select a depth for every ray, and make sweeps of them.
        selected = self._select(self.readings, pose, rays, timestamp_ns)
        frames = tuple(
            replace(reading.to_sweep(rays, pose, timestamp_ns, pattern=pattern), tokens=tokens.cpu().numpy())
            for reading, tokens in zip(selected, torch.cat(sampled), strict=True)
        )
        if pattern is not None:
            self._generated = (*self._generated[:-1], tuple(frame.sweep for frame in frames))
        return frames

    def fork(self) -> ForecastSession:
        """A copy that goes on by itself. Models, past and tokens are shared; the network's memory of them is copied."""
        copy: ForecastSession = object.__new__(ForecastSession)
        copy.__dict__.update(self.__dict__)
        copy._stretches = [stretch.fork() for stretch in self._stretches]
        return copy

    @property
    def pattern(self) -> BeamPattern:
        """The sensor's beams: given, or estimated from the past."""
        return self._beams()

    def _encode(self, sweeps: tuple[Sweep, ...], futures: Sequence[int]) -> _Stretch:
        """Tokens of these sweeps, and a rollout of these futures after them, whose random numbers go on."""
        poses = np.stack([sweep.world_from_lidar for sweep in sweeps])
        config = self._world_model.config
        reference = None if config.token_frame == "own" else poses[-1]
        # A model of short pasts has learned them as they are: only a whole past is gathered.
        is_gathered = config.gathered_past and config.first_position(len(sweeps)) == 0
        tokens = stages.encode(self._tokenizer, sweeps, reference, gathered_past=is_gathered)
        rollout = Rollout(
            self._world_model, tokens[None], poses[None], config=self._sampler, seed=self._seed, futures=list(futures),
            interval_s=_interval_s(sweeps),
        )  # fmt: skip
        rollout.made = self._made
        predicted = None if self._occupancy is None else FutureOccupancy.of(self._occupancy, sweeps)
        # One sweep does not tell what moves.
        carried_on = None
        if config.expected_input and len(sweeps) > 1:
            carried_on = self._carried_on if sweeps is self._past else extrapolate(sweeps)
        return _Stretch(rollout, sweeps, poses[-1], predicted, carried_on)

    def _expected(self, stretch: _Stretch, pose: FloatArray, timestamp_ns: int) -> Tensor | None:
        """(1, H, W) the tokens of the next frame if all went on as before; None where the model does not read them."""
        if stretch.carried_on is None:
            return None
        newest = stretch.sweeps[-1]
        reference = None if self._world_model.config.token_frame == "own" else stretch.world_from_reference
        ahead_s = (timestamp_ns - newest.timestamp_ns) * 1e-9
        return stages.encode_expected(self._tokenizer, stretch.carried_on, newest, ahead_s, pose, reference)

    def _render(
        self, stretch: _Stretch, frame: int, tokens: Tensor, pose: FloatArray, rays: Rays
    ) -> tuple[RayReading, ...]:
        """What rays read in tokens (S, H, W) of a stretch's frame, counted from its first sweep."""
        reference = None if self._world_model.config.token_frame == "own" else stretch.world_from_reference
        scene = self._tokenizer.decode(tokens)
        readings = stages.render(self._tokenizer, scene, rays, pose, reference, seed=self._seed)
        if stretch.future_occupancy is None:
            return readings
        depths = OccupancyDepths.of(stretch.future_occupancy, rays, pose, frame - len(stretch.sweeps))
        return tuple(replace(reading, occupancy=depths) for reading in readings)

    def _select(
        self, readings: Sequence[RayReading], pose: FloatArray, rays: Rays, timestamp_ns: int
    ) -> Sequence[RayReading]:
        """The same rays with selected depths; as they were rendered where the model has no selector."""
        if self._selector is None or self._measured is None:
            return readings
        measured = self._measured.along(rays, pose, timestamp_ns)
        return [reading.select(self._selector, measured, rays) for reading in readings]

    def _must_move_reference(self, world_from_lidar: FloatArray) -> bool:
        """Whether the next frame, at this pose, needs another reference than the frames so far: see the class."""
        config = self._world_model.config
        if config.token_frame == "own":
            return False  # the rollout slides its window by itself
        stretch = self._stretches[0]  # all have the ego's poses in common
        known = stretch.newest + 1
        if known == len(stretch.sweeps):
            return False  # the reference is the newest frame already
        place_m = se3.relative_motion(stretch.world_from_reference, world_from_lidar)[:3, 3]
        return not self._tokenizer.config.grid.contains(place_m) or stretch.rollout.is_full

    def _encode_newest(self) -> list[_Stretch]:
        """Each future by itself, encoded again from its newest frames as the sensor's beams read them."""
        return [
            self._encode(self._newest_sweeps(stretch, row), [future])
            for stretch in self._stretches
            for row, future in enumerate(stretch.rollout.futures)
        ]

    def _newest_sweeps(self, stretch: _Stretch, row: int) -> tuple[Sweep, ...]:
        """The last P frames of one future as sweeps: those it began with, and those that the sensor would measure."""
        rollout, sweeps = stretch.rollout, []
        count = stretch.newest + 1
        for i in range(max(0, count - self._frames), count):
            if i < len(stretch.sweeps):
                sweeps.append(stretch.sweeps[i])
                continue
            generated = self._generated[i - count]
            if generated is not None:
                sweeps.append(generated[rollout.futures[row]])
                continue
            pose, beams = rollout.poses[0, i], self.pattern.rays()
            timestamp_ns = future_timestamps(stretch.sweeps, i - len(stretch.sweeps) + 1)[-1]
            readings = self._render(stretch, i, rollout.tokens[row, i][None], pose, beams)
            (reading,) = self._select(readings, pose, beams, timestamp_ns)
            sweeps.append(reading.to_sweep(beams, pose, timestamp_ns, pattern=self.pattern).sweep)
        return tuple(sweeps)


def _interval_s(sweeps: Sequence[Sweep]) -> float:
    """The time between two sweeps; 0: a single one does not tell."""
    times_ns = [sweep.timestamp_ns for sweep in sweeps]
    return float(np.median(np.diff(times_ns))) * 1e-9 if len(sweeps) > 1 else 0.0


def _checked_pose(world_from_lidar: FloatArray) -> FloatArray:
    pose = np.asarray(world_from_lidar, dtype=np.float64)
    if pose.shape != (4, 4):
        raise ForecastError(f"the ego's next pose must be (4, 4), got {pose.shape}")
    error = float(se3.rigidity_error(pose)) if np.isfinite(pose).all() else np.inf
    if not error <= se3.RIGID_TOLERANCE:
        raise ForecastError(f"the ego's next pose must be a rigid motion; it is off by {error:.3g}")
    return pose


def _checked_rays(rays: Rays) -> Rays:
    if not (np.isfinite(rays.origins).all() and np.isfinite(rays.directions).all()):
        raise ForecastError("rays must have finite origins and directions; some here have NaN or infinity")
    return rays

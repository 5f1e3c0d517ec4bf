"""`ModelImagination`: tokenizer and world model, one imagined frame at a time.

Axes: S futures, P past frames, H/W tokens of a frame, R rays. Every decoded scene has one frame of its own, in which
its tokens were made: the sweep's lidar frame (token frame "own"), or the newest past sweep's ("reference"). Depths
along a ray are the same in both, so rays are carried into the scene's frame and the depths are used in the lidar's.
With a copy gate, rays that see what the past measured take its depths, and perhaps those of a second opinion (see
`copilot4d.copy_path`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from copilot4d.baselines.occupancy_4d import Foreseen, Occupancy4d
from copilot4d.copy_path import CopyGate, MeasuredPast, Opinion
from copilot4d.errors import ForecastError
from copilot4d.forecaster import check_forecast_input, future_timestamps
from copilot4d.geometry import BeamPattern, Rays, Sweep, gathered_sweep, se3
from copilot4d.geometry.beam_pattern import estimate_beam_pattern
from copilot4d.geometry.se3 import FloatArray
from copilot4d.imagination import ImaginedFrame
from copilot4d.model_seen import Seen
from copilot4d.tokenizer import Tokenizer
from copilot4d.world_model import Rollout, SamplerConfig, WorldModel

MASK63 = (1 << 63) - 1  # what a torch generator takes as a seed


@dataclass(frozen=True, kw_only=True)
class Models:
    """What every imagination of a forecaster shares and none changes."""

    tokenizer: Tokenizer
    world_model: WorldModel
    pattern: BeamPattern | None  # of the sensor; None: estimated from each past
    copy_gate: CopyGate | None = None  # None: rays see the decoded tokens alone
    second_opinion: Occupancy4d | None = None  # asked about every ray where there is one

    @property
    def in_own_frames(self) -> bool:
        """Whether each sweep is tokenised in its own lidar frame."""
        return self.world_model.config.token_frame == "own"

    def encode(self, sweeps: Sequence[Sweep], world_from_reference: FloatArray) -> Tensor:
        """(P, H, W) tokens of sweeps, in their own frames or in the reference frame, the first perhaps of all."""
        if not self.in_own_frames:
            reference_from_world = se3.invert(world_from_reference)
            sweeps = [replace(sweep, points=sweep.points_in(reference_from_world)) for sweep in sweeps]
        if self.world_model.config.gathered_past:
            sweeps = [gathered_sweep(sweeps), *sweeps[1:]]
        return self.tokenizer.encode(sweeps)

    def look(
        self, tokens: Tensor, world_from_lidar: FloatArray, world_from_reference: FloatArray, rays: Rays, seed: int
    ) -> tuple[Seen, ...]:
        """(S, H, W) tokens of one time -> what the rays, in that time's lidar frame, see in each of them."""
        scene_from_lidar = (
            se3.identity() if self.in_own_frames else se3.relative_motion(world_from_reference, world_from_lidar)
        )
        scene = self.tokenizer.decode(tokens)
        in_scene = rays.transformed(scene_from_lidar)
        seen = self.tokenizer.render(scene, [in_scene] * len(scene), seed=seed & MASK63)
        shape = (len(tokens), len(rays))
        values = (seen.answered_m, seen.opacity.clamp(0, 1), seen.returned, seen.exit_m)
        return tuple(map(Seen, *(value.view(shape).cpu().numpy() for value in values)))


@dataclass(frozen=True)
class _Stretch:
    """Frames whose tokens share a reference: a rollout, the sweeps that it began with, that reference's pose, and what
    a second opinion foresees after these sweeps.
    """

    rollout: Rollout
    sweeps: tuple[Sweep, ...]
    world_from_reference: FloatArray
    foreseen: Foreseen | None = None

    def fork(self) -> _Stretch:
        return replace(self, rollout=self.rollout.fork())


class ModelImagination:
    """Futures of one past, imagined frame by frame (see `copilot4d.imagination.Imagination`).

    Of the past, the newest sweeps that the world model was trained with are used. Random numbers depend on (seed,
    future, frame, step) alone: a future is the same whether it is imagined alone or with others.

    When the window of the world model is full, token frame "own" forgets its oldest frames. With "reference" the
    reference moves: the newest frames are looked at with the sensor's beams, and what they show is tokenised in the
    frame of the newest. That also happens, before the window is full, when the ego's next place lies outside the
    region (the tokenizer's grid around the reference): from there on, all that is ahead of the ego would be outside
    too. It never happens sooner, for as long as the ego is in the region a forecast is what the model was trained on:
    one clip with one reference, the same whether it is scored, shown or driven through.
    """

    def __init__(
        self, models: Models, past: Sequence[Sweep], *, sampler: SamplerConfig, seed: int, futures: int
    ) -> None:
        check_forecast_input(past, se3.identity((1,)), None, futures=futures)
        self.futures = futures
        self._models, self._seed = models, seed
        self._sampler = sampler
        self._frames = models.world_model.config.past_frames
        self._past = tuple(past[-self._frames :])
        if not any(len(sweep) for sweep in self._past):
            raise ForecastError(
                f"the newest {len(self._past)} sweeps are empty, and this model looks at no older ones: "
                "there is nothing to forecast from"
            )
        # Estimated once, when it is first needed, for all forks.
        self._beams = functools.cache(lambda: models.pattern or estimate_beam_pattern(self._past))
        self._made = 0
        # What the beams saw of the newest frames, of every future; None where other rays were asked for.
        self._shown: tuple[tuple[Sweep, ...] | None, ...] = ()
        self._measured = None if models.copy_gate is None else MeasuredPast.of(self._past)
        self._stretches = [self._begin(self._past, range(futures))]

    def step(self, world_from_lidar: FloatArray, rays: Rays | None = None) -> tuple[ImaginedFrame, ...]:
        """The ego's next pose (4, 4) -> the next frame of every future. rays: in that frame's own lidar frame."""
        asked = self.pattern.rays() if rays is None else rays
        tokens, seen = self._advance(world_from_lidar, asked)
        pose, timestamp_ns = np.asarray(world_from_lidar, dtype=np.float64), self._timestamp_ns
        frames = []
        for its_seen, its_tokens in zip(seen, tokens, strict=True):
            frame = (
                its_seen.generated(self.pattern, pose, timestamp_ns)
                if rays is None
                else its_seen.on(rays, pose, timestamp_ns)
            )
            frames.append(replace(frame, tokens=its_tokens.cpu().numpy()))
        if rays is None:
            self._shown = (*self._shown[:-1], tuple(frame.sweep for frame in frames))
        return tuple(frames)

    def see(self, world_from_lidar: FloatArray, rays: Rays) -> list[Seen]:
        """As `step`, but what the rays see in every future rather than sweeps: depths, opacities, exits."""
        return self._advance(world_from_lidar, rays)[1]

    def _advance(self, world_from_lidar: FloatArray, rays: Rays) -> tuple[Tensor, list[Seen]]:
        """The next frame of every future: its tokens (S, H, W), and what the rays see in it."""
        pose = _checked_pose(world_from_lidar)
        if not (np.isfinite(rays.origins).all() and np.isfinite(rays.directions).all()):
            raise ForecastError("rays must have finite origins and directions; some here have NaN or infinity")
        stretches = self._with_moved_reference() if self._must_move_reference(pose) else self._stretches
        tokens = torch.cat([stretch.rollout.step(pose[None])[0] for stretch in stretches])  # (S, H, W)
        self._stretches = stretches  # only now: a step that failed was not taken
        self._made += 1
        self._shown = (*self._shown, None)[-self._frames :]
        return tokens, self._look(tokens, pose, rays, self._timestamp_ns)

    @property
    def _timestamp_ns(self) -> int:
        """Of the newest imagined frame."""
        return future_timestamps(self._past, self._made)[-1]

    def fork(self) -> ModelImagination:
        """A copy that goes on by itself. Models, past and tokens are shared; the network's memory of them is copied."""
        copy: ModelImagination = object.__new__(ModelImagination)
        copy.__dict__.update(self.__dict__)
        copy._stretches = [stretch.fork() for stretch in self._stretches]
        return copy

    @property
    def pattern(self) -> BeamPattern:
        """The sensor's beams: given, or estimated from the past."""
        return self._beams()

    def _look(self, tokens: Tensor, pose: FloatArray, rays: Rays, timestamp_ns: int) -> list[Seen]:
        """(S, H, W) tokens -> what each future's rays see; futures with one reference in one batch."""
        seen: list[Seen] = []
        for stretch in self._stretches:
            part = tokens[len(seen) : len(seen) + len(stretch.rollout.futures)]
            seen += self._look_at(stretch, stretch.rollout.tokens.shape[1] - 1, part, pose, rays)
        return self._copying(seen, pose, rays, timestamp_ns)

    def _look_at(self, stretch: _Stretch, frame: int, tokens: Tensor, pose: FloatArray, rays: Rays) -> list[Seen]:
        """What rays see in tokens (S, H, W) of a stretch's frame, counted from its first sweep; without copying."""
        seen = self._models.look(tokens, pose, stretch.world_from_reference, rays, self._seed)
        if stretch.foreseen is None:
            return list(seen)
        second = Opinion.of(stretch.foreseen, rays, pose, frame - len(stretch.sweeps))
        return [replace(one, second=second) for one in seen]

    def _copying(self, seen: Sequence[Seen], pose: FloatArray, rays: Rays, timestamp_ns: int) -> list[Seen]:
        """What the same rays see in several futures, with what the past measured along them."""
        gate = self._models.copy_gate
        if gate is None or self._measured is None:
            return list(seen)
        measured = self._measured.along(rays, pose, timestamp_ns)
        return [one.copying(gate, measured, rays) for one in seen]

    def _begin(self, sweeps: tuple[Sweep, ...], futures: Sequence[int]) -> _Stretch:
        """A rollout of these futures after these sweeps, with its random numbers going on from the frames so far."""
        poses = np.stack([sweep.world_from_lidar for sweep in sweeps])
        rollout = Rollout(
            self._models.world_model, self._models.encode(sweeps, poses[-1])[None], poses[None],
            config=self._sampler, seed=self._seed, futures=list(futures),
        )  # fmt: skip
        rollout.made = self._made
        second = self._models.second_opinion
        return _Stretch(rollout, sweeps, poses[-1], None if second is None else Foreseen.of(second, sweeps))

    def _must_move_reference(self, world_from_lidar: FloatArray) -> bool:
        """Whether the next frame, at this pose, needs another reference than the frames so far: see the class."""
        if self._models.in_own_frames:
            return False  # the rollout slides its window by itself
        stretch = self._stretches[0]  # all have the ego's poses in common
        known = stretch.rollout.tokens.shape[1]
        if known == len(stretch.sweeps):
            return False  # the reference is the newest frame already
        place_m = se3.relative_motion(stretch.world_from_reference, world_from_lidar)[:3, 3]
        is_outside = not self._models.tokenizer.config.grid.contains(place_m)
        return is_outside or known >= self._models.world_model.config.frames

    def _with_moved_reference(self) -> list[_Stretch]:
        """Each future by itself, begun again from its newest frames as the sensor sees them."""
        return [
            self._begin(self._newest_sweeps(stretch, row), [future])
            for stretch in self._stretches
            for row, future in enumerate(stretch.rollout.futures)
        ]

    def _newest_sweeps(self, stretch: _Stretch, row: int) -> tuple[Sweep, ...]:
        """The last P frames of one future as sweeps: those it began with, or what the beams see of imagined ones."""
        rollout, sweeps = stretch.rollout, []
        count = rollout.tokens.shape[1]
        for i in range(max(0, count - self._frames), count):
            if i < len(stretch.sweeps):
                sweeps.append(stretch.sweeps[i])
                continue
            shown = self._shown[i - count]
            if shown is not None:
                sweeps.append(shown[rollout.futures[row]])
                continue
            pose, tokens = rollout.poses[0, i], rollout.tokens[row, i][None]
            beams = self.pattern.rays()
            timestamp_ns = future_timestamps(stretch.sweeps, i - len(stretch.sweeps) + 1)[-1]
            alone = self._look_at(stretch, i, tokens, pose, beams)
            (seen,) = self._copying(alone, pose, beams, timestamp_ns)
            sweeps.append(seen.generated(self.pattern, pose, timestamp_ns).sweep)
        return tuple(sweeps)


def _checked_pose(world_from_lidar: FloatArray) -> FloatArray:
    pose = np.asarray(world_from_lidar, dtype=np.float64)
    if pose.shape != (4, 4):
        raise ForecastError(f"the ego's next pose must be (4, 4), got {pose.shape}")
    error = float(se3.rigidity_error(pose)) if np.isfinite(pose).all() else np.inf
    if not error <= se3.RIGID_TOLERANCE:
        raise ForecastError(f"the ego's next pose must be a rigid motion; it is off by {error:.3g}")
    return pose

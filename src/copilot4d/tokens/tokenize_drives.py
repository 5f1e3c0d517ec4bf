"""Drives to tokens: which sweeps, in which frame, batch by batch.

`own` (the paper): every sweep in its own lidar frame. `reference`: a clip is P past and F future frames around a
reference frame, and all its sweeps are moved into the reference's lidar frame first, so that static things keep their
tokens. With `gathered_past` a clip's oldest frame is of all its past sweeps together. Axes: C clips, T = P + F frames,
H/W tokens of a sweep.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from copilot4d.datasets.windows import SETTINGS, SPACING_TOLERANCE, frame_rule, spaced_windows
from copilot4d.errors import ProtocolError, UsageError
from copilot4d.geometry import Drive, Sweep, gathered_sweep, inside_box, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.motion import ExtrapolatedPast, extrapolate
from copilot4d.tokenizer.reconstruction import clean_sweep
from copilot4d.tokens.columns import MovingPoints, classify_columns
from copilot4d.tokens.token_cache import TokenCacheConfig

BATCH = 8

EncodeSweeps = Callable[[Sequence[Sweep]], Tensor]  # `Tokenizer.encode`


@dataclass(frozen=True)
class _Clips:
    frames: NDArray[np.int64]  # (C, T) of the drive
    references: NDArray[np.int64]  # (C,)
    intervals: NDArray[np.int64]  # (C,) in frames of the log


class _View(NamedTuple):
    """What is encoded at once: one frame, or several gathered, seen from a reference frame."""

    reference: int
    frames: tuple[int, ...]
    until: int = -1  # the frame to whose time what moves is carried on; -1: it stays where each sweep saw it


class _Read(NamedTuple):
    """A view's sweep, in the reference's frame, and which of its points move; None where nobody asks."""

    sweep: Sweep
    moving: NDArray[np.bool_] | None


class ClipEncoder:
    """A `DriveEncoder`: reads, moves and encodes the sweeps that a token cache needs."""

    def __init__(self, encode: EncodeSweeps, config: TokenCacheConfig, *, batch: int = BATCH) -> None:
        for text in config.intervals:
            _parsed(text)
        self._encode = encode
        self.config = config
        self.batch = batch

    def intervals(self, drive: Drive) -> tuple[int, ...]:
        """The intervals of its clips, in frames of this drive's log."""
        return log_intervals(drive, self.config.intervals)

    def count(self, drive: Drive) -> int:
        """How many sweeps are encoded for one variant of a drive."""
        return len(self._views(drive)[0])

    def encode(self, drive: Drive) -> Generator[None, None, Mapping[str, Tensor]]:
        """Yields once per sweep; returns the tokens, and which frames the clips are made of."""
        views, clips = self._views(drive)
        shape = (len(views), *self.config.token_shape)
        made = {"tokens": torch.empty(shape, dtype=self.config.dtype)}
        if self.config.columns:
            made["columns"] = torch.empty(shape, dtype=torch.uint8)
        done = 0
        for batch in self._batches(drive, views):
            these = slice(done, done + len(batch))
            made["tokens"][these] = self._encode([read.sweep for read in batch]).to(self.config.dtype)
            if self.config.columns:
                made["columns"][these] = torch.from_numpy(np.stack([self._columns(read) for read in batch]))
            done += len(batch)
            yield from [None] * len(batch)
        if clips is None:
            return made
        rows, T = {view: i for i, view in enumerate(views)}, clips.frames.shape[1]
        where = [[rows[view] for view in its_views] for its_views in self._views_of(clips)]
        asked = T + (self.config.future_frames if self.config.expected else 0)
        chosen = torch.tensor(where, dtype=torch.int64).reshape(-1, asked)
        kept = {name: tensor[chosen[:, :T]] for name, tensor in made.items()}
        if self.config.expected:
            past = self.config.past_frames
            kept["expected"] = torch.full_like(kept["tokens"], self.config.vocabulary)
            kept["expected"][:, past:] = made["tokens"][chosen[:, T:]]
        return {
            **kept,
            "clip_frames": torch.from_numpy(clips.frames),
            "references": torch.from_numpy(clips.references),
            "intervals": torch.from_numpy(clips.intervals),
        }

    def _views(self, drive: Drive) -> tuple[list[_View], _Clips | None]:
        """All that is to encode, each view once though clips share it."""
        if self.config.token_frame == "own":
            return [_View(frame, (frame,)) for frame in range(len(drive))], None
        clips = self._clips(drive)
        return sorted({view for its_views in self._views_of(clips) for view in its_views}), clips

    def _views_of(self, clips: _Clips) -> Iterator[list[_View]]:
        """The T views of each clip, and F more where what is expected is asked for."""
        for reference, frames in zip(clips.references.tolist(), clips.frames.tolist(), strict=True):
            views = [_View(reference, (frame,)) for frame in frames]
            if self.config.gathered_past:
                views[0] = _View(reference, tuple(frames[: self.config.past_frames]))
            if self.config.expected:
                past = self.config.past_frames
                views += [_View(reference, tuple(frames[:past]), until) for until in frames[past:]]
            yield views

    def _clips(self, drive: Drive) -> _Clips:
        config = self.config
        windows = [
            (window, interval)
            for interval in self.intervals(drive)
            for window in spaced_windows(drive, n_in=config.past_frames, n_out=config.future_frames, step=interval,
                                         every=config.reference_every)
        ]  # fmt: skip
        windows.sort(key=lambda pair: (pair[0].reference, pair[1]))
        T = config.past_frames + config.future_frames
        frames = [[*window.past, *window.future] for window, _ in windows]
        return _Clips(
            frames=np.array(frames, dtype=np.int64).reshape(-1, T),
            references=np.array([window.reference for window, _ in windows], dtype=np.int64),
            intervals=np.array([interval for _, interval in windows], dtype=np.int64),
        )

    def _columns(self, read: _Read) -> NDArray[np.uint8]:
        if read.moving is None:  # what is expected has no truth
            return np.zeros(self.config.token_shape, dtype=np.uint8)
        return classify_columns(read.sweep.points, read.moving, self.config.grid, self.config.token_shape)

    def _batches(self, drive: Drive, views: Sequence[_View]) -> Iterator[list[_Read]]:
        """The sweeps to encode, a batch ahead of the network."""
        if not views:
            return
        reader = _Reader(drive, views, self.config.grid.box, columns=self.config.columns)
        starts = range(0, len(views), self.batch)
        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(reader.read, 0, self.batch)
            for start in starts:
                sweeps = ahead.result()
                if start + self.batch < len(views):
                    ahead = pool.submit(reader.read, start + self.batch, start + 2 * self.batch)
                yield sweeps


class _Reader:
    """Reads each sweep once, although many references look at it."""

    def __init__(self, drive: Drive, views: Sequence[_View], box: FloatArray, *, columns: bool) -> None:
        self._drive, self._views, self._box = drive, views, box.astype(np.float32)
        # the oldest frame that this view or any later one needs: older sweeps may go
        self._oldest = np.minimum.accumulate([min(view.frames) for view in views][::-1])[::-1]
        self._kept: dict[int, Sweep] = {}
        self._motion = MovingPoints(drive, self._sweep) if columns else None
        self._moving: dict[int, NDArray[np.bool_]] = {}
        self._carried_on: tuple[tuple[int, ...], ExtrapolatedPast] | None = None  # the last that was asked for

    def read(self, start: int, stop: int) -> list[_Read]:
        """The sweeps of some views, each in its reference's frame."""
        found = [self._view(view) for view in self._views[start:stop]]
        oldest = self._oldest[min(stop, len(self._views)) - 1]
        self._kept = {frame: sweep for frame, sweep in self._kept.items() if frame >= oldest}
        self._moving = {frame: moving for frame, moving in self._moving.items() if frame >= oldest}
        return found

    def _view(self, view: _View) -> _Read:
        if view.until >= 0:
            return _Read(self._expected(view), None)
        parts = [self._in_reference(view.reference, frame) for frame in view.frames]
        moving = [part.moving for part in parts if part.moving is not None]
        return _Read(gathered_sweep([part.sweep for part in parts]), np.concatenate(moving) if moving else None)

    def _expected(self, view: _View) -> Sweep:
        """The past carried on to the time of another frame."""
        if self._carried_on is None or self._carried_on[0] != view.frames:
            self._carried_on = view.frames, extrapolate([self._sweep(frame) for frame in view.frames])
        times_ns = self._drive.timestamps_ns
        ahead_s = float(times_ns[view.until] - times_ns[view.reference]) * 1e-9
        return self._carried_on[1].sweep_at(ahead_s, self._sweep(view.reference), self._box)

    def _in_reference(self, reference: int, frame: int) -> _Read:
        poses, sweep = self._drive.world_from_lidar, self._sweep(frame)
        moving = self._moving_of(frame)
        if reference != frame:
            sweep = moved_sweep(sweep, poses[frame], poses[reference])
        # What lies outside of the grid has no voxel: dropping it here spares the network's thread the work.
        inside = np.flatnonzero(inside_box(sweep.points, self._box))
        return _Read(sweep.select(inside), None if moving is None else moving[inside])

    def _sweep(self, frame: int) -> Sweep:
        if frame not in self._kept:
            read: Sweep = self._drive[frame].without_box(self._drive.ego_box)
            self._kept[frame] = clean_sweep(replace(read, intensity=None))
        return self._kept[frame]

    def _moving_of(self, frame: int) -> NDArray[np.bool_] | None:
        if self._motion is not None and frame not in self._moving:
            self._moving[frame] = self._motion.of(frame, self._sweep(frame))
        return None if self._motion is None else self._moving[frame]


def moved_sweep(sweep: Sweep, world_from_lidar: FloatArray, world_from_reference: FloatArray) -> Sweep:
    """A sweep in another lidar frame of the same world; its pose becomes that frame's."""
    reference_from_lidar = se3.relative_motion(world_from_reference, world_from_lidar)
    if sweep.origins is None:
        origins = np.broadcast_to(reference_from_lidar[:3, 3].astype(np.float32), sweep.points.shape)
    else:
        origins = se3.transform_points(reference_from_lidar, sweep.origins)
    points = se3.transform_points(reference_from_lidar, sweep.points)
    return replace(sweep, points=points, origins=origins, world_from_lidar=world_from_reference)


def log_intervals(drive: Drive, asked: Sequence[str]) -> tuple[int, ...]:
    """Intervals in frames of a drive's log, rising.

    asked: "protocol" (the spacings of the protocol's 1s and 3s settings at this drive's rate), seconds ("0.2s"), or
    frames of the log ("2").
    """
    steps: set[int] = set()
    for text in asked:
        wanted = _parsed(text)
        if isinstance(wanted, int):
            steps.add(wanted)
        elif wanted is None:
            steps |= _protocol_steps(drive)
        elif not math.isnan(drive.interval_s):  # a single sweep has no clip anyway
            step = max(1, round(wanted / drive.interval_s))
            if abs(step * drive.interval_s - wanted) > SPACING_TOLERANCE * wanted:
                raise UsageError(
                    f"`intervals` {text}: drive {drive.name} has a sweep each {drive.interval_s:.3g} s, and no whole "
                    f"number of them comes within {SPACING_TOLERANCE:.0%} of {wanted:g} s; the nearest is "
                    f"{step * drive.interval_s:.3g}s"
                )
            steps.add(step)
    return tuple(sorted(steps))


def _parsed(text: str) -> int | float | None:
    """Frames, seconds, or None for the protocol's."""
    if text == "protocol":
        return None
    if re.fullmatch(r"[1-9]\d*", text):
        return int(text)
    if re.fullmatch(r"\d+(\.\d+)?s", text) and float(text[:-1]) > 0:
        return float(text[:-1])
    raise UsageError(f"`intervals` takes protocol, seconds (0.2s) or frames of the log (2), got {text!r}")


def _protocol_steps(drive: Drive) -> set[int]:
    steps, problems = set(), []
    for setting in SETTINGS:
        try:
            steps.add(frame_rule(drive, setting).step)
        except ProtocolError as error:
            problems.append(error)
    if not steps:
        raise UsageError(f"{problems[0]}. Or name other intervals, such as `intervals` {drive.interval_s:.3g}s")
    return steps

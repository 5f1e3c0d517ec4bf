"""The frames of the protocol's 1s and 3s settings: which sweeps go in, which come out, for each reference frame.

The rules are those of the public 4D-Occ data set classes, with two additions. The step between frames comes from the
drive's timestamps, not from a constant, so that a log at 5 Hz takes every sweep where one at 10 Hz takes every second.
And frames are found by time: each is the sweep within half a sweep of its place on the log's own clock
(`geometry.clock`). One that is not there is missing, and never replaced by its neighbour.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import ProtocolError, UsageError
from copilot4d.geometry import Clip, Drive, clock

SETTINGS = ("1s", "3s")
SECONDS = {"1s": 1.0, "3s": 3.0}
SPACING_TOLERANCE = 0.1  # of the wanted spacing; real "10 Hz" lidars run between 9.6 and 10.4 Hz
FRAME_TOLERANCE = 0.5  # of a sweep: how far from its place on the log's clock a frame may lie

_KEYFRAME_INTERVAL_S = 0.5
_NOMINAL_INTERVAL_S = 0.1  # taken for a drive of a single sweep, whose rate is unknown
_DENSE_FRAMES = 5  # in, and out
_ARGOVERSE2_EVERY = 5  # of the strided sweeps of all logs


@dataclass(frozen=True, kw_only=True)
class FrameRule:
    """How a setting picks frames in one drive: `n_in` past and `n_out` future frames, `step` sweeps apart."""

    n_in: int
    n_out: int
    step: int
    keyframes: bool  # nuScenes' rule: only references with a whole past and future
    every: int = 1  # the drive's references are taken from frames 0, every, 2 every, ...

    @property
    def first_complete_reference(self) -> int:
        """The first reference frame whose past and future are whole, in a drive without gaps."""
        if self.keyframes:
            return self.n_in  # not n_in - 1: the public code starts one later, and its counts are the published ones
        return self.every * math.ceil((self.n_in - 1) * self.step / self.every)

    @property
    def sweeps_needed(self) -> int:
        """How many consecutive sweeps a drive needs for its first complete window."""
        return self.first_complete_reference + self.n_out * self.step + 1


@dataclass(frozen=True, kw_only=True)
class Window:
    """The frames of one forecast, as indices into the drive."""

    drive: str
    reference: int
    past: tuple[int, ...]  # oldest first, the last one is the reference
    future: tuple[int, ...]  # frame k is k + 1 steps after the reference; ends before the first missing frame
    complete: bool  # all n_in and n_out frames exist


def frame_rule(drive: Drive, setting: str) -> FrameRule:
    """The rule of a setting for one drive. ProtocolError where the drive's rate does not fit the setting."""
    if setting not in SETTINGS:
        raise UsageError(f"the protocol has the settings {' and '.join(SETTINGS)}, not {setting!r}")
    interval_s = drive.interval_s
    if math.isnan(interval_s):
        interval_s = _KEYFRAME_INTERVAL_S if drive.format == "nuscenes" else _NOMINAL_INTERVAL_S
    rule = _rule(drive.format, interval_s, setting)
    if rule is None:
        raise ProtocolError(_rate_message(drive, interval_s, setting))
    return rule


def protocol_windows(drives: Mapping[str, Drive], setting: str, *, every: int = 1) -> list[Window]:
    """All reference frames of the protocol with their windows, in its order, then every `every`-th of those.

    nuScenes: per scene, keyframes n_in ... len - n_out - 1. Argoverse 2: each log strided first, the strided logs
    concatenated in the order given, every fifth entry. All others: every frame, with whatever past and future it has.
    """
    if every < 1:
        raise UsageError(f"every must be at least 1, got {every}: every=5 scores each fifth reference frame")
    windows, strided = [], 0
    for name, drive in drives.items():
        rule = frame_rule(drive, setting)
        if drive.format == "argoverse2":
            entries = range(0, len(drive), rule.step)
            references: range = entries[-strided % _ARGOVERSE2_EVERY :: _ARGOVERSE2_EVERY]
            strided += len(entries)
        elif rule.keyframes:
            references = range(rule.n_in, len(drive) - rule.n_out)
        else:
            references = range(len(drive))
        readings = _readings(drive)
        windows += [_window(name, reference, readings, rule) for reference in references]
    return windows[::every]


def window_at(drive: Drive, reference: int, setting: str) -> Window:
    """The window of any frame, also of one that is no reference of the protocol (0 <= reference < len(drive))."""
    if not 0 <= reference < len(drive):
        raise UsageError(f"drive {drive.name} has frames 0..{len(drive) - 1}, not {reference}")
    return _window(drive.name, reference, _readings(drive), frame_rule(drive, setting))


def spaced_windows(drive: Drive, *, n_in: int, n_out: int, step: int, every: int = 1) -> list[Window]:
    """The complete windows of `n_in` + `n_out` frames, `step` sweeps apart, around each `every`-th frame of a drive.

    The protocol's windows of a setting are those of its own step; training may take others. No window spans a gap.
    """
    if min(n_in, step, every) < 1 or n_out < 0:
        raise UsageError(f"windows need n_in, step and every of at least 1, got {n_in}, {step} and {every}")
    readings, rule = _readings(drive), FrameRule(n_in=n_in, n_out=n_out, step=step, keyframes=False)
    windows = (_window(drive.name, reference, readings, rule) for reference in range(0, len(drive), every))
    return [window for window in windows if window.complete]


def spaced_frames(drive: Drive, *, n_in: int, n_out: int, step: int) -> NDArray[np.int32]:
    """(windows, n_in + n_out) the frames of `spaced_windows`, all at once: for data sets of millions of windows."""
    readings = _readings(drive)
    references = np.arange(len(drive))
    columns, whole = [], np.ones(len(drive), dtype=bool)
    for k in range(1 - n_in, n_out + 1):
        place = np.rint(readings) + k * step
        after = np.searchsorted(readings, place)
        before, behind = np.maximum(after - 1, 0), np.minimum(after, len(drive) - 1)
        nearer_before = np.abs(readings[before] - place) <= np.abs(readings[behind] - place)
        frames = references if k == 0 else np.where(nearer_before, before, behind)
        if k:
            whole &= np.abs(readings[frames] - place) < FRAME_TOLERANCE
        columns.append(frames)
    return np.stack(columns, axis=1)[whole].astype(np.int32)


def read_clip(drive: Drive, window: Window) -> Clip:
    """Read the sweeps of a window, without the returns from the ego vehicle's own body."""
    return Clip(
        drive=window.drive,
        past=tuple(drive[i].without_box(drive.ego_box) for i in window.past),
        future=tuple(drive[i].without_box(drive.ego_box) for i in window.future),
        past_frames=window.past,
        future_frames=window.future,
    )


def explain_missing(drive: Drive, setting: str) -> str:
    """Which frames the first complete window of a drive would need, and which of them are missing."""
    try:
        rule = frame_rule(drive, setting)
    except ProtocolError as error:
        return str(error)
    name, length, needed = drive.name, len(drive), rule.sweeps_needed
    kind = "keyframe" if drive.format == "nuscenes" else "sweep"
    rate = "" if math.isnan(drive.interval_s) else f" at {_hz(drive.interval_s)}"
    has = f"drive {name} has {length} {kind}{'' if length == 1 else 's'}{rate}; the {setting} setting needs {needed}"
    complete = sum(window.complete for window in protocol_windows({name: drive}, setting))
    if complete:
        return f"drive {name} has {complete} complete window{'' if complete == 1 else 's'} of the {setting} setting"
    if length < needed:
        missing = f"frame {length} is" if length == needed - 1 else f"frames {length}..{needed - 1} are"
        return f"{has} consecutive {kind}s: {missing} missing"
    gaps = [f"{lost} after frame {i}" for i, lost in _gaps(drive)]
    shown = ", ".join(gaps[:5]) + (f" and {len(gaps) - 5} more places" if len(gaps) > 5 else "")
    start, stop = _longest_stretch(drive)
    return (
        f"{has} without a gap, but {kind}s are missing: {shown}. "
        f"The longest stretch without a gap is frames {start}..{stop - 1} ({stop - start} {kind}s)"
    )


def _rule(drive_format: str, interval_s: float, setting: str) -> FrameRule | None:
    seconds = SECONDS[setting]
    at_keyframe_rate = abs(interval_s - _KEYFRAME_INTERVAL_S) <= SPACING_TOLERANCE * _KEYFRAME_INTERVAL_S
    if drive_format == "nuscenes" or (at_keyframe_rate and drive_format != "argoverse2"):
        frames = round(seconds / _KEYFRAME_INTERVAL_S)
        return FrameRule(n_in=frames, n_out=frames, step=1, keyframes=True) if at_keyframe_rate else None
    spacing_s = seconds / _DENSE_FRAMES
    step = math.floor(spacing_s / interval_s + 0.5)
    if step < 1 or abs(step * interval_s - spacing_s) > SPACING_TOLERANCE * spacing_s:
        return None
    every = step * _ARGOVERSE2_EVERY if drive_format == "argoverse2" else 1
    return FrameRule(n_in=_DENSE_FRAMES, n_out=_DENSE_FRAMES, step=step, keyframes=False, every=every)


def _rate_message(drive: Drive, interval_s: float, setting: str) -> str:
    head = f"drive {drive.name} ({drive.format}) runs at {_hz(interval_s)}, {interval_s:.3g} s a sweep"
    if drive.format == "nuscenes":
        return (
            f"{head}, but the protocol scores the 2 Hz keyframes of nuScenes, {_KEYFRAME_INTERVAL_S} s apart; "
            'open the data set without @20hz (sweeps="keyframes"), or give the seconds between frames (intervals)'
        )
    spacing_s = SECONDS[setting] / _DENSE_FRAMES
    fits = [other for other in SETTINGS if _rule(drive.format, interval_s, other) is not None]
    return (
        f"{head}; the {setting} setting needs sweeps {spacing_s:.1f} s apart (within {SPACING_TOLERANCE:.0%}), and no "
        f"whole number of sweeps comes near that. Settings that fit this rate: {', '.join(fits) or 'none'}; rates "
        "that fit both settings are 2, 5, 10, 15 and 20 Hz: resample the log to one of them"
    )


def _readings(drive: Drive) -> NDArray[np.float64]:
    """(N,) each sweep's place on the log's clock, in sweeps.

    nuScenes' keyframes are the protocol's frames whatever their spacing: there, places are the indices.
    """
    keyframes = drive.format == "nuscenes" and not drive.interval_s < _KEYFRAME_INTERVAL_S / 2
    return np.arange(len(drive), dtype=np.float64) if keyframes else clock.readings(drive.timestamps_ns)


def _gaps(drive: Drive) -> list[tuple[int, int]]:
    """Each frame after which sweeps are missing, and how many."""
    lost = np.maximum(0, np.diff(np.rint(_readings(drive)).astype(np.int64)) - 1)
    return [(int(i), int(lost[i])) for i in np.flatnonzero(lost)]


def _longest_stretch(drive: Drive) -> tuple[int, int]:
    """The longest run of frames without a gap: start, stop."""
    cuts = [0, *(i + 1 for i, _ in _gaps(drive)), len(drive)]
    return max(itertools.pairwise(cuts), key=lambda run: run[1] - run[0])


def _window(name: str, reference: int, readings: NDArray[np.float64], rule: FrameRule) -> Window:
    past = (reference, *_walk(reference, -rule.step, rule.n_in - 1, readings))[::-1]
    future = tuple(_walk(reference, rule.step, rule.n_out, readings))
    complete = len(past) == rule.n_in and len(future) == rule.n_out
    return Window(drive=name, reference=reference, past=past, future=future, complete=complete)


def _walk(reference: int, step: int, count: int, readings: NDArray[np.float64]) -> Iterator[int]:
    """The frames one, two, ... `count` steps from the reference, up to the first that is not there."""
    for k in range(1, count + 1):
        place = np.rint(readings[reference]) + k * step
        after = int(np.searchsorted(readings, place))
        beside = [frame for frame in (after - 1, after) if 0 <= frame < len(readings)]
        frame = min(beside, key=lambda frame: abs(readings[frame] - place))
        if abs(readings[frame] - place) >= FRAME_TOLERANCE:
            return
        yield frame


def _hz(interval_s: float) -> str:
    return f"{1 / interval_s:.3g} Hz"

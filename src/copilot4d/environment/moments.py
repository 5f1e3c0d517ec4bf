"""Where episodes begin: moments of drives, given one by one or drawn from a whole data set."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from copilot4d.datasets import open_dataset
from copilot4d.datasets.windows import explain_missing, frame_rule, protocol_windows, window_at
from copilot4d.errors import ProtocolError, UsageError
from copilot4d.geometry import Drive, Sweep

KNOWN_OPTIONS = ("drive", "frame", "past")
_MOST_DRIVES = 64  # whose frames are remembered


class Moment(NamedTuple):
    """A moment of a real or simulated drive: `drive[frame]` is the newest sweep that is known."""

    drive: Drive
    frame: int


# A data set's name or path; drives by name; one drive; one moment; some moments.
Moments: TypeAlias = str | Path | Mapping[str, Drive] | Drive | tuple[Drive, int] | Sequence[tuple[Drive, int]]


class Beginning(NamedTuple):
    """The past of an episode (oldest first), and where it comes from."""

    past: tuple[Sweep, ...]
    drive: str
    frame: int  # -1 where sweeps were given instead of a moment


class Beginnings:
    """Draws moments and reads their past. Nothing of a drive is read before it is drawn."""

    def __init__(self, moments: Moments, setting: str) -> None:
        self.setting = setting
        self._drives: Mapping[str, Drive] = {}
        self._moments: tuple[Moment, ...] = ()
        self._frames: dict[int, tuple[Drive, tuple[int, ...]]] = {}  # by id: the frames with a whole past
        self._last: tuple[Moment, Beginning] | None = None  # an environment of one moment reads it once
        if isinstance(moments, str | Path):
            self._drives = open_dataset(moments)
        elif isinstance(moments, Drive):
            self._drives = {moments.name: moments}
        elif isinstance(moments, Mapping):
            self._drives = moments
        else:
            pairs = [moments] if _is_moment(moments) else list(moments)
            self._moments = tuple(_checked(pair) for pair in pairs)
            for moment in self._moments:
                self._past_frames(moment)
        if not self._drives and not self._moments:
            raise UsageError(
                "an environment needs moments to begin from, got none: give a data set, a drive or moments"
            )

    def begin(self, rng: np.random.Generator, options: Mapping[str, Any] | None) -> Beginning:
        """The beginning that the options name; what they leave open is drawn."""
        options = options or {}
        if "past" in options:
            return _of_sweeps(options["past"])
        moment = self._moment(rng, options)
        if self._last is None or self._last[0].drive is not moment.drive or self._last[0].frame != moment.frame:
            drive = moment.drive
            past = tuple(drive[i].without_box(drive.ego_box) for i in self._past_frames(moment))
            self._last = (moment, Beginning(past, drive.name, moment.frame))
        return self._last[1]

    def _moment(self, rng: np.random.Generator, options: Mapping[str, Any]) -> Moment:
        wanted = options.get("drive")
        if isinstance(wanted, Drive):
            return self._of_drive(rng, wanted, options.get("frame"))
        if self._moments:
            fitting = [m for m in self._moments if wanted in (None, m.drive.name)]
            fitting = [m for m in fitting if options.get("frame") in (None, m.frame)]
            if not fitting:
                raise UsageError(f"none of the {len(self._moments)} moments has {_shown(options)}")
            return fitting[int(rng.integers(len(fitting)))]
        if wanted is not None:
            if wanted not in self._drives:
                names = ", ".join(list(self._drives)[:12])
                raise UsageError(f"there is no drive {wanted!r} to begin from; some that are: {names}")
            return self._of_drive(rng, self._drives[wanted], options.get("frame"))
        if options.get("frame") is not None and len(self._drives) != 1:
            raise UsageError(f"{_shown(options)}: of which drive? Add drive=NAME to the options")
        return self._of_any_drive(rng, options.get("frame"))

    def _of_any_drive(self, rng: np.random.Generator, frame: int | None) -> Moment:
        names = list(self._drives)
        order = rng.permutation(len(names))
        for k in order:
            drive = self._drives[names[k]]
            if frame is not None or self._whole(drive):
                return self._of_drive(rng, drive, frame)
        why = "; ".join(explain_missing(self._drives[name], self.setting) for name in names[:3])
        raise ProtocolError(f"no drive has a moment with a whole past of the {self.setting} setting: {why}")

    def _of_drive(self, rng: np.random.Generator, drive: Drive, frame: int | None) -> Moment:
        if frame is not None:
            moment = _checked((drive, frame))
            self._past_frames(moment)
            return moment
        frames = self._whole(drive)
        if not frames:
            raise ProtocolError(
                f"drive {drive.name} has no moment with a whole past of the {self.setting} setting: "
                + explain_missing(drive, self.setting)
            )
        return Moment(drive, frames[int(rng.integers(len(frames)))])

    def _whole(self, drive: Drive) -> tuple[int, ...]:
        """The protocol's references in a drive that have a whole past."""
        if id(drive) not in self._frames:
            if len(self._frames) >= _MOST_DRIVES:
                self._frames.clear()
            n_in = frame_rule(drive, self.setting).n_in
            windows = protocol_windows({drive.name: drive}, self.setting)
            frames = tuple(window.reference for window in windows if len(window.past) == n_in)
            self._frames[id(drive)] = (drive, frames)  # with the drive: an id is one's own only while one lives
        return self._frames[id(drive)][1]

    def _past_frames(self, moment: Moment) -> tuple[int, ...]:
        frames = window_at(moment.drive, moment.frame, self.setting).past
        if len(frames) < 2:
            raise UsageError(
                f"drive {moment.drive.name}, frame {moment.frame} has no past of the {self.setting} setting: at least "
                "two sweeps are needed, the time between them is a step's; take a later frame"
            )
        return frames


def check_options(options: Mapping[str, Any] | None) -> None:
    """UsageError where the options of `reset` are none that it knows."""
    unknown = sorted(set(options or {}) - set(KNOWN_OPTIONS))
    if unknown:
        raise UsageError(f"reset has no option {', '.join(map(repr, unknown))}; it has: {', '.join(KNOWN_OPTIONS)}")
    if options and "past" in options and len(options) > 1:
        raise UsageError("reset takes either the sweeps of a past, or a drive and a frame, not both")


def _of_sweeps(past: Iterable[Sweep]) -> Beginning:
    sweeps = tuple(past)
    if len(sweeps) < 2 or not all(isinstance(sweep, Sweep) for sweep in sweeps):
        raise UsageError(
            f"options['past'] must be at least two sweeps, oldest first, got {len(sweeps)} "
            f"{'sweep' if len(sweeps) == 1 else 'things'}: the time between them is a step's"
        )
    if any(after.timestamp_ns <= before.timestamp_ns for before, after in itertools.pairwise(sweeps)):
        raise UsageError("options['past'] must be in order of time, oldest first; the timestamps do not increase")
    return Beginning(sweeps, "", -1)


def _is_moment(given: object) -> bool:
    return (
        isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], Drive) and not isinstance(given[1], tuple)
    )


def _checked(pair: Any) -> Moment:
    if not _is_moment(pair) or isinstance(pair[1], bool) or not isinstance(pair[1], int | np.integer):
        raise UsageError(
            f"a moment is (drive, frame), a Drive and a whole number, got {type(pair).__name__}: {pair!r:.80}"
        )
    return Moment(pair[0], int(pair[1]))


def _shown(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in options.items())

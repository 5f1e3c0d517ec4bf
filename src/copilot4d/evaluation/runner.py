"""`evaluate_dataset`: every window of the protocol through one forecaster, to one `ScoreFile`."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from copilot4d.datasets.windows import (
    SPACING_TOLERANCE,
    Window,
    explain_missing,
    frame_rule,
    protocol_windows,
)
from copilot4d.errors import ProtocolError, UsageError
from copilot4d.evaluation.held_signals import signals_held
from copilot4d.evaluation.protocol import Protocol
from copilot4d.evaluation.scores import ScoreFile
from copilot4d.evaluation.sweep_cache import CachedDrives
from copilot4d.evaluation.tally import Tally
from copilot4d.evaluation.unfinished import UnfinishedRun
from copilot4d.evaluation.window_score import EMPTY_ROI, NO_RAYS, Sampling
from copilot4d.evaluation.workers import Job, Workers, one_by_one, outcomes
from copilot4d.forecaster import Forecaster, sampling_of
from copilot4d.geometry import Drive
from copilot4d.progress import Track, silent

__all__ = ["BAD_SWEEP", "EMPTY_ROI", "NO_FUTURE", "NO_RAYS", "Workers", "evaluate_dataset", "protocol_references"]

OnBadSweep = Literal["raise", "skip"]

NO_FUTURE = "the future frame does not exist (end of the drive, or a missing sweep)"
BAD_SWEEP = "a sweep of its window could not be read"


def evaluate_dataset(
    forecaster: Forecaster,
    dataset: Mapping[str, Drive],
    *,
    setting: str,
    protocol: Protocol | None = None,
    every: int | None = None,
    limit: int | None = None,
    on_bad_sweep: OnBadSweep = "raise",
    seed: int = 0,
    guidance: float | None = None,
    steps: int | None = None,
    futures: int = 1,
    data: str = "",
    resume: Path | None = None,
    workers: Workers | None = None,
    about: Mapping[str, Any] = MappingProxyType({}),
    track: Track = silent,
) -> ScoreFile:
    """Score a forecaster on drives by name.

    setting: "1s" or "3s"; protocol: `Protocol()` by default; every, limit: put into the protocol where given.
    on_bad_sweep: "raise" stops at the first sweep that cannot be read, "skip" leaves out the windows that touch one.
    guidance, steps: None: as stored with the model; the score file has the numbers that were used.
    futures: how many are forecast; scores are those of the first, `several` tells of the best, the mean and the spread.
    data: how the score file names the data; resume: a file in which the run is kept and from which the same call goes
    on after an interrupt; remove it once the result is stored. workers: score in processes side by side, with the same
    numbers in the same order; about: what else the score file tells of the options. ProtocolError where the data has
    no complete window.
    """
    if on_bad_sweep not in ("raise", "skip"):
        raise UsageError(f"`on_bad_sweep` must be raise or skip, got {on_bad_sweep!r}")
    protocol = (protocol or Protocol()).with_changes(every=every, limit=limit)
    used = sampling_of(forecaster, guidance=guidance, steps=steps)
    sampling: Sampling = {"seed": seed, "guidance": used.guidance, "steps": used.steps, "futures": futures}
    windows = protocol_references(dataset, setting, protocol)
    scorable = [window for window in windows if window.future]
    drives = CachedDrives(dataset, capacity=_span(scorable))
    tally = Tally(parity=protocol.parity)
    unfinished = UnfinishedRun(resume, _key(forecaster, dataset, scorable, setting, protocol, sampling))
    done, earlier_s = unfinished.load(tally, drives)
    if on_bad_sweep == "raise" and drives.skipped():  # an earlier run was allowed to skip, this one is not
        drives, tally = CachedDrives(dataset, capacity=_span(scorable)), Tally(parity=protocol.parity)
        done, earlier_s = 0, 0.0
    started = time.monotonic() - earlier_s
    job = Job(protocol, sampling, on_bad_sweep == "skip", _span(scorable))
    description = f"{forecaster.name}, {setting}" + (f", from {done} on" if done else "")
    try:
        with contextlib.closing(
            outcomes(job, scorable[done:], workers) if workers else one_by_one(job, forecaster, drives, scorable[done:])
        ) as found:
            for outcome in track(found, description, total=len(scorable) - done):
                with signals_held():  # a window is in the tally and counted, or neither
                    drives.note(outcome.unreadable)
                    if outcome.scored is None:
                        tally.not_scored(BAD_SWEEP, len(scorable[done].future))
                    else:
                        outcome.scored.add_to(tally)
                    done += 1
                unfinished.save_when_due(tally, drives, done, time.monotonic() - started)
    finally:  # at an interrupt, at an error, and at the end: nothing that was scored is scored again
        unfinished.save(tally, drives, done, time.monotonic() - started)

    for window in windows:
        tally.not_scored(NO_FUTURE, frame_rule(dataset[window.drive], setting).n_out - len(window.future))
    if tally.frames_scored == 0:
        raise ProtocolError(f"no frame could be scored: {tally.reasons()}")
    return tally.score_file(
        protocol=protocol,
        model=forecaster.name,
        data=data or ", ".join(dataset),
        drives=list(dataset),
        setting=setting,
        skipped=drives.skipped(),
        futures=futures,
        options={
            **sampling,
            **forecaster.settings,
            "every": protocol.every,
            "limit": protocol.limit,
            "on_bad_sweep": on_bad_sweep,
            **about,
        },
        seconds=time.monotonic() - started,
    )


def _key(
    forecaster: Forecaster, dataset: Mapping[str, Drive], windows: list[Window], setting: str, protocol: Protocol,
    sampling: Sampling,
) -> dict[str, object]:  # fmt: skip
    """All that decides the scores of a run; a model may tell its weights apart by an attribute `fingerprint`.

    Data that was corrected after a run stopped at it is other data: poses, times, and each sweep file's size and date.
    """
    references = [(w.drive, int(dataset[w.drive].timestamps_ns[w.reference])) for w in windows]
    return {
        "model": forecaster.name, "fingerprint": forecaster.fingerprint, "setting": setting,
        "protocol": protocol.hash, **sampling,
        "windows": hashlib.sha256(repr(references).encode()).hexdigest(),
        "drives": {name: _fingerprint(dataset[name]) for name in {w.drive for w in windows}},
    }  # fmt: skip


def _fingerprint(drive: Drive) -> str:
    """What a drive's sweeps are made from, without reading their points."""
    digest = hashlib.sha256(np.ascontiguousarray(drive.world_from_lidar).tobytes())
    digest.update(np.ascontiguousarray(drive.timestamps_ns).tobytes())
    digest.update(b"" if drive.ego_box is None else drive.ego_box.tobytes())
    for path in getattr(drive.read, "paths", ()):
        found = Path(path).stat() if Path(path).exists() else None
        digest.update(repr(found and (found.st_size, found.st_mtime_ns)).encode())
    return digest.hexdigest()


def protocol_references(dataset: Mapping[str, Drive], setting: str, protocol: Protocol) -> list[Window]:
    """The windows that a protocol scores; UsageError or ProtocolError where there are none."""
    if not dataset:
        raise UsageError("there is no drive to evaluate on; look at `data`, `drives` and `split`")
    windows = protocol_windows(dataset, setting)
    if not any(window.complete for window in windows):
        shown = [explain_missing(drive, setting) for _, drive in zip(range(8), dataset.values(), strict=False)]
        more = [f"and {len(dataset) - 8} more drives"] if len(dataset) > 8 else []
        raise ProtocolError(f"no drive has a complete window of the {setting} setting: " + "; ".join([*shown, *more]))
    _check_one_spacing(dataset, setting)
    windows = windows[:: protocol.every]
    if protocol.limit is None:
        return windows
    with_future = [window for window in windows if window.future]
    return with_future[: protocol.limit]


def _check_one_spacing(dataset: Mapping[str, Drive], setting: str) -> None:
    """Refuse drives whose frames are not equally far apart: horizon k would be a different time in each."""
    spacings = []  # (-frames out, seconds between them, drive): in order of the time between frames
    for name, drive in dataset.items():
        if not math.isnan(drive.interval_s):  # one sweep alone has no future to score
            rule = frame_rule(drive, setting)
            spacings.append((-rule.n_out, rule.step * drive.interval_s, name))
    if not spacings:
        return
    (fewer, short_s, short), (more, long_s, long) = min(spacings), max(spacings)
    if fewer != more or long_s - short_s > SPACING_TOLERANCE * long_s:
        raise ProtocolError(
            f"the frames of drive {short} are {short_s:.3g} s apart ({-fewer} to forecast), those of drive {long} "
            f"{long_s:.3g} s ({-more} to forecast), so they have no horizon in common in the {setting} setting: "
            f"evaluate them apart, drive {short} and drive {long}"
        )


def _span(windows: list[Window]) -> int:
    """How many sweeps lie between the first and the last frame of a window: what consecutive windows can share."""
    return max((w.future[-1] - w.past[0] + 1 for w in windows), default=1)

"""What the demo asks: one moment, both settings, three ego plans, and the truth of each plan where it is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot4d.cli.demo_plans import braked, swerved
from copilot4d.cli.forecast_moment import ForecastMoment, Route, choose_moment, plan_route
from copilot4d.datasets import Dataset
from copilot4d.datasets.windows import SETTINGS, explain_missing, protocol_windows, window_at
from copilot4d.errors import ProtocolError, UsageError
from copilot4d.geometry import Drive, Sweep
from copilot4d.geometry.se3 import FloatArray

CAPTIONS = {
    "keep": "The ego drives on with the traffic.",
    "brake": "The ego brakes with 5 m/s² and stays where it stops.",
    "swerve": "The ego moves aside and back while it drives on.",
}
LOG_CAPTIONS = {**CAPTIONS, "keep": "What the ego of the log really did."}


@dataclass(frozen=True, kw_only=True)
class PlannedFuture:
    """One plan: where the ego goes, and what the lidar then sees. No truth: unknown."""

    name: str
    caption: str
    world_from_lidar: FloatArray  # (F, 4, 4)
    truth: tuple[Sweep | None, ...] = ()  # F, None where the log lacks a sweep; empty where it is unknown


@dataclass(frozen=True, kw_only=True)
class Question:
    """One moment in one setting: the past is common to all plans."""

    setting: str
    drive: str
    past: tuple[Sweep, ...]  # oldest first, without the ego's own body
    past_frames: tuple[int, ...]
    past_s: tuple[float, ...]  # relative to the moment
    future_s: tuple[float, ...]
    plans: tuple[PlannedFuture, ...]


def street_questions(drive: Drive, plan_drives: dict[str, Drive], frame: int) -> list[Question]:
    """At a sweep of a simulated drive; `plan_drives` have the same sweeps up to there, and then their own future."""
    questions = []
    for setting in SETTINGS:
        window = window_at(drive, frame, setting)
        if not window.complete:
            raise UsageError(
                f"--frame {frame} of drive {drive.name} has not all of its past and future in the {setting} setting; "
                f"frames 24 to {len(drive) - 31} have"
            )
        plans = tuple(
            PlannedFuture(
                name=name,
                caption=CAPTIONS[name],
                world_from_lidar=planned.world_from_lidar[list(window.future)],
                truth=tuple(planned[i].without_box(planned.ego_box) for i in window.future),
            )
            for name, planned in plan_drives.items()
        )
        past = tuple(drive[i].without_box(drive.ego_box) for i in window.past)
        future_s = _seconds(drive.timestamps_ns[list(window.future)], drive.timestamps_ns[frame])
        questions.append(_question(setting, drive.name, past, window.past, future_s, plans))
    return questions


def log_questions(dataset: Dataset, frame: int | None) -> list[Question]:
    """At a moment of a log (one drive): the truth of `keep` is the log's own future, other plans have none."""
    (name,) = dataset.names
    settings = usable_settings(dataset)
    if not settings:
        raise ProtocolError(
            f"no drive has a complete window to forecast: {explain_missing(dataset[name], SETTINGS[0])}"
        )
    if frame is None:
        whole = [
            {window.reference for window in protocol_windows(dataset, setting) if window.complete}
            for setting in settings
        ]
        common = sorted(set.intersection(*whole)) or sorted(whole[0])
        frame = common[len(common) // 2]
        settings = [setting for setting, references in zip(settings, whole, strict=True) if frame in references]
    return [_log_question(dataset, frame, setting) for setting in settings]


def usable_settings(dataset: Dataset) -> list[str]:
    """The settings of the protocol that have a complete window in the data."""
    usable = []
    for setting in SETTINGS:
        try:
            windows = protocol_windows(dataset, setting)
        except ProtocolError:  # the log's rate does not fit this setting
            continue
        if any(window.complete for window in windows):
            usable.append(setting)
    return usable


def _log_question(dataset: Dataset, frame: int, setting: str) -> Question:
    (name,) = dataset.names
    moment = choose_moment(dataset, name, frame, setting, "raise")
    route = plan_route(moment, setting, None)
    drive, now = moment.drive, moment.past[-1]
    future_s = _seconds(route.timestamps_ns, now.timestamp_ns)
    truth = tuple(None if i is None else drive[i].without_box(drive.ego_box) for i in route.frames)
    times_s, way = _own_way(moment, route)
    at = np.searchsorted(times_s, np.array(future_s) - 1e-9)
    plans = (
        PlannedFuture(name="keep", caption=LOG_CAPTIONS["keep"], world_from_lidar=route.world_from_lidar, truth=truth),
        PlannedFuture(name="brake", caption=LOG_CAPTIONS["brake"], world_from_lidar=braked(way, times_s)[at]),
        PlannedFuture(name="swerve", caption=LOG_CAPTIONS["swerve"], world_from_lidar=swerved(way, times_s)[at]),
    )
    return _question(setting, name, moment.past, moment.past_frames, future_s, plans)


def _own_way(moment: ForecastMoment, route: Route) -> tuple[FloatArray, FloatArray]:
    """Times from the moment on and the poses then: every sweep of the log, and the route where the log ends."""
    drive, start = moment.drive, moment.window.reference
    stamps: list[int] = [int(drive.timestamps_ns[start])]
    poses = [drive.world_from_lidar[start]]
    for k, frame in enumerate(route.frames):
        if frame is None:
            stamps.append(int(route.timestamps_ns[k]))
            poses.append(route.world_from_lidar[k])
            continue
        first = start + 1 if k == 0 else (route.frames[k - 1] or start) + 1
        stamps += [int(stamp) for stamp in drive.timestamps_ns[first : frame + 1]]
        poses += list(drive.world_from_lidar[first : frame + 1])
    return np.array(_seconds(np.array(stamps), stamps[0])), np.stack(poses)


def _question(
    setting: str, drive: str, past: tuple[Sweep, ...], frames: tuple[int, ...], future_s: tuple[float, ...],
    plans: tuple[PlannedFuture, ...],
) -> Question:  # fmt: skip
    stamps = np.array([sweep.timestamp_ns for sweep in past])
    return Question(
        setting=setting, drive=drive, past=past, past_frames=frames, past_s=_seconds(stamps, past[-1].timestamp_ns),
        future_s=future_s, plans=plans,
    )  # fmt: skip


def _seconds(stamps_ns: NDArray[np.int64], now_ns: int) -> tuple[float, ...]:
    return tuple(float(s) for s in (np.asarray(stamps_ns, dtype=np.int64) - int(now_ns)) * 1e-9)

"""Which moment of which drive `copilot4d forecast` starts from, and where the ego goes from there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets import Dataset
from copilot4d.datasets.pose_files import read_kitti_poses, read_tum_poses
from copilot4d.datasets.windows import SECONDS, Window, explain_missing, frame_rule, protocol_windows, window_at
from copilot4d.errors import DataError, ProtocolError, UsageError
from copilot4d.geometry import Drive, Sweep, se3
from copilot4d.geometry.motion import continue_motion
from copilot4d.geometry.se3 import FloatArray

OnBadSweep = Literal["raise", "skip"]
PoseSource = Literal["log", "constant velocity", "standing still", "file"]


@dataclass(frozen=True, kw_only=True)
class ForecastMoment:
    """A drive, the sweeps that the forecast sees, and the frames that are known to follow."""

    drive: Drive
    window: Window
    past: tuple[Sweep, ...]  # without the ego's own body
    past_frames: tuple[int, ...]  # may be fewer than window.past: see `skipped`
    skipped: list[str] = field(default_factory=list)  # sweeps that could not be read, in the reader's own words


@dataclass(frozen=True, kw_only=True)
class Route:
    """The ego's future: one pose, time and origin of that knowledge per frame, and the log's frame where it has one."""

    world_from_lidar: FloatArray  # (F, 4, 4)
    timestamps_ns: NDArray[np.int64]  # (F,)
    sources: tuple[PoseSource, ...]
    frames: tuple[int | None, ...]


def choose_moment(
    dataset: Dataset, drive_name: str | None, frame: int | None, setting: str, on_bad_sweep: OnBadSweep
) -> ForecastMoment:
    """The asked moment; without `frame`, the first that has a whole past and a whole future."""
    if drive_name is not None:
        dataset = dataset.select([drive_name])
    if frame is not None:
        if len(dataset) != 1:
            shown = ", ".join(dataset.names[:12]) + (", ..." if len(dataset) > 12 else "")
            raise UsageError(f"--frame {frame} of which drive? {dataset.root} has {shown}; add --drive NAME")
        drive = dataset[dataset.names[0]]
        return _read(drive, window_at(drive, frame, setting), on_bad_sweep)
    skipped: list[str] = []
    for drive in dataset.values():
        for window in protocol_windows({drive.name: drive}, setting):
            if not window.complete:
                continue
            try:
                moment = _read(drive, window, "raise")
            except DataError as error:
                if on_bad_sweep == "raise":
                    raise
                if str(error) not in skipped:
                    skipped.append(str(error))
                continue
            moment.skipped.extend(skipped)
            return moment
    if skipped:
        raise ProtocolError("no moment is left whose past sweeps can all be read: " + "; ".join(skipped))
    why = "; ".join(explain_missing(drive, setting) for drive in list(dataset.values())[:8])
    raise ProtocolError(
        f"no moment has a whole past and future of the {setting} setting: {why}. A moment with less can be named: "
        "--drive NAME --frame N"
    )


def _read(drive: Drive, window: Window, on_bad_sweep: OnBadSweep) -> ForecastMoment:
    """Read the past. With "skip", only what follows the newest sweep that cannot be read: it stays evenly spaced."""
    past: list[Sweep] = []
    frames: list[int] = []
    skipped = []
    for index in reversed(window.past):
        try:
            past.insert(0, drive[index].without_box(drive.ego_box))
        except DataError as error:
            if on_bad_sweep == "raise" or not past:
                raise
            skipped.append(str(error))
            break
        frames.insert(0, index)
    return ForecastMoment(drive=drive, window=window, past=tuple(past), past_frames=tuple(frames), skipped=skipped)


def plan_route(moment: ForecastMoment, setting: str, poses_file: Path | None) -> Route:
    """Where the ego goes: as the log says, then onwards at constant velocity; or as a file of poses says."""
    drive, window = moment.drive, moment.window
    rule = frame_rule(drive, setting)
    spacing_s = rule.step * drive.interval_s if len(drive) > 1 else SECONDS[setting] / rule.n_out
    times = _future_times_ns(drive, window, rule.n_out, round(spacing_s * 1e9))
    if poses_file is not None:
        return _route_from_file(moment, poses_file, times)
    missing = rule.n_out - len(window.future)
    onwards = _onwards(drive, window, missing, rule.step)
    sources: list[PoseSource] = ["log"] * len(window.future)
    sources += ["constant velocity" if len(drive) > 1 else "standing still"] * missing
    return Route(
        world_from_lidar=np.concatenate([drive.world_from_lidar[list(window.future)], onwards]),
        timestamps_ns=times,
        sources=tuple(sources),
        frames=(*window.future, *(None,) * missing),
    )


def _onwards(drive: Drive, window: Window, count: int, step: int) -> FloatArray:
    """(count, 4, 4): the ego's motion goes on as in its last step; a window of one frame asks a sweep beside it."""
    known = drive.world_from_lidar[[*window.past, *window.future]]
    if len(known) > 1 or len(drive) == 1:
        return continue_motion(known, count)
    beside = [window.reference - 1, window.reference] if window.reference else [0, 1]
    start, stop = drive.timestamps_ns[beside]
    wanted_ns = step * drive.interval_s * 1e9
    steps = max(1, round(wanted_ns / (stop - start)))  # of the log, in one of the setting
    one = se3.relative_motion(*drive.world_from_lidar[beside])
    if stop - start > 1.5 * wanted_ns:  # a gap lies between the two: only a part of their motion is one step's
        one = se3.interpolate(se3.identity(), one, wanted_ns / float(stop - start))
    return continue_motion(np.stack([known[0] @ se3.invert(one), known[0]]), count * steps)[steps - 1 :: steps]


def _route_from_file(moment: ForecastMoment, path: Path, times: NDArray[np.int64]) -> Route:
    """A KITTI file has one line per future frame; a TUM file is a trajectory, looked up at the frames' times."""
    if _columns(path) == 8:
        trajectory = read_tum_poses(path)
        start, stop = trajectory.timestamps_ns[[0, -1]]
        if times[0] < start or times[-1] > stop:
            raise DataError(
                path, "timestamp",
                expected=f"a trajectory over {times[0] * 1e-9:.3f} to {times[-1] * 1e-9:.3f} s, in the log's own time",
                found=f"{start * 1e-9:.3f} to {stop * 1e-9:.3f} s",
                remedy="extend the trajectory, or write one KITTI line (12 numbers) per future frame, without times",
            )  # fmt: skip
        seconds = (trajectory.timestamps_ns - times[0]) * 1e-9
        poses = se3.interpolate_trajectory(seconds, trajectory.poses, (times - times[0]) * 1e-9)
    else:
        poses = read_kitti_poses(path)
        if len(poses) == 0:
            raise DataError(path, "poses", expected="a pose", found="none", remedy="write one line per future frame")
        step = int(times[-1] - times[-2]) if len(times) > 1 else int(times[0]) - moment.past[-1].timestamp_ns
        times = np.concatenate([times, times[-1] + step * np.arange(1, len(poses) + 1)])[: len(poses)]
    sources: list[PoseSource] = ["file"] * len(poses)
    # The log's own sweeps are no truth for another route.
    return Route(world_from_lidar=poses, timestamps_ns=times, sources=tuple(sources), frames=(None,) * len(poses))


def _columns(path: Path) -> int:
    """How many numbers the first line with content has."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            path, "poses", expected="a text file of poses", found=str(error), remedy="check --future-poses"
        ) from error
    content = (line.split("#")[0].replace(",", " ").split() for line in lines)
    return len(next((words for words in content if words), []))


def _future_times_ns(drive: Drive, window: Window, count: int, spacing_ns: int) -> NDArray[np.int64]:
    """The log's own times of the future frames it has, then on at its rate."""
    known = drive.timestamps_ns[[window.reference, *window.future]]
    onwards = known[-1] + spacing_ns * np.arange(1, count - len(window.future) + 1)
    return np.concatenate([known[1:], onwards]).astype(np.int64)

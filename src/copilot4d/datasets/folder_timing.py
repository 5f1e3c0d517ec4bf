"""When each sweep of an own-data drive was taken, and from where: sweeps, times and poses brought together.

Poses in TUM format carry times, and each sweep gets the pose at its own time, interpolated. Poses in KITTI format carry
none: the n-th line is the n-th sweep's.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.folder_config import FolderConfig
from copilot4d.datasets.point_files import suffix_of
from copilot4d.datasets.pose_files import TimedPoses, read_kitti_poses, read_tum_poses
from copilot4d.datasets.text_files import (
    UNITS_NS,
    check_increasing,
    check_seconds,
    nanoseconds_from,
    numbered_lines,
    parse_nanoseconds,
)
from copilot4d.errors import Copilot4dWarning, DataError
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray

TIME_FILES = ("times.txt", "timestamps.txt")
DEFAULT_RATE_HZ = 10.0
# File names that are Unix times, by their digits.
_UNIX_DIGITS = {r"[0-9]{17,19}": "ns", r"[0-9]{16}": "us", r"[0-9]{13}": "ms", r"[0-9]{9,10}\.[0-9]+": "s"}
_USUAL_INTERVALS_S = (0.02, 2.5)  # of lidars
_LONGEST_GAP_S = 1.0  # between two poses; a straight line across more is no pose


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One entry per sweep, in order of time."""

    order: NDArray[np.int64]  # (N,) which of the given files each sweep is
    timestamps_ns: NDArray[np.int64]  # (N,) strictly increasing
    poses: FloatArray  # (N, 4, 4) as the pose file has them: of its frame, in its units
    way: TimedPoses | None = None  # all that the pose file has, where its poses have times of their own


@dataclass(frozen=True, kw_only=True)
class TimeSource:
    """Where the times of a drive's sweeps come from, and in which unit they are read."""

    kind: Literal["file", "names", "rate", "poses"]
    name: str = ""  # of the file
    unit: str = "s"

    def line(self, unit: str) -> str:
        """The line of copilot4d.yaml that reads these times in another unit."""
        match self.kind:
            case "file":
                return f"timestamps: {{file: {self.name}, unit: {unit}}}"
            case "names":
                return f"timestamps: {{filename: {unit}}}"
            case "poses":
                return f"pose_time_unit: {unit}"
            case "rate":
                return "timestamps: {rate_hz: ...}"


def time_source(folder: Path, config: FolderConfig, paths: tuple[Path, ...]) -> TimeSource:
    """What tells the times of sweep files: the description, a usual file, their names, or else the poses."""
    match config.timestamps:
        case {"file": name, "unit": unit}:
            return TimeSource(kind="file", name=str(name), unit=unit)
        case {"filename": unit}:
            return TimeSource(kind="names", unit=unit)
        case {"rate_hz": _}:
            return TimeSource(kind="rate")
    usual = next((name for name in TIME_FILES if (folder / name).is_file()), None)
    if usual is not None:
        return TimeSource(kind="file", name=usual)
    stems = [_stem(path) for path in paths]
    for digits, unit in _UNIX_DIGITS.items():
        if all(re.fullmatch(digits, stem) for stem in stems):
            return TimeSource(kind="names", unit=unit)
    return TimeSource(kind="poses", unit=config.pose_time_unit)


def read_timing(folder: Path, config: FolderConfig, paths: tuple[Path, ...], pose_file: Path | None) -> Timing:
    """Times and poses of the sweep files, which are in natural order. No pose file: identity poses."""
    pose_format = None if pose_file is None else config.pose_format or _guess_pose_format(pose_file)
    if pose_file is not None and pose_format == "tum":
        trajectory = read_tum_poses(pose_file, unit=config.pose_time_unit)
        times = _sweep_times(folder, config, paths)
        if times is None:
            _same_count(pose_file, len(trajectory.poses), paths)
            return Timing(order=np.arange(len(paths)), timestamps_ns=trajectory.timestamps_ns, poses=trajectory.poses)
        order, timestamps_ns = times
        return Timing(
            order=order,
            timestamps_ns=timestamps_ns,
            poses=_poses_at(
                pose_file, trajectory, timestamps_ns, config.pose_time_unit, time_source(folder, config, paths)
            ),
            way=trajectory,
        )
    order, timestamps_ns = _sweep_times(folder, config, paths) or _assumed_times(folder, paths)
    if pose_file is None:
        return Timing(order=order, timestamps_ns=timestamps_ns, poses=se3.identity((len(paths),)))
    poses = read_kitti_poses(pose_file)
    _same_count(pose_file, len(poses), paths)
    return Timing(order=order, timestamps_ns=timestamps_ns, poses=poses)


_WRONG_COUNTS = {
    7: "they look like TUM without its time: put the time of each pose, in seconds, in front of its line",
    9: "they look like TUM with a column more: keep `timestamp tx ty tz qx qy qz qw` of each line",
    13: "they look like a time and a KITTI matrix: write the first column to times.txt, and leave it out here",
    16: "they look like whole 4x4 matrices: keep the first 12 numbers of each line (cut -d' ' -f1-12 poses.txt)",
}


def _guess_pose_format(path: Path) -> str:
    lines = numbered_lines(path, "poses")
    count = len(lines[0][1].replace(",", " ").split()) if lines else 0
    if count not in (8, 12):
        raise DataError(
            path, "poses", expected="8 numbers a line (TUM) or 12 (KITTI)", found=f"{count} in the first line",
            remedy=_WRONG_COUNTS.get(count, "write the poses in one of these formats"),
        )  # fmt: skip
    return "tum" if count == 8 else "kitti"


def _same_count(pose_file: Path, count: int, paths: tuple[Path, ...]) -> None:
    if count != len(paths):
        raise DataError(
            pose_file, "poses", expected=f"a line for each of the {len(paths)} sweeps", found=f"{count} lines",
            remedy="write one pose per sweep, or poses in TUM format and `timestamps:` in copilot4d.yaml",
        )  # fmt: skip


def _poses_at(
    pose_file: Path, trajectory: TimedPoses, timestamps_ns: NDArray[np.int64], pose_unit: str, source: TimeSource
) -> FloatArray:
    """The trajectory at the sweeps' times; half an interval beyond its ends is allowed."""
    if not len(trajectory.poses):
        raise DataError(pose_file, "poses", expected="at least one pose", found="none", remedy="write the poses")
    start_ns = int(trajectory.timestamps_ns[0])
    pose_s = (trajectory.timestamps_ns - start_ns) * 1e-9  # relative: a float holds Unix times to 100 ns only
    sweep_s = (timestamps_ns - start_ns) * 1e-9
    steps_s = np.diff(pose_s)
    margin_s = float(np.median(steps_s)) / 2 if len(steps_s) else 1e-6
    outside = (sweep_s < -margin_s) | (sweep_s > pose_s[-1] + margin_s)
    if outside.any():
        at = int(np.argmax(outside))
        raise DataError(
            pose_file, "timestamps", expected=f"poses around each sweep's time (sweep {at}: {sweep_s[at]:.3f} s)",
            found=f"poses from 0 to {pose_s[-1]:.3f} s, counted from the first ({start_ns} ns); "
            f"{int(outside.sum())} sweeps lie outside",
            remedy=_unit_remedy(trajectory.timestamps_ns, timestamps_ns, pose_unit, source)
            or "use one clock and one unit for sweeps and poses, or leave out sweeps without poses",
        )  # fmt: skip
    if len(steps_s):
        segment = np.clip(np.searchsorted(pose_s, sweep_s, side="right") - 1, 0, len(steps_s) - 1)
        inside_gap = (steps_s[segment] > max(_LONGEST_GAP_S, 4 * margin_s)) & ~np.isin(sweep_s, pose_s)
        if inside_gap.any():
            at = int(np.argmax(inside_gap))
            raise DataError(
                pose_file, "timestamps", expected=f"poses at most {_LONGEST_GAP_S:g} s apart",
                found=f"{steps_s[segment[at]]:.3f} s without a pose around sweep {at}",
                remedy="restore the missing poses, or leave out the sweeps of that time",
            )  # fmt: skip
    return se3.interpolate_trajectory(pose_s, trajectory.poses, sweep_s)


def _unit_remedy(
    pose_ns: NDArray[np.int64], sweep_ns: NDArray[np.int64], pose_unit: str, source: TimeSource
) -> str | None:
    """The line that brings sweeps and poses together, where another unit of one of them does; None where none does."""
    for unit, factor_ns in UNITS_NS.items():
        poses_s = pose_ns * (factor_ns / UNITS_NS[pose_unit] * 1e-9)
        if unit != pose_unit and _covers(poses_s, sweep_ns * 1e-9):
            return (
                f"the times of the poses look like {unit}, not {pose_unit}: "
                f"write `pose_time_unit: {unit}` in copilot4d.yaml"
            )
        if source.kind in ("file", "names") and unit != source.unit:
            sweeps_s = sweep_ns * (factor_ns / UNITS_NS[source.unit] * 1e-9)
            if _covers(pose_ns * 1e-9, sweeps_s):
                return (
                    f"the times of the sweeps look like {unit}, not {source.unit}: "
                    f"write `{source.line(unit)}` in copilot4d.yaml"
                )
    return None


def _covers(poses_s: FloatArray, sweeps_s: FloatArray) -> bool:
    """Whether most sweeps lie between the poses, both at a plausible pace."""
    if len(poses_s) < 2 or len(sweeps_s) < 2:
        return False
    pace_s = float(np.median(np.diff(sweeps_s)))
    inside = (sweeps_s >= poses_s[0] - pace_s) & (sweeps_s <= poses_s[-1] + pace_s)
    return _USUAL_INTERVALS_S[0] <= pace_s <= _USUAL_INTERVALS_S[1] and float(inside.mean()) > 0.5


def _sweep_times(
    folder: Path, config: FolderConfig, paths: tuple[Path, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """(order, times) of the sweeps as the description says or the usual files tell; None where nothing tells."""
    source = time_source(folder, config, paths)
    match source.kind:
        case "file":
            return _times_from_file(folder / source.name, source.unit, paths)
        case "names":
            return _times_from_names(paths, source.unit)
        case "rate":
            rate_hz = (config.timestamps or {})["rate_hz"]
            return np.arange(len(paths)), np.rint(np.arange(len(paths)) * (1e9 / rate_hz)).astype(np.int64)
        case "poses":
            return None


def _stem(path: Path) -> str:
    """The name without the suffix by which the file is read: `Path.stem` would leave the .pcd of .pcd.bin."""
    return path.name.removesuffix(path.name[-len(suffix_of(path)) :])


def _times_from_file(path: Path, unit: str, paths: tuple[Path, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    lines = numbered_lines(path, "timestamps", gapless=True)
    if len(lines) != len(paths):
        raise DataError(
            path, "timestamps", expected=f"a line for each of the {len(paths)} sweeps", found=f"{len(lines)} lines",
            remedy="write one time per sweep, in the order of the file names",
        )  # fmt: skip
    source = TimeSource(kind="file", name=path.name)
    if unit == "s" and lines:
        check_seconds(path, "timestamps", *lines[0], source.line)
    times = [parse_nanoseconds(path, "timestamps", number, text, unit) for number, text in lines]
    timestamps_ns = np.array(times, dtype=np.int64)
    check_increasing(path, timestamps_ns, [f"line {number}" for number, _ in lines])
    return np.arange(len(paths)), timestamps_ns


def _times_from_names(paths: tuple[Path, ...], unit: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    times = []
    for path in paths:
        number = re.search(r"[0-9]+(\.[0-9]+)?$", _stem(path))  # lidar_1317042272.335 has its time at the end
        try:
            times.append(nanoseconds_from(number[0] if number else "", unit))
        except ValueError as error:
            raise DataError(
                path, "file name", expected=f"a time in {unit} at the end of the name", found=path.name,
                remedy="rename the file, or say otherwise under `timestamps:` in copilot4d.yaml",
            ) from error  # fmt: skip
    unordered = np.array(times, dtype=np.int64)
    order = np.argsort(unordered, kind="stable")
    check_increasing(paths[0].parent, unordered[order], [paths[k].name for k in order])
    return order, unordered[order]


def _assumed_times(folder: Path, paths: tuple[Path, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    told = _looks_like_times(paths)
    warnings.warn(
        f"{folder} does not tell when its sweeps were taken: assuming {DEFAULT_RATE_HZ:g} a second. "
        + (told or "Write `timestamps: {rate_hz: ...}` in its copilot4d.yaml"),
        Copilot4dWarning, stacklevel=2,
    )  # fmt: skip
    return np.arange(len(paths)), np.rint(np.arange(len(paths)) * (1e9 / DEFAULT_RATE_HZ)).astype(np.int64)


def _looks_like_times(paths: tuple[Path, ...]) -> str | None:
    """File names whose numbers rise by more than one are times: what their unit would be."""
    numbers = [re.search(r"[0-9]+$", _stem(path)) for path in paths]
    if len(paths) < 3 or not all(numbers):
        return None
    step = float(np.median(np.diff(sorted(int(number[0]) for number in numbers if number))))
    for unit, factor_ns in UNITS_NS.items():
        if step > 1 and _USUAL_INTERVALS_S[0] <= step * factor_ns * 1e-9 <= _USUAL_INTERVALS_S[1]:
            return (
                f"Its file names rise by {step:g}, which looks like {unit}: "
                f"write `timestamps: {{filename: {unit}}}` in its copilot4d.yaml"
            )
    return None

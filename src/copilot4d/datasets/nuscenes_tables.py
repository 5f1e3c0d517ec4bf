"""nuScenes' tables, read without the devkit: the lidar sweeps of each scene with their files, times and poses.

The two big tables (sample_data, ego_pose: 2.6 million records each in v1.0-trainval) are streamed once, when the first
scene is opened, and only what LIDAR_TOP needs is kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.json_records import Record, Table
from copilot4d.errors import DataError
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray

TABLES = ("scene", "sample", "sample_data", "ego_pose", "calibrated_sensor", "sensor")
CHANNEL = "LIDAR_TOP"

# nuScenes' lidar has x to the right and y forward; ours has x forward and y to the left: (x, y, z) -> (y, -x, z).
LIDAR_FROM_RAW = np.array([[0.0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])

_QUATERNION_TOLERANCE = 1e-2
_FARTHEST_M = 1e8  # farther than any map's coordinates
_Numbers = tuple[float, ...]  # translation x, y, z and rotation w, x, y, z: what a big table needs to keep of a pose


@dataclass(frozen=True, kw_only=True)
class SceneSweeps:
    """The lidar sweeps of one scene in order of time."""

    files: tuple[str, ...]  # relative to the data set's root
    timestamps_ns: NDArray[np.int64]
    world_from_lidar: FloatArray  # (N, 4, 4), in our axes
    keyframes: int  # how many of them are keyframes


class _Frame(NamedTuple):
    timestamp_us: int
    token: str
    file: str
    ego_pose: str
    calibration: str
    is_keyframe: bool


def read_scenes(folder: Path) -> dict[str, Record]:
    """Scene name -> its record of scene.json, in the table's order."""
    for name in TABLES:
        if not (folder / f"{name}.json").is_file():
            raise DataError(
                folder / f"{name}.json", "table", expected="nuScenes' table", found="no such file",
                remedy="unpack the data set's metadata archive there",
            )  # fmt: skip
    table, scenes = _table(folder, "scene"), {}
    for record in table.by_token().values():
        name = table.text(record, "name")
        table.integer(record, "nbr_samples")
        if name in scenes or not name:
            raise table.error(record, "name", expected="a name of its own", found=f"{name!r} once more")
        scenes[name] = record
    if not scenes:
        raise DataError(
            table.path, "table", expected="at least one scene", found="an empty list", remedy="unpack the table again"
        )
    return scenes


def read_sweeps(folder: Path, *, keyframes_only: bool) -> dict[str, SceneSweeps]:
    """Scene token -> its lidar sweeps."""
    calibrations = _lidar_calibrations(folder)
    scene_of_sample = _scene_of_sample(folder)
    frames = _lidar_frames(folder, calibrations, scene_of_sample, keyframes_only)
    needed = {frame.ego_pose: frame.token for group in frames.values() for frame in group}
    ego_poses = _ego_poses(folder, needed)
    return {scene: _sweeps(folder, group, ego_poses, calibrations) for scene, group in frames.items()}


def _table(folder: Path, name: str) -> Table:
    return Table(folder / f"{name}.json")


def _lidar_calibrations(folder: Path) -> dict[str, _Numbers | None]:
    """Token of each calibrated sensor -> ego_from_raw_lidar, or None where it is another sensor."""
    sensors, table = _table(folder, "sensor"), _table(folder, "calibrated_sensor")
    channels = {token: sensors.text(record, "channel") for token, record in sensors.by_token().items()}
    found: dict[str, _Numbers | None] = {}
    for token, record in table.by_token().items():
        sensor = table.text(record, "sensor_token")
        if sensor not in channels:
            raise _dangling(table, record, "sensor_token", sensors)
        found[token] = _pose(table, record) if channels[sensor] == CHANNEL else None
    if all(pose is None for pose in found.values()):
        raise DataError(
            table.path, "table", expected=f"a calibration of {CHANNEL}", found="none",
            remedy="unpack the table again, with sensor.json of the same version",
        )  # fmt: skip
    return found


def _scene_of_sample(folder: Path) -> dict[str, str]:
    """Token of each sample (keyframe) -> token of its scene."""
    scenes, samples = _table(folder, "scene"), _table(folder, "sample")
    by_token, scene_records = samples.by_token(), scenes.by_token()
    found = {}
    for token, record in by_token.items():
        found[token] = samples.text(record, "scene_token")
        if found[token] not in scene_records:
            raise _dangling(samples, record, "scene_token", scenes)
        for link in ("prev", "next"):
            if (other := samples.text(record, link)) and other not in by_token:
                raise _dangling(samples, record, link, samples)
    for record in scene_records.values():
        if scenes.text(record, "first_sample_token") not in by_token:
            raise _dangling(scenes, record, "first_sample_token", samples)
    return found


def _lidar_frames(
    folder: Path, calibrations: Mapping[str, _Numbers | None], scene_of_sample: dict[str, str], keyframes_only: bool
) -> dict[str, list[_Frame]]:
    """Token of each scene -> its lidar frames in order of time."""
    table, tokens = _table(folder, "sample_data"), set()
    frames: dict[str, list[_Frame]] = {}
    for record in table:
        calibration = table.text(record, "calibrated_sensor_token")
        if calibration not in calibrations:
            raise _dangling(table, record, "calibrated_sensor_token", _table(folder, "calibrated_sensor"))
        if calibrations[calibration] is None:
            continue
        is_keyframe = table.flag(record, "is_key_frame")
        if keyframes_only and not is_keyframe:
            continue
        token, sample = table.text(record, "token"), table.text(record, "sample_token")
        if token in tokens:
            raise table.duplicate(token)
        tokens.add(token)
        if sample not in scene_of_sample:
            raise _dangling(table, record, "sample_token", _table(folder, "sample"))
        frames.setdefault(scene_of_sample[sample], []).append(
            _Frame(
                timestamp_us=table.integer(record, "timestamp"), token=token, file=_filename(table, record),
                ego_pose=table.text(record, "ego_pose_token"), calibration=calibration, is_keyframe=is_keyframe,
            )
        )  # fmt: skip
    return {scene: sorted(group) for scene, group in frames.items()}


def _ego_poses(folder: Path, needed: Mapping[str, str]) -> dict[str, _Numbers]:
    """Token -> world_from_ego of the ego poses that lidar frames use."""
    table, found = _table(folder, "ego_pose"), {}
    for record in table:
        token = table.text(record, "token")
        if token in needed:
            if token in found:
                raise table.duplicate(token)
            found[token] = _pose(table, record)
    for token, frame in needed.items():
        if token not in found:
            raise _dangling(_table(folder, "sample_data"), {"token": frame, "ego_pose_token": token},
                            "ego_pose_token", table)  # fmt: skip
    return found


def _sweeps(
    folder: Path,
    frames: list[_Frame],
    ego_poses: Mapping[str, _Numbers],
    calibrations: Mapping[str, _Numbers | None],
) -> SceneSweeps:
    times = np.array([frame.timestamp_us for frame in frames], dtype=np.int64) * 1000
    for before, after in itertools.pairwise(frames):
        if before.timestamp_us == after.timestamp_us:
            table = _table(folder, "sample_data")
            raise table.error(
                {"token": after.token}, "timestamp", expected="a time of its own",
                found=f"{after.timestamp_us}, the time of record {before.token} too",
            )  # fmt: skip
    world_from_ego = _motions([ego_poses[frame.ego_pose] for frame in frames])
    ego_from_raw = _motions([calibrations[frame.calibration] or () for frame in frames])
    return SceneSweeps(
        files=tuple(frame.file for frame in frames),
        timestamps_ns=times,
        world_from_lidar=se3.compose(world_from_ego, ego_from_raw, se3.invert(LIDAR_FROM_RAW)),
        keyframes=sum(frame.is_keyframe for frame in frames),
    )


def _pose(table: Table, record: Record) -> _Numbers:
    translation, rotation = table.numbers(record, "translation", 3), table.numbers(record, "rotation", 4)
    length = math.hypot(*rotation)
    if not abs(length - 1) <= _QUATERNION_TOLERANCE:
        raise table.error(record, "rotation", expected="a unit quaternion w x y z", found=f"length {length:.6g}")
    if max(map(abs, translation)) > _FARTHEST_M:
        raise table.error(record, "translation", expected="metres", found=f"{max(map(abs, translation)):.3g}")
    return (*translation, *rotation)


def _motions(poses: list[_Numbers]) -> FloatArray:
    """N x 7 numbers -> (N, 4, 4)."""
    numbers = np.array(poses, dtype=np.float64)
    return se3.from_quaternion(numbers[:, 3:], numbers[:, :3])


def _filename(table: Table, record: Record) -> str:
    name = table.text(record, "filename")
    parts = PurePosixPath(name)
    if not name.isprintable() or not parts.parts or parts.is_absolute() or ".." in parts.parts:
        raise table.error(record, "filename", expected="a path below the data set's root", found=repr(name[:80]))
    return name


def _dangling(table: Table, record: Record, field: str, target: Table) -> DataError:
    return table.error(
        record, field, expected=f"a token of {target.path.name}", found=f"{record.get(field)!r}, which is not there",
        remedy=f"unpack {table.path.name} and {target.path.name} again, both of the same version",
    )  # fmt: skip

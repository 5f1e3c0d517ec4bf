"""KITTI raw: <date>/<date>_drive_<number>_sync/velodyne_points/data/%010d.bin with GPS/IMU poses in oxts/data.

A pose is the IMU's: latitude and longitude by the Mercator projection that KITTI's own tools use, altitude, roll, pitch
and yaw. `world_from_lidar = inv(p0) . p(t)` with p = map_from_imu . imu_from_lidar and p0 that of the drive's
first record, so that the world is the lidar's frame there. Sweeps and records are matched by number.

A drive without oxts may have poses.txt instead, world_from_lidar in TUM format, matched by time: what
`copilot4d.doctor.write_estimated_poses` writes.
"""

from __future__ import annotations

import re
import warnings
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.dataset import Dataset
from copilot4d.datasets.indexing import Indexed
from copilot4d.datasets.point_files import read_kitti_points
from copilot4d.datasets.pose_files import read_tum_poses, rigid_poses
from copilot4d.datasets.sweep_files import kitti_drive, numbered_sweeps, subfolders
from copilot4d.datasets.text_files import check_increasing, numbered_lines, parse_floats
from copilot4d.errors import Copilot4dWarning, DataError
from copilot4d.geometry import Drive, se3
from copilot4d.geometry.se3 import FloatArray

FORMAT = "kitti_raw"
_RATE_HZ = 10
_EARTH_RADIUS_M = 6378137.0
_OXTS_NUMBERS = 30  # values in a record; the first six are lat, lon, alt, roll, pitch, yaw
_CALIBRATION = "calib_imu_to_velo.txt"
_POSES = "poses.txt"
_SAME_TIME_NS = 1_000_000  # a sweep and its line in poses.txt: room for times written with few digits


def recognise(path: Path) -> Path | None:
    """The folder of dates, one date's folder, or one drive's folder; None where it is no KITTI raw tree."""
    if "data_3d_raw" in path.parts[-4:]:  # KITTI-360, whose drives look alike
        return None
    if path.name == "data" and path.parent.name == "velodyne_points":
        return path.parent.parent
    if path.name == "velodyne_points" and (path / "data").is_dir():
        return path.parent
    return path if _drive_folders(path) else None


def open(root: Path, *, require_poses: bool = True) -> Dataset:
    """The data set at a root that `recognise` gave. A drive has its folder's name, 2011_09_26_drive_0005_sync."""
    folders = {folder.name: folder for folder in _drive_folders(root)}
    if not folders:
        raise DataError(
            root, "drives", expected="folders with velodyne_points/data in them", found="none",
            remedy="unpack the synced+rectified data of a drive there",
        )  # fmt: skip
    return Dataset(
        format=FORMAT,
        root=root,
        names=tuple(folders),
        open_drive=partial(_open_drive, folders=folders, require_poses=require_poses),
        names_without_poses=tuple(name for name, folder in folders.items() if not _has_poses(folder)),
        indexed=Indexed(
            files=lambda name: _sources(folders[name]),
            read_file=lambda numbers: read_kitti_points,
            options=f"require_poses={require_poses}",
        ),
    )


def _sources(folder: Path) -> list[Path]:
    """All that a drive is read from: which sweeps there are, their times, the calibration, every GPS/IMU record."""
    parts = ("velodyne_points/data", "velodyne_points/timestamps.txt", "oxts", "oxts/timestamps.txt", "oxts/data")
    found = [*(folder / part for part in (*parts, _POSES, _CALIBRATION)), folder.parent / _CALIBRATION]
    return [*found, *sorted((folder / "oxts" / "data").glob("*.txt"))]


def _drive_folders(root: Path) -> list[Path]:
    """The root itself, its subfolders or their subfolders: the first level that holds drives."""
    level = [root]
    for _ in range(3):
        drives = [folder for folder in level if (folder / "velodyne_points" / "data").is_dir()]
        if drives:
            return drives
        level = [child for folder in level for child in subfolders(folder) if _may_hold_drives(child)]
    return []


def _may_hold_drives(folder: Path) -> bool:
    """Dates and drives have names like 2011_09_26: looking only there keeps the search out of unrelated large trees."""
    return re.match(r"[0-9]{4}_[0-9]{2}_[0-9]{2}", folder.name) is not None


def _open_drive(name: str, *, folders: dict[str, Path], require_poses: bool) -> Drive:
    folder = folders[name]
    numbers, paths = numbered_sweeps(folder / "velodyne_points" / "data")
    timestamps_ns = read_times(folder, numbers)
    if _has_oxts(folder):
        world_from_lidar = _read_poses(folder, numbers)
    elif _has_poses(folder):
        world_from_lidar = _read_pose_file(folder / _POSES, timestamps_ns)
    elif require_poses:
        raise DataError(
            folder / "oxts" / "data", "poses", expected="a GPS/IMU record per sweep, 0000000000.txt ...", found="none",
            remedy=f"unpack the oxts folder, or estimate poses: `copilot4d.doctor.write_estimated_poses` {folder}",
        )  # fmt: skip
    else:
        world_from_lidar = se3.identity((len(paths),))
    return kitti_drive(name, folder, paths, world_from_lidar, timestamps_ns, format=FORMAT)


def _has_oxts(folder: Path) -> bool:
    return (folder / "oxts" / "data").is_dir()


def _has_poses(folder: Path) -> bool:
    return _has_oxts(folder) or (folder / _POSES).is_file()


def _read_pose_file(path: Path, timestamps_ns: NDArray[np.int64]) -> FloatArray:
    """(N, 4, 4) world_from_lidar of the sweeps of these times; the file may have more poses."""
    trajectory = read_tum_poses(path)
    pose_ns = trajectory.timestamps_ns
    remedy = f"move the file away and make the poses again: `copilot4d.doctor.write_estimated_poses` {path.parent}"
    if not len(pose_ns):
        raise DataError(path, "poses", expected="a line for every sweep", found="none", remedy=remedy)
    after = np.clip(np.searchsorted(pose_ns, timestamps_ns), 1, max(1, len(pose_ns) - 1))
    pair = np.stack([after - 1, np.minimum(after, len(pose_ns) - 1)])
    apart_ns = np.abs(pose_ns[pair] - timestamps_ns)
    nearest = np.where(apart_ns[0] <= apart_ns[1], pair[0], pair[1])
    missing = apart_ns.min(axis=0) > _SAME_TIME_NS
    if missing.any():
        at = int(np.argmax(missing))
        raise DataError(
            path, "timestamps", expected=f"a line for every sweep's time (sweep {at}: {timestamps_ns[at]} ns)",
            found=f"none for {int(missing.sum())} of {len(missing)} sweeps", remedy=remedy,
        )  # fmt: skip
    world_from_lidar: FloatArray = trajectory.poses[nearest]
    return world_from_lidar


def _read_poses(folder: Path, numbers: NDArray[np.int64]) -> FloatArray:
    """(N, 4, 4) world_from_lidar of these sweeps, in the lidar's frame at the drive's first record."""
    record_numbers, record_paths = numbered_sweeps(folder / "oxts" / "data", ".txt")
    records = dict(zip(record_numbers.tolist(), record_paths, strict=True))
    missing = [number for number in numbers.tolist() if number not in records]
    if missing:
        raise DataError(
            folder / "oxts" / "data" / f"{missing[0]:010d}.txt", "pose", expected="a GPS/IMU record for every sweep",
            found=f"none for {len(missing)} of {len(numbers)} sweeps", remedy="unpack the drive's oxts folder again",
        )  # fmt: skip
    used = [record_paths[0], *(records[number] for number in numbers.tolist())]
    oxts = np.array([_read_record(path) for path in used])
    lidar_from_imu = _read_calibration(folder)
    map_from_lidar = se3.compose(map_from_imu(oxts), se3.invert(lidar_from_imu))
    return se3.relative_motion(map_from_lidar[0], map_from_lidar[1:])


def map_from_imu(oxts: FloatArray) -> FloatArray:
    """(N, 6) latitude, longitude (degrees), altitude, roll, pitch, yaw (radians) -> (N, 4, 4).

    x is east, y north, z up. The Mercator scale is the cosine of the first record's latitude, so distances are right
    near the start of the drive.
    """
    latitude, longitude, altitude, roll, pitch, yaw = oxts.T
    scale = np.cos(np.deg2rad(latitude[0]))
    east = scale * _EARTH_RADIUS_M * np.deg2rad(longitude)
    north = scale * _EARTH_RADIUS_M * np.log(np.tan(np.pi / 4 + np.deg2rad(latitude) / 2))
    rotation = _turn(yaw, 2) @ _turn(pitch, 1) @ _turn(roll, 0)
    return se3.from_rotation_translation(rotation, np.stack([east, north, altitude], axis=-1))


def _turn(angle: FloatArray, axis: int) -> FloatArray:
    """(N,) radians about x (0), y (1) or z (2) -> (N, 3, 3)."""
    quaternion = np.zeros((len(angle), 4))
    quaternion[:, 0], quaternion[:, 1 + axis] = np.cos(angle / 2), np.sin(angle / 2)
    return se3.rotation_from_quaternion(quaternion)


def _read_record(path: Path) -> list[float]:
    """latitude, longitude, altitude, roll, pitch, yaw of one oxts file."""
    lines = numbered_lines(path, "oxts")
    if not lines:
        raise DataError(
            path, "oxts", expected=f"a line of {_OXTS_NUMBERS} numbers", found="an empty file",
            remedy="unpack the drive's oxts folder again",
        )  # fmt: skip
    number, line = lines[0]
    values = parse_floats(path, "oxts", number, line.split(), _OXTS_NUMBERS)[:6]
    limits = (85.0, 360.0, 1e5, 2 * np.pi, 2 * np.pi, 2 * np.pi)  # degrees, degrees, metres, radians
    names = ("latitude", "longitude", "altitude", "roll", "pitch", "yaw")
    for name, value, limit in zip(names, values, limits, strict=True):
        if abs(value) > limit:
            raise DataError(
                path, name, expected=f"at most {limit:.5g} in size", found=f"{value:g}",
                remedy="unpack the drive's oxts folder again",
            )  # fmt: skip
    return values


def _read_calibration(folder: Path) -> FloatArray:
    """(4, 4) lidar_from_imu, from the date's folder (or, where someone put it there, the drive's)."""
    path = next((p for p in (folder.parent / _CALIBRATION, folder / _CALIBRATION) if p.is_file()), None)
    if path is None:
        raise DataError(
            folder.parent / _CALIBRATION, "calibration", expected="the file", found="none",
            remedy="unpack the calibration archive of that date beside its drives",
        )  # fmt: skip
    rows: dict[str, FloatArray] = {}
    for number, line in numbered_lines(path, "calibration"):
        key, _, rest = line.partition(":")
        if key in ("R", "T"):
            rows[key] = np.array(parse_floats(path, key, number, rest.split(), 9 if key == "R" else 3))
    missing = [key for key in ("R", "T") if key not in rows]
    if missing:
        raise DataError(
            path, missing[0], expected="lines `R:` and `T:`", found=f"no {missing[0]}",
            remedy="unpack the calibration archive of that date again",
        )  # fmt: skip
    motion = se3.from_rotation_translation(rows["R"].reshape(3, 3), rows["T"])
    lidar_from_imu: FloatArray = rigid_poses(path, motion[None], ["R and T"])[0]
    return lidar_from_imu


def read_times(folder: Path, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N,) times of these sweeps: the lidar's own, else those of the GPS/IMU records, else 10 a second."""
    candidates = (folder / "velodyne_points" / "timestamps.txt", folder / "oxts" / "timestamps.txt")
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        warnings.warn(
            f"{candidates[0]} is missing: assuming {_RATE_HZ} sweeps a second", Copilot4dWarning, stacklevel=2
        )
        return numbers * (1_000_000_000 // _RATE_HZ)
    lines = numbered_lines(path, "timestamps", gapless=True)
    if numbers[-1] >= len(lines):
        raise DataError(
            path, "timestamps", expected=f"a line for each sweep, up to number {numbers[-1]}",
            found=f"{len(lines)} lines", remedy="unpack the drive's timestamps again",
        )  # fmt: skip
    used = [lines[number] for number in numbers]
    timestamps_ns = np.array([_parse_time(path, number, text) for number, text in used], dtype=np.int64)
    check_increasing(path, timestamps_ns, [f"line {number}" for number, _ in used])
    return timestamps_ns


def _parse_time(path: Path, number: int, text: str) -> int:
    """`2011-09-26 13:04:32.335337762` -> nanoseconds; the clock's zone does not matter here."""
    whole, _, fraction = text.partition(".")
    try:
        moment = datetime.strptime(whole, "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)
        if not 1970 <= moment.year < 2200 or (fraction and not re.fullmatch(r"[0-9]{1,9}", fraction)):
            raise ValueError(text)
    except ValueError as error:
        raise DataError(
            path, f"timestamps, line {number}", expected="a time such as 2011-09-26 13:04:32.335337762",
            found=repr(text[:60]), remedy="unpack the drive's timestamps again",
        ) from error  # fmt: skip
    return int(moment.timestamp()) * 1_000_000_000 + int(fraction.ljust(9, "0") if fraction else 0)

"""Own data: a folder with one file per sweep, a pose file and, where the defaults do not fit, a copilot4d.yaml.

docs/own_data.md is the specification. `write_folder` writes this format.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from copilot4d.datasets.dataset import Dataset
from copilot4d.datasets.deskewing import Deskewing
from copilot4d.datasets.folder_config import FILE_NAME, UNITS_M, FolderConfig, load_config, parse_keys
from copilot4d.datasets.folder_timing import Timing, read_timing
from copilot4d.datasets.folder_writer import write_folder, write_kitti
from copilot4d.datasets.point_fields import PointFile
from copilot4d.datasets.point_files import SUFFIXES, read_points
from copilot4d.datasets.point_times import TIME_FIELDS
from copilot4d.datasets.sweep_files import SweepReader, list_folder, subfolders
from copilot4d.errors import DataError
from copilot4d.geometry import Drive, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.geometry.trajectory import Trajectory

__all__ = ["open", "recognise", "write_folder", "write_kitti"]

FORMAT = "folder"
SWEEP_FOLDERS = ("sweeps", "lidar", "points", "pointclouds", "clouds", "scans", "velodyne", "pcd", "ply", "bin")
POSE_FILES = ("poses.txt", "poses.tum", "poses_tum.txt", "poses_kitti.txt", "trajectory.txt", "traj.txt")


@dataclass(frozen=True, kw_only=True)
class _DriveFolder:
    folder: Path
    config: FolderConfig

    @property
    def name(self) -> str:
        return self.config.name or self.folder.name


def recognise(path: Path) -> Path | None:
    """A folder that has a copilot4d.yaml or is a drive, or whose subfolders have or are."""
    if (path / FILE_NAME).is_file():
        return path
    if path.name in SWEEP_FOLDERS and any((path.parent / name).is_file() for name in (FILE_NAME, *POSE_FILES)):
        return path.parent
    if _sweep_folder(path) is not None:
        return path
    return path if _drive_subfolders(path) else None


def open(root: Path, *, require_poses: bool = True, deskew: bool | None = None) -> Dataset:
    """The data set at a root that `recognise` gave.

    A drive without poses is an error when it is opened, so that the others can be used; if no drive has any, at once.
    `deskew` goes before what the descriptions say.
    """
    drives = _find_drives(root)
    by_name: dict[str, _DriveFolder] = {}
    for drive in drives:
        if drive.name in by_name:
            raise DataError(
                drive.folder / FILE_NAME, "name", expected="another name for each drive",
                found=f"{drive.name!r}, which {by_name[drive.name].folder} has too", remedy="rename one of the two",
            )  # fmt: skip
        by_name[drive.name] = drive
    without_poses = tuple(name for name, drive in by_name.items() if _pose_file(drive) is None)
    if require_poses and len(without_poses) == len(by_name):
        raise _no_poses(by_name[without_poses[0]])
    _check_splits(root, by_name)
    return Dataset(
        format=FORMAT,
        root=root,
        names=tuple(by_name),
        splits=_splits(by_name),
        open_drive=partial(_open_drive, drives=by_name, require_poses=require_poses, deskew=deskew),
        names_without_poses=without_poses,
    )


def _find_drives(root: Path) -> list[_DriveFolder]:
    # A drive's folder may be opened by itself: the description of the data set then stands one folder above.
    _, shared = _load(root.parent, {}) if not (root / FILE_NAME).is_file() else (None, {})
    config, shared = _load(root, _for_each_drive(shared))
    if _sweep_folder(root, config.sweeps) is not None:
        return [_DriveFolder(folder=root, config=config)]
    below = _for_each_drive(shared)
    drives = []
    for folder in subfolders(root):
        if (folder / FILE_NAME).is_file() or _sweep_folder(folder, config.sweeps) is not None:
            drives.append(_DriveFolder(folder=folder, config=_load(folder, below)[0]))
    if not drives:
        raise DataError(
            root, "sweeps", expected=f"files that end in {', '.join(SUFFIXES)} here or in {config.sweeps or 'sweeps'}/",
            found="none, nor subfolders that have them", remedy="copy the sweeps there, or correct `sweeps:`",
        )  # fmt: skip
    return drives


def _for_each_drive(keys: dict[str, Any]) -> dict[str, Any]:
    """What a folder's description says of the drives below it: all but what can be true of one drive only."""
    return {key: value for key, value in keys.items() if key not in ("name", "split")}


def _load(folder: Path, base: dict[str, Any]) -> tuple[FolderConfig, dict[str, Any]]:
    """The folder's own description on top of that of the folder above."""
    if (folder / FILE_NAME).is_file():
        return load_config(folder / FILE_NAME, base)
    return (FolderConfig(), {}) if not base else parse_keys(folder.parent / FILE_NAME, base)


def _drive_subfolders(path: Path) -> list[Path]:
    return [
        folder
        for folder in subfolders(path)
        if (folder / FILE_NAME).is_file()
        or (_sweep_folder(folder) is not None and any((folder / name).is_file() for name in POSE_FILES))
    ]


def _sweep_folder(folder: Path, name: str | None = None) -> Path | None:
    """Where a drive's sweeps are: the folder that its description names, or itself, or a subfolder of a usual name."""
    candidates = [folder / name] if name else [folder, *(folder / usual for usual in SWEEP_FOLDERS)]
    return next((path for path in candidates if path.is_dir() and _point_files(path)), None)


def _point_files(folder: Path) -> list[Path]:
    return [path for path in list_folder(folder, "sweeps") if path.suffix.lower() in SUFFIXES]


def _pose_file(drive: _DriveFolder) -> Path | None:
    names = (drive.config.poses,) if drive.config.poses else POSE_FILES
    return next((path for name in names if (path := drive.folder / name).is_file()), None)


def _no_poses(drive: _DriveFolder) -> DataError:
    expected = f"the pose file {drive.config.poses or ' or '.join(POSE_FILES[:3])}"
    return DataError(
        drive.folder, "poses", expected=expected, found="none",
        remedy=f"add it, or estimate poses: `copilot4d.doctor.write_estimated_poses` {drive.folder}",
    )  # fmt: skip


def _check_splits(root: Path, drives: dict[str, _DriveFolder]) -> None:
    """Each name under `splits:` must be a drive, where all drives are in sight: not in one drive's folder by itself."""
    if any(drive.folder == root for drive in drives.values()):
        return
    shared = _load(root, {})[0].splits
    own = [(d.folder, d.config.splits) for d in drives.values() if (d.folder / FILE_NAME).is_file()]
    known = list(dict.fromkeys(name for d in drives.values() for name in (d.name, d.folder.name)))
    for folder, splits in [(root, shared), *own]:
        for split, names in (splits or {}).items():
            unknown = [name for name in names if name not in known]
            if unknown:
                near = difflib.get_close_matches(unknown[0], known, n=1)
                shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
                raise DataError(
                    folder / FILE_NAME, f"splits.{split}", expected=f"drives of {root}: {shown}",
                    found=", ".join(unknown),
                    remedy=f"write {near[0]}, if you meant that" if near else "correct the name, or take it out",
                )  # fmt: skip


def _splits(drives: dict[str, _DriveFolder]) -> dict[str, tuple[str, ...]]:
    members: dict[str, list[str]] = {}
    for name, drive in drives.items():
        if (split := _split_of(drive)) is not None:
            members.setdefault(split, []).append(name)
    return {split: tuple(names) for split, names in members.items()}


def _split_of(drive: _DriveFolder) -> str | None:
    if drive.config.split is not None:
        return drive.config.split
    listed = (drive.config.splits or {}).items()
    return next((split for split, names in listed if drive.name in names or drive.folder.name in names), None)


def _open_drive(name: str, *, drives: dict[str, _DriveFolder], require_poses: bool, deskew: bool | None) -> Drive:
    drive = drives[name]
    config = drive.config
    pose_file = _pose_file(drive)
    if pose_file is None and require_poses:
        raise _no_poses(drive)
    folder = _sweep_folder(drive.folder, config.sweeps)
    paths = tuple(_point_files(folder)) if folder is not None else ()
    if not paths:
        raise DataError(
            drive.folder / (config.sweeps or ""), "sweeps", expected=f"files that end in {', '.join(SUFFIXES)}",
            found="none", remedy="copy the sweeps there, or correct `sweeps:` in copilot4d.yaml",
        )  # fmt: skip
    timing = read_timing(drive.folder, config, paths, pose_file)
    world_from_lidar = _lidar_poses(timing.poses, config)
    is_deskewed = (config.deskew if deskew is None else deskew) is True and pose_file is not None
    read_file = FolderPoints(
        columns=config.columns,
        drop_invalid=config.invalid_points == "drop",
        scale=UNITS_M[config.units],
        lidar_from_file=config.lidar_from_file,
        time_field=config.time_field,
    )
    order = timing.order
    return Drive(
        name=name,
        world_from_lidar=world_from_lidar,
        timestamps_ns=timing.timestamps_ns,
        read=SweepReader(
            paths=tuple(paths[k] for k in order),
            world_from_lidar=world_from_lidar,
            timestamps_ns=timing.timestamps_ns,
            read_file=read_file.timed() if is_deskewed else read_file,
            deskewing=Deskewing(trajectory=_trajectory(timing, config), time_unit=config.time_unit)
            if is_deskewed
            else None,
        ),
        split=_split_of(drive),
        format=FORMAT,
        source=str(drive.folder),
        ego_box=config.ego_box,
    )


def _trajectory(timing: Timing, config: FolderConfig) -> Trajectory:
    """Of the lidar: at all times that the pose file has, or else at the sweeps' own."""
    if timing.way is None or len(timing.way.poses) < 2:
        return Trajectory(timestamps_ns=timing.timestamps_ns, world_from_body=_lidar_poses(timing.poses, config))
    return Trajectory(timestamps_ns=timing.way.timestamps_ns, world_from_body=_lidar_poses(timing.way.poses, config))


def _lidar_poses(file_poses: FloatArray, config: FolderConfig) -> FloatArray:
    """(N, 4, 4) world_from_lidar in metres, from a lidar frame in our axes."""
    scale = UNITS_M[config.units]
    poses = file_poses.copy()
    poses[:, :3, 3] *= scale
    if config.ego_from_lidar is not None:
        ego_from_lidar = config.ego_from_lidar.copy()
        ego_from_lidar[:3, 3] *= scale
        poses = se3.compose(poses, ego_from_lidar)
    file_from_lidar = se3.from_rotation_translation(config.lidar_from_file.T, np.zeros(3))
    return se3.compose(poses, file_from_lidar)


@dataclass(frozen=True, kw_only=True)
class FolderPoints:
    """Reads one sweep file into our axes and metres."""

    columns: tuple[str, ...] | None
    drop_invalid: bool
    scale: float
    lidar_from_file: FloatArray  # (3, 3), a permutation of axes with signs
    time_field: str | None = None  # the column with the times of the points; None: by its usual names
    with_times: bool = False

    def timed(self) -> FolderPoints:
        """The same reader, which reads the times of the points as well."""
        return replace(self, with_times=True)

    def __call__(self, path: Path) -> PointFile:
        """The file's points, turned and scaled where the description says so."""
        names = TIME_FIELDS if self.time_field is None else (self.time_field.lower(),)
        file = read_points(
            path, columns=self.columns, drop_invalid=self.drop_invalid, time_names=names if self.with_times else ()
        )
        if self.scale == 1 and np.array_equal(self.lidar_from_file, np.eye(3)):
            return file
        to_lidar = (self.scale * self.lidar_from_file.T).astype(np.float32)
        return replace(
            file, points=file.points @ to_lidar, origins=None if file.origins is None else file.origins @ to_lidar
        )

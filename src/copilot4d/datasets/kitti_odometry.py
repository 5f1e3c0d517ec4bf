"""KITTI Odometry: sequences/XX/velodyne/%06d.bin, calib.txt, times.txt; poses/XX.txt or sequences/XX/poses.txt.

Poses on disk are those of the left camera; `world_from_lidar = inv(Tr) . pose . Tr` with Tr = camera from lidar, so the
world is the lidar's frame at the sequence's start. Sweeps are matched to poses and times by their number, so a sweep
that is missing leaves a gap in time. A sequence of another car may say in ego_box.txt where its own returns lie.
"""

from __future__ import annotations

import re
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.dataset import Dataset
from copilot4d.datasets.ego_box_files import read_ego_box
from copilot4d.datasets.indexing import Indexed
from copilot4d.datasets.point_files import read_kitti_points
from copilot4d.datasets.pose_files import read_kitti_poses, rigid_poses
from copilot4d.datasets.sweep_files import kitti_drive, list_folder, numbered_sweeps, subfolders
from copilot4d.datasets.text_files import check_increasing, numbered_lines, parse_floats, parse_nanoseconds
from copilot4d.errors import Copilot4dWarning, DataError
from copilot4d.geometry import Drive, se3
from copilot4d.geometry.se3 import FloatArray

FORMAT = "kitti_odometry"
SPLITS = {  # 4D-Occ's
    "train": ("00", "01", "02", "03", "04", "05"),
    "val": ("06", "07"),
    "test": ("08", "09", "10"),
}
_RATE_HZ = 10


def recognise(path: Path) -> Path | None:
    """The root (with sequences/ in it) or one sequence folder (with velodyne/ in it), or None."""
    for root in (path, path / "dataset"):
        if (root / "sequences").is_dir():
            return root
    if path.name == "sequences" and any((folder / "velodyne").is_dir() for folder in subfolders(path)):
        return path.parent
    sequence = path.parent if path.name == "velodyne" else path
    if (sequence / "velodyne").is_dir() and (
        sequence.parent.name == "sequences" or any((sequence / name).is_file() for name in ("calib.txt", "poses.txt"))
    ):
        return sequence
    return None


def open(root: Path, *, require_poses: bool = True) -> Dataset:
    """The data set at a root that `recognise` gave."""
    if (root / "velodyne").is_dir():
        sequences = {root.name: root}
    else:
        folders = [path for path in list_folder(root / "sequences", "sequences") if path.is_dir()]
        sequences = {folder.name: folder for folder in folders if (folder / "velodyne").is_dir()}
        if not sequences:
            raise DataError(
                root / "sequences", "sequences", expected="folders such as 00/velodyne",
                found=f"{len(folders)} folders, none with velodyne/ in it", remedy="unpack the velodyne data there",
            )  # fmt: skip
    names = tuple(sequences)
    split_of = {name: split for name in names if (split := _split(name)) is not None}
    return Dataset(
        format=FORMAT,
        root=root,
        names=names,
        splits={
            split: members
            for split in SPLITS
            if (members := tuple(name for name in names if split_of.get(name) == split))
        },
        open_drive=partial(_open_drive, sequences=sequences, require_poses=require_poses),
        names_without_poses=tuple(name for name, folder in sequences.items() if _pose_file(folder) is None),
        indexed=Indexed(
            files=lambda name: _sources(sequences[name]),
            read_file=lambda numbers: read_kitti_points,
            options=f"require_poses={require_poses}",
        ),
    )


def _open_drive(name: str, *, sequences: dict[str, Path], require_poses: bool) -> Drive:
    folder = sequences[name]
    numbers, paths = numbered_sweeps(folder / "velodyne")
    timestamps_ns = _read_times(folder, numbers)
    ego_box = read_ego_box(folder)
    pose_file = _pose_file(folder)
    if pose_file is not None:
        world_from_lidar = _read_poses(pose_file, folder / "calib.txt", numbers)
    elif require_poses:
        raise DataError(
            folder, "poses", expected=f"poses.txt here or poses/{name}.txt beside sequences/", found="neither",
            remedy=f"copy the poses there, or estimate them: `copilot4d.doctor.write_estimated_poses` {folder}",
        )  # fmt: skip
    else:
        world_from_lidar = se3.identity((len(paths),))
    return kitti_drive(
        name, folder, paths, world_from_lidar, timestamps_ns, format=FORMAT, split=_split(name), ego_box=ego_box
    )


def _sources(folder: Path) -> tuple[Path, ...]:
    """All that a sequence is read from: which sweeps there are, and the texts beside them."""
    names = ("velodyne", "calib.txt", "times.txt", "ego_box.txt", "poses.txt")
    return (*(folder / name for name in names), folder.parent.parent / "poses" / f"{folder.name}.txt")


def _split(name: str) -> str | None:
    """The split of an official sequence name, or of one that starts with it: train_0011 -> train."""
    for split, members in SPLITS.items():
        if name in members or name.startswith(f"{split}_"):
            return split
    return None


def _pose_file(folder: Path) -> Path | None:
    candidates = (folder.parent.parent / "poses" / f"{folder.name}.txt", folder / "poses.txt")
    return next((path for path in candidates if path.is_file()), None)


def _read_poses(pose_file: Path, calib_file: Path, numbers: NDArray[np.int64]) -> FloatArray:
    world_from_camera = read_kitti_poses(pose_file)
    if numbers[-1] >= len(world_from_camera):
        raise DataError(
            pose_file, "poses", expected=f"a line for each sweep, up to number {numbers[-1]}",
            found=f"{len(world_from_camera)} lines", remedy="write a pose for every sweep, or remove the last sweeps",
        )  # fmt: skip
    camera_from_lidar = read_calibration(calib_file)
    lidar_from_camera = se3.invert(camera_from_lidar)
    return se3.compose(lidar_from_camera, world_from_camera[numbers], camera_from_lidar)


def read_calibration(path: Path) -> FloatArray:
    """(4, 4) camera_from_lidar from the line `Tr:` (also written `Tr_velo_to_cam:`) of calib.txt."""
    for number, line in numbered_lines(path, "Tr"):
        match = re.match(r"Tr(?:_velo_to_cam|_velo_cam)?\s*(?::|\s)(.*)", line)
        if match:
            tr = se3.identity()
            tr[:3] = np.array(parse_floats(path, "Tr", number, match[1].split(), 12)).reshape(3, 4)
            camera_from_lidar: FloatArray = rigid_poses(path, tr[None], [f"Tr, line {number}"])[0]
            return camera_from_lidar
    raise DataError(
        path, "Tr", expected="a line `Tr:` with 12 numbers (camera from lidar)", found="no such line",
        remedy="copy calib.txt from the KITTI Odometry calibration archive, not from the grey-scale images' one",
    )  # fmt: skip


def _read_times(folder: Path, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    path = folder / "times.txt"
    if not path.exists():
        warnings.warn(f"{path} is missing: assuming {_RATE_HZ} sweeps a second", Copilot4dWarning, stacklevel=2)
        return numbers * (1_000_000_000 // _RATE_HZ)
    lines = numbered_lines(path, "timestamps", gapless=True)
    if numbers[-1] >= len(lines):
        raise DataError(
            path, "timestamps", expected=f"a line for each sweep, up to number {numbers[-1]}",
            found=f"{len(lines)} lines", remedy="restore times.txt; it has one time in seconds per sweep",
        )  # fmt: skip
    used = [lines[number] for number in numbers]
    times = [parse_nanoseconds(path, "timestamps", number, text) for number, text in used]
    timestamps_ns = np.array(times, dtype=np.int64)
    check_increasing(path, timestamps_ns, [f"line {number}" for number, _ in used])
    return timestamps_ns

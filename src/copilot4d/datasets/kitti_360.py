"""KITTI-360: data_3d_raw/<drive>/velodyne_points/data/<frame>.bin, with poses in data_poses/<drive>/ and calibration/.

Poses are the vehicle's (GPS and IMU, optimised), at frames where it moved; other frames are interpolated by time.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.dataset import Dataset
from copilot4d.datasets.kitti_raw import read_times
from copilot4d.datasets.point_files import read_kitti_points
from copilot4d.datasets.pose_files import rigid_poses
from copilot4d.datasets.sweep_files import KITTI_EGO_BOX, SweepReader, numbered_sweeps, subfolders
from copilot4d.datasets.text_files import numbered_lines, parse_floats
from copilot4d.errors import DataError
from copilot4d.geometry import Drive, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.geometry.trajectory import Trajectory

FORMAT = "kitti_360"
SWEEPS, POSES, CALIBRATION = "data_3d_raw", "data_poses", "calibration"
_DATA = Path("velodyne_points") / "data"
_LONGEST_GAP_S = 30.0  # a vehicle that stands still has no poses; further apart, the line between two is no way


def recognise(path: Path) -> Path | None:
    """The root, data_3d_raw itself, one drive in it, or that drive's velodyne_points."""
    for folder in (path, *list(path.parents)[:4]):
        if _drives(folder):
            inside = path.relative_to(folder).parts
            return folder if not inside or inside[0] == SWEEPS else None
    return None


def open(root: Path) -> Dataset:
    """The drives below a root, by the folder's name."""
    folders = {folder.name: folder for folder in _drives(root)}
    return Dataset(format=FORMAT, root=root, names=tuple(folders), open_drive=partial(_open, root=root))


def _drives(root: Path) -> list[Path]:
    return [folder for folder in subfolders(root / SWEEPS) if (folder / _DATA).is_dir()]


def _open(name: str, *, root: Path) -> Drive:
    folder = root / SWEEPS / name
    numbers, paths = numbered_sweeps(folder / _DATA)
    timestamps_ns = read_times(folder, numbers)
    way = _vehicle_way(root / POSES / name / "poses.txt", numbers, timestamps_ns)
    vehicle_from_lidar = _vehicle_from_lidar(root / CALIBRATION)
    known = way.knows(timestamps_ns, longest_gap_s=_LONGEST_GAP_S)
    if not known.any():
        raise DataError(
            root / POSES / name / "poses.txt", "poses", expected="poses around the sweeps", found="none near them",
            remedy="unpack the drive's poses again",
        )  # fmt: skip
    kept = np.flatnonzero(known)
    world_from_lidar = se3.nearest_rigid(se3.compose(way.at(timestamps_ns[kept]), vehicle_from_lidar))
    reader = SweepReader(
        paths=tuple(paths[i] for i in kept), world_from_lidar=world_from_lidar, timestamps_ns=timestamps_ns[kept],
        read_file=read_kitti_points,
    )  # fmt: skip
    return Drive(
        name=name, world_from_lidar=world_from_lidar, timestamps_ns=timestamps_ns[kept], read=reader, format=FORMAT,
        source=str(folder), ego_box=KITTI_EGO_BOX,
    )  # fmt: skip


def _vehicle_way(path: Path, numbers: NDArray[np.int64], timestamps_ns: NDArray[np.int64]) -> Trajectory:
    """From lines `frame r11 r12 r13 tx ...`: 13 numbers. Frames without a sweep are left out."""
    place = {int(number): i for i, number in enumerate(numbers)}
    times, rows, labels = [], [], []
    for line_number, line in numbered_lines(path, "poses"):
        values = parse_floats(path, "poses", line_number, line.split(), 13)
        if (frame := int(values[0])) in place:
            times.append(int(timestamps_ns[place[frame]]))
            rows.append(values[1:])
            labels.append(f"line {line_number}")
    if not rows or np.any(np.diff(times) <= 0):
        raise DataError(
            path, "poses", expected="poses of the drive's frames, in order",
            found="none of them" if not rows else "frames that are not in order", remedy="unpack the poses again",
        )  # fmt: skip
    poses = se3.identity((len(rows),))
    poses[:, :3] = np.array(rows).reshape(-1, 3, 4)
    return Trajectory(
        timestamps_ns=np.array(times, dtype=np.int64), world_from_body=rigid_poses(path, poses, labels)
    )  # fmt: skip


def _vehicle_from_lidar(folder: Path) -> FloatArray:
    """calib_cam_to_pose.txt (image_00: vehicle_from_camera) and calib_cam_to_velo.txt (lidar_from_camera)."""
    to_pose, to_velo = folder / "calib_cam_to_pose.txt", folder / "calib_cam_to_velo.txt"
    row = next((item for item in numbered_lines(to_pose, "calibration") if item[1].startswith("image_00:")), None)
    if row is None:
        raise DataError(
            to_pose, "calibration", expected="a line image_00:", found="none", remedy="unpack the calibration again"
        )
    vehicle_from_camera = _matrix(to_pose, row[0], row[1].split()[1:])
    lines = numbered_lines(to_velo, "calibration")
    words = [word for _, line in lines for word in line.split()]
    lidar_from_camera = _matrix(to_velo, lines[0][0] if lines else 1, words)
    return se3.compose(vehicle_from_camera, se3.invert(lidar_from_camera))


def _matrix(path: Path, line: int, words: list[str]) -> FloatArray:
    motion = se3.identity()
    motion[:3] = np.array(parse_floats(path, "calibration", line, words, 12)).reshape(3, 4)
    rigid: FloatArray = rigid_poses(path, motion[None], [f"line {line}"])[0]
    return rigid

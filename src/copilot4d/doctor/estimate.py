"""Poses for logs that have none: KISS-ICP over the sweeps, written where the data set's format looks for them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from copilot4d.datasets import open_dataset
from copilot4d.datasets.bags.description import estimated_poses_path
from copilot4d.datasets.folder_config import UNITS_M, FolderConfig
from copilot4d.datasets.kitti_odometry import read_calibration
from copilot4d.datasets.pose_files import write_kitti_poses, write_tum_poses
from copilot4d.doctor.compare_poses import PoseComparison, compare_poses
from copilot4d.doctor.file_frame import description_of
from copilot4d.doctor.files import sweep_paths
from copilot4d.doctor.ground import find_ground
from copilot4d.doctor.registration import SweepPair, forward_starts, structure
from copilot4d.errors import UsageError
from copilot4d.geometry import Drive, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.progress import Track, silent

_MAX_RANGE_M, _MIN_RANGE_M = 100.0, 2.5
_ESTIMATED = "poses_estimated.txt"  # beside poses that are there already


def estimate_poses(drive: Drive, track: Track = silent) -> FloatArray:
    """(N, 4, 4) world_from_lidar by lidar odometry; the world is the first sweep's frame. Needs the extra `poses`."""
    kiss = _kiss_icp()
    poses = []
    for i in track(range(len(drive)), f"registering {drive.name}", len(drive)):
        points = np.ascontiguousarray(drive[i].points, dtype=np.float64)
        kiss.register_frame(points, np.zeros(0))
        if i == 0:
            kiss.last_delta = first_motion(drive)  # it expects a standing start; at speed it would lag for seconds
        poses.append(kiss.last_pose.copy())
    return se3.nearest_rigid(np.array(poses).reshape(-1, 4, 4))


def first_motion(drive: Drive) -> FloatArray:
    """(4, 4) first_from_second sweep, searched for over all speeds of a vehicle; the identity where nothing is seen."""
    if len(drive) < 2:
        return np.eye(4)
    clouds = []
    for sweep in (drive[0], drive[1]):
        ground = find_ground(sweep.points)
        level = -ground.origin_height if ground is not None and ground.up == "+z" else None
        clouds.append(structure(sweep.points, level))
    pair = SweepPair.of(*clouds)
    seconds = float(drive.timestamps_ns[1] - drive.timestamps_ns[0]) * 1e-9
    return np.eye(4) if pair is None else pair.registered(forward_starts(min(seconds, 1.0)))


@dataclass(frozen=True, kw_only=True)
class EstimatedPoses:
    """The estimated poses of one drive, where they were written, and how they compare with those it has."""

    drive: str
    file: Path
    in_use: bool  # False: the log's own poses stay in use
    comparison: PoseComparison | None = None  # None where the log has no poses


def write_estimated_poses(path: str | Path, *, names: tuple[str, ...] = (), out: str | Path | None = None,
                          track: Track = silent) -> list[Path]:  # fmt: skip
    """`estimate_and_compare`, for the files alone."""
    return [made.file for made in estimate_and_compare(path, names=names, out=out, track=track)]


def estimate_and_compare(path: str | Path, *, names: tuple[str, ...] = (), out: str | Path | None = None,
                         track: Track = silent) -> list[EstimatedPoses]:  # fmt: skip
    """Estimate and write the poses of a data set's drives; returns what was written.

    Without names: of all drives that have no poses, or of all if every drive has some. They go where the data set looks
    for them: own data gets the file and the format that its description names. Beside poses that exist, the new ones
    are called poses_estimated.txt. `out` writes OUT/DRIVE.txt (TUM) instead. No file is replaced: if one is in the way,
    or cannot be written, a UsageError says so before any work.
    """
    _kiss_icp()  # before anything is read: without the extra there is nothing to do
    dataset = open_dataset(path, require_poses=False)
    if not names:
        names = tuple(name for name in dataset.names if not dataset.has_poses(name)) or dataset.names
    dataset = dataset.select(names)
    targets = {}
    for name in names:
        drive = dataset[name]
        if out is None:
            targets[name] = _target(drive, description_of(dataset.root, drive), dataset.has_poses(name))
        else:
            targets[name] = Path(out) / f"{name}.txt"
        _check_free(targets[name])
    written = []
    for name, target in targets.items():
        drive = dataset[name]
        poses = estimate_poses(drive, track)
        target.parent.mkdir(parents=True, exist_ok=True)
        if out is None and drive.format == "kitti_odometry":
            _write_kitti(target, drive, poses)
        elif out is None and drive.format == "folder":
            _write_own(target, drive, description_of(dataset.root, drive), poses)
        else:
            write_tum_poses(target, drive.timestamps_ns, poses)
        has_poses = dataset.has_poses(name)
        comparison = compare_poses(drive, poses) if has_poses else None
        in_use = out is None and not has_poses
        written.append(EstimatedPoses(drive=name, file=target, in_use=in_use, comparison=comparison))
    return written


def _target(drive: Drive, description: FolderConfig, has_poses: bool) -> Path:
    """Where the format looks for poses; UsageError where it has no place for estimated ones."""
    source = Path(drive.source)
    if drive.format == "ros_bag":
        target = estimated_poses_path(source)
        return target.with_name(f"{target.stem}_estimated.txt") if has_poses else target
    if drive.format not in ("kitti_odometry", "folder", "kitti_raw") or not source.is_dir():
        raise UsageError(
            f"drive {drive.name} ({drive.format}) has no place for estimated poses: name a folder, "
            "`write_estimated_poses.out`"
        )
    if drive.format == "kitti_odometry":
        read_calibration(source / "calib.txt")  # a DataError now, not after an hour of work
    return source / (_ESTIMATED if has_poses else description.poses or "poses.txt")


def _check_free(target: Path) -> None:
    """UsageError where a file is in the way or cannot be written: now, not after an hour of work."""
    if os.path.lexists(target):
        raise UsageError(
            f"{target} exists and is not replaced: move it away, or name another folder, `write_estimated_poses.out`"
        )
    parent = next(folder for folder in target.parents if os.path.lexists(folder))
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"{target} cannot be written: name a folder that you may write to, `write_estimated_poses.out`"
        )


def _write_kitti(target: Path, drive: Drive, poses: FloatArray) -> None:
    camera_from_lidar = read_calibration(target.parent / "calib.txt")
    numbered = _one_per_number(drive, poses)
    write_kitti_poses(target, se3.compose(camera_from_lidar, numbered, se3.invert(camera_from_lidar)))


def _write_own(target: Path, drive: Drive, description: FolderConfig, world_from_lidar: FloatArray) -> None:
    """In the format that own data is described to have; TUM where it is not: the file itself tells."""
    poses = _as_in_files(description, world_from_lidar)
    if description.pose_format == "kitti":
        write_kitti_poses(target, poses)
    else:
        write_tum_poses(target, drive.timestamps_ns, poses)


def _as_in_files(config: FolderConfig, world_from_lidar: FloatArray) -> FloatArray:
    """Undo what the description of own data says of its poses: its axes, its units and where the lidar sits."""
    lidar_from_file = se3.from_rotation_translation(config.lidar_from_file, np.zeros(3))
    poses = se3.compose(world_from_lidar, lidar_from_file)
    poses[:, :3, 3] /= UNITS_M[config.units]
    return poses if config.ego_from_lidar is None else se3.compose(poses, se3.invert(config.ego_from_lidar))


def _one_per_number(drive: Drive, poses: FloatArray) -> FloatArray:
    """KITTI's pose file has a line for every frame number, also for sweeps that are missing: those are interpolated."""
    numbers = np.array([int(path.stem) for path in sweep_paths(drive)], dtype=np.float64)
    every = np.arange(int(numbers[-1]) + 1, dtype=np.float64)
    return se3.interpolate_trajectory(numbers, poses, np.maximum(every, numbers[0]))


def _kiss_icp() -> Any:
    try:
        from kiss_icp.config import KISSConfig
        from kiss_icp.kiss_icp import KissICP
    except ImportError as error:
        raise UsageError(
            "estimating poses needs KISS-ICP, which is not installed: pip install 'copilot4d[poses]'"
        ) from error
    config = KISSConfig()
    config.data.max_range, config.data.min_range, config.data.deskew = _MAX_RANGE_M, _MIN_RANGE_M, False
    config.mapping.voxel_size = _MAX_RANGE_M / 100
    return KissICP(config=config)

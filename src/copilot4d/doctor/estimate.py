"""Poses for logs that have none: KISS-ICP over the sweeps, written where the data set's format looks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from copilot4d.datasets import open_dataset
from copilot4d.datasets.kitti_odometry import read_calibration
from copilot4d.datasets.pose_files import write_kitti_poses, write_tum_poses
from copilot4d.doctor.files import sweep_paths
from copilot4d.doctor.ground import find_ground
from copilot4d.doctor.registration import SweepPair, forward_starts, structure
from copilot4d.errors import DataError, UsageError
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


def write_estimated_poses(path: str | Path, *, names: tuple[str, ...] = (), out: str | Path | None = None,
                          track: Track = silent) -> list[Path]:  # fmt: skip
    """Estimate and write the poses of a data set's drives; returns the files written.

    Without names: of all drives that have no poses, or of all if every drive has some. Nothing on disk is replaced:
    beside poses that exist, the new ones are called poses_estimated.txt. `out` writes OUT/DRIVE.txt (TUM) instead.
    """
    _kiss_icp()  # before anything is read: without the extra there is nothing to do
    dataset = open_dataset(path, require_poses=False)
    if not names:
        names = tuple(name for name in dataset.names if not dataset.has_poses(name)) or dataset.names
    written = []
    for name in names:
        drive = dataset.select([name])[name]
        target = None if out is not None else _target(drive, dataset.has_poses(name))
        poses = estimate_poses(drive, track)
        if target is None:
            written.append(_write_tum(Path(str(out)) / f"{name}.txt", drive, poses))
        else:
            written += _write_in_place(drive, target, poses)
    return written


def _target(drive: Drive, has_poses: bool) -> Path:
    """Where the format looks for poses; UsageError where it has no place for estimated ones."""
    source = Path(drive.source)
    if drive.format not in ("kitti_odometry", "folder", "kitti_raw") or not source.is_dir():
        raise UsageError(
            f"drive {drive.name} ({drive.format}) has no place for estimated poses: give a folder with --poses-out DIR"
        )
    if drive.format == "kitti_odometry":
        read_calibration(source / "calib.txt")  # a DataError now, not after an hour of work
    return source / (_ESTIMATED if has_poses else "poses.txt")


def _write_in_place(drive: Drive, target: Path, poses: FloatArray) -> list[Path]:
    if drive.format == "kitti_odometry":
        camera_from_lidar = read_calibration(target.parent / "calib.txt")
        numbered = _one_per_number(drive, poses)
        write_kitti_poses(target, se3.compose(camera_from_lidar, numbered, se3.invert(camera_from_lidar)))
        return [target]
    if drive.format == "folder":
        return [_write_tum(target, drive, _as_in_folder(drive, poses, target.name == _ESTIMATED))]
    written = [_write_tum(target, drive, poses)]
    if target.name != _ESTIMATED:
        written.append(_describe_raw(target.parent, drive))
    return written


def _as_in_folder(drive: Drive, poses: FloatArray, has_poses: bool) -> FloatArray:
    """Undo what the folder's description says of its poses: its axes, its units and where the lidar sits.

    A log without poses was given identities, which the description turned into `file_from_lidar`: its inverse undoes
    axes and mounting.
    """
    scale = float(getattr(getattr(drive.read, "read_file", None), "scale", 1.0))
    if not has_poses:
        poses = se3.compose(poses, se3.invert(drive.world_from_lidar[0]))
    poses = poses.copy()
    poses[:, :3, 3] /= scale
    return poses


def _one_per_number(drive: Drive, poses: FloatArray) -> FloatArray:
    """KITTI's pose file has a line for every frame number, also for sweeps that are missing: those are interpolated."""
    numbers = np.array([int(path.stem) for path in sweep_paths(drive)], dtype=np.float64)
    every = np.arange(int(numbers[-1]) + 1, dtype=np.float64)
    return se3.interpolate_trajectory(numbers, poses, np.maximum(every, numbers[0]))


def _describe_raw(folder: Path, drive: Drive) -> Path:
    """A KITTI raw drive without GPS records becomes own data: a description beside its sweeps."""
    target = folder / "copilot4d.yaml"
    if target.exists():
        raise DataError(
            target, "description", expected="none yet", found="one", remedy="remove it, or use --poses-out DIR"
        )
    keys: dict[str, Any] = {
        "version": 1, "name": drive.name, "sweeps": "velodyne_points/data", "columns": "x y z intensity",
        "poses": "poses.txt", "pose_format": "tum",
    }  # fmt: skip
    target.write_text(yaml.safe_dump(keys, sort_keys=False), encoding="utf-8")
    return target


def _write_tum(path: Path, drive: Drive, poses: FloatArray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tum_poses(path, drive.timestamps_ns, poses)
    return path


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

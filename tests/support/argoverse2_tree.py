"""Writes small Argoverse 2 logs: float16 points in the ego frame, of two lidars, with poses and calibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather

from copilot4d.geometry import Drive, se3

FIRST_NS = 315966265259836000
EGO_FROM_UPPER = se3.from_yaw(-0.01, (1.35, 0.0, 1.64))
# The lower lidar hangs upside down: half a turn about x.
EGO_FROM_LOWER = se3.from_rotation_translation(np.diag([1.0, -1.0, -1.0]), np.array([1.345, 0.005, 1.525]))
POSE_COLUMNS = ("qw", "qx", "qy", "qz", "tx_m", "ty_m", "tz_m")


def pose_columns(poses: np.ndarray) -> dict[str, np.ndarray]:
    numbers = np.concatenate([se3.quaternion_from_rotation(poses[:, :3, :3]), poses[:, :3, 3]], axis=-1)
    return dict(zip(POSE_COLUMNS, numbers.T.copy(), strict=True))


def write_table(path: Path, columns: dict[str, object], *, chunksize: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.feather.write_feather(pa.table(columns), str(path), compression="lz4", chunksize=chunksize)


def sweep_columns(ego_points: np.ndarray) -> dict[str, object]:
    """The columns of a sweep; every third point is of the lower lidar."""
    count = len(ego_points)
    columns: dict[str, object] = {name: ego_points[:, k].astype(np.float16) for k, name in enumerate("xyz")}
    columns["intensity"] = (np.arange(count) % 256).astype(np.uint8)
    columns["laser_number"] = np.where(np.arange(count) % 3 == 0, 63 - np.arange(count) % 32, np.arange(count) % 32)
    columns["laser_number"] = columns["laser_number"].astype(np.uint8)  # type: ignore[attr-defined]
    columns["offset_ns"] = np.arange(count, dtype=np.int32)
    return columns


def write_argoverse2(
    log: Path, drive: Drive, *, ego_from_upper: np.ndarray = EGO_FROM_UPPER, chunksize: int | None = None
) -> Path:
    """One log; the drive's poses and points are taken to be those of the upper lidar."""
    upper_from_ego = se3.invert(ego_from_upper)
    world_from_ego = drive.world_from_lidar @ upper_from_ego
    for sweep in drive:
        ego_points = se3.transform_points(ego_from_upper, sweep.points.astype(np.float64))
        path = log / "sensors" / "lidar" / f"{FIRST_NS + sweep.timestamp_ns}.feather"
        write_table(path, sweep_columns(ego_points), chunksize=chunksize)
    # Poses come more often than sweeps: one in between, one before.
    times = FIRST_NS + drive.timestamps_ns
    all_times = np.concatenate([times - 5_000_000, times])
    order = np.argsort(all_times)
    poses = np.concatenate([world_from_ego, world_from_ego])[order]
    write_table(log / "city_SE3_egovehicle.feather", {"timestamp_ns": all_times[order], **pose_columns(poses)})
    sensors = np.stack([se3.identity(), ego_from_upper, EGO_FROM_LOWER])
    write_table(
        log / "calibration" / "egovehicle_SE3_sensor.feather",
        {"sensor_name": ["ring_front_center", "up_lidar", "down_lidar"], **pose_columns(sensors)},
    )
    return log

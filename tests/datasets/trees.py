"""Little valid trees of each format that this folder's tests open, read and damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml

from copilot4d.datasets import write_folder, write_kitti
from copilot4d.datasets.point_files import write_points
from copilot4d.geometry import Drive, Sweep, se3

CAMERA_FROM_LIDAR = se3.from_rotation_translation(
    np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]]), np.array([0.01, -0.08, -0.27])
)


def small_drive(frames: int = 4, *, name: str = "a", points: int = 7, origins: bool = False, **properties) -> Drive:
    """A left bend at 10 Hz with a few random points, intensities and (where asked) origins."""
    rng = np.random.default_rng(7)
    sweeps = [
        Sweep(
            points=rng.normal(0, 20, (points, 3)).astype(np.float32),
            intensity=rng.random(points, dtype=np.float32),
            origins=rng.normal(0, 1, (points, 3)).astype(np.float32) if origins else None,
            world_from_lidar=se3.from_yaw(0.1 * i, (1.5 * i, 0.2 * i * i, 1.7)),
            timestamp_ns=100_000_000 * i,
        )
        for i in range(frames)
    ]
    return Drive.from_sweeps(name, sweeps, **properties)


def kitti_tree(root: Path, drive: Drive, name: str = "08") -> Path:
    """An official-looking tree: camera poses in poses/NAME.txt, Tr in calib.txt."""
    folder = write_kitti(drive, root, name=name)
    numbers = " ".join(f"{v:.12e}" for v in CAMERA_FROM_LIDAR[:3].ravel())
    (folder / "calib.txt").write_text(f"P0: 1 0 0 0 0 1 0 0 0 0 1 0\nTr: {numbers}\n")
    world_from_camera = CAMERA_FROM_LIDAR @ drive.world_from_lidar @ np.linalg.inv(CAMERA_FROM_LIDAR)
    lines = [" ".join(f"{v:.6e}" for v in pose[:3].ravel()) for pose in world_from_camera]
    (folder / "poses.txt").unlink()
    (root / "poses").mkdir(exist_ok=True)
    (root / "poses" / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return root


LATITUDE, LONGITUDE = 49.0, 8.4
METRES_PER_DEGREE = np.deg2rad(6378137.0)
LIDAR_FROM_IMU = np.array([-0.8, 0.3, -0.8])  # a shift only, so that poses can be worked out by hand


def kitti_raw_tree(root: Path, frames: int = 3) -> Path:
    """A car that drives north at 10 m/s and, between the last two records, turns left by 0.1 rad."""
    date = root / "2011_09_26"
    drive = date / "2011_09_26_drive_0001_sync"
    data, oxts = drive / "velodyne_points" / "data", drive / "oxts" / "data"
    data.mkdir(parents=True)
    oxts.mkdir(parents=True)
    (date / "calib_imu_to_velo.txt").write_text(
        "calib_time: 25-May-2012 16:47:16\nR: 1 0 0 0 1 0 0 0 1\nT: " + " ".join(map(str, LIDAR_FROM_IMU)) + "\n"
    )
    stamps = []
    for i, sweep in enumerate(small_drive(frames)):
        write_points(data / f"{i:010d}.bin", sweep.points, sweep.intensity)
        north_degrees = i * 1.0 / METRES_PER_DEGREE
        yaw = np.pi / 2 + (0.1 if i == frames - 1 else 0.0)
        values = [LATITUDE + north_degrees, LONGITUDE, 100.0 + 0.5 * i, 0.0, 0.0, yaw, *[0.0] * 24]
        (oxts / f"{i:010d}.txt").write_text(" ".join(f"{v:.13g}" for v in values) + "\n")
        stamps.append(f"2011-09-26 13:04:32.{100_000_007 * i:09d}\n")
    for folder in (drive / "velodyne_points", drive / "oxts"):
        (folder / "timestamps.txt").write_text("".join(stamps))
    return root


def folder_tree(root: Path, drive: Drive, suffix: str = ".bin") -> Path:
    return write_folder(drive, root, suffix=suffix)


def rewrite(folder, **changes):
    """Change keys of a copilot4d.yaml; None removes one."""
    path = folder / "copilot4d.yaml"
    keys = (yaml.safe_load(path.read_text()) if path.exists() else {"version": 1}) | changes
    path.write_text(yaml.safe_dump({key: value for key, value in keys.items() if value is not None}))


def check_same(read, drive, atol=1e-12):
    np.testing.assert_allclose(read.world_from_lidar, drive.world_from_lidar, atol=atol)
    assert read.timestamps_ns.tolist() == drive.timestamps_ns.tolist()
    for sweep, true in zip(read, drive, strict=True):
        np.testing.assert_allclose(sweep.points, true.points, rtol=1e-6)
        np.testing.assert_array_equal(sweep.intensity, true.intensity)
        np.testing.assert_allclose(sweep.world_from_lidar, true.world_from_lidar, atol=atol)
        assert sweep.timestamp_ns == true.timestamp_ns
        if true.origins is not None:
            np.testing.assert_allclose(sweep.origins, true.origins, rtol=1e-6)

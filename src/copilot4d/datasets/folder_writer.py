"""Writing a drive: `write_folder` in our own-data format, `write_kitti` as a KITTI Odometry sequence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from copilot4d.datasets.folder_config import FILE_NAME, OUR_AXES, VERSION
from copilot4d.datasets.point_files import SUFFIXES, write_points
from copilot4d.datasets.pose_files import seconds_text, write_kitti_poses, write_tum_poses
from copilot4d.errors import UsageError
from copilot4d.geometry import Drive
from copilot4d.progress import Track, silent

_WITHOUT_ORIGINS = (".bin", ".npy")  # rows of plain columns
_SUFFIXES_WITH_ORIGINS = " ".join(suffix for suffix in SUFFIXES if suffix not in _WITHOUT_ORIGINS)
_IDENTITY = "1 0 0 0 0 1 0 0 0 0 1 0"


def write_folder(drive: Drive, out: str | Path, *, suffix: str = ".bin", track: Track = silent) -> Path:
    """Write a drive as OUT/copilot4d.yaml, OUT/poses.txt (TUM) and OUT/sweeps/TIMESTAMP_NS.suffix; returns OUT.

    Sweeps with ray origins need a suffix other than .bin and .npy. The description is written last, so a folder that
    has one is complete. Several drives go into subfolders of one folder, which then is a data set.
    """
    if suffix not in SUFFIXES:
        raise UsageError(f"write_folder: suffix {suffix!r} is not one of {' '.join(SUFFIXES)}")
    if len(drive) and int(drive.timestamps_ns[0]) < 0:
        raise UsageError(f"write_folder: drive {drive.name} has negative timestamps, which file names cannot hold")
    if suffix in _WITHOUT_ORIGINS and _has_origins(drive):  # before anything is made: another try finds nothing there
        raise UsageError(
            f"write_folder: drive {drive.name} has ray origins, which {suffix} files cannot hold; "
            f"give suffix= one of {_SUFFIXES_WITH_ORIGINS}"
        )
    out = _new_folder(Path(out))
    sweeps = out / "sweeps"
    sweeps.mkdir()
    for sweep in track(drive, f"writing {drive.name}", len(drive)):
        path = sweeps / f"{sweep.timestamp_ns:019d}{suffix}"
        write_points(path, sweep.points, sweep.intensity, sweep.origins)
    write_tum_poses(out / "poses.txt", drive.timestamps_ns, drive.world_from_lidar)
    keys: dict[str, Any] = {
        "version": VERSION,
        "name": drive.name,
        "sweeps": "sweeps",
        "axes": OUR_AXES,
        "units": "m",
        "poses": "poses.txt",
        "pose_format": "tum",
        "pose_frame": "world_from_lidar",
        "timestamps": {"filename": "ns"},
    }
    if suffix == ".bin":
        keys["columns"] = "x y z intensity"
    if drive.split is not None:
        keys["split"] = drive.split
    if drive.ego_box is not None:
        keys["ego_box"] = [float(value) for value in drive.ego_box]
    (out / FILE_NAME).write_text(yaml.safe_dump(keys, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return out


def write_kitti(drive: Drive, out: str | Path, *, name: str | None = None, track: Track = silent) -> Path:
    """Write a drive as OUT/sequences/NAME of a KITTI Odometry tree (Tr is the identity); returns the sequence's folder.

    A name that starts with train_, val_ or test_ puts it into that split. Sweeps must not have ray origins.
    """
    if _has_origins(drive):
        raise UsageError(
            f"write_kitti: drive {drive.name} has ray origins, which KITTI's .bin files cannot hold; "
            f"use write_folder with suffix= one of {_SUFFIXES_WITH_ORIGINS}"
        )
    folder = _new_folder(Path(out) / "sequences" / (name or drive.name))
    velodyne = folder / "velodyne"
    velodyne.mkdir()
    for number, sweep in enumerate(track(drive, f"writing {drive.name}", len(drive))):
        write_points(velodyne / f"{number:06d}.bin", sweep.points, sweep.intensity, sweep.origins)
    calibration = "".join(f"{key}: {_IDENTITY}\n" for key in ("P0", "P1", "P2", "P3", "Tr"))
    (folder / "calib.txt").write_text(calibration, encoding="utf-8")
    times = "".join(f"{seconds_text(int(time_ns))}\n" for time_ns in drive.timestamps_ns)
    (folder / "times.txt").write_text(times, encoding="utf-8")
    write_kitti_poses(folder / "poses.txt", drive.world_from_lidar)
    return folder


def _has_origins(drive: Drive) -> bool:
    return len(drive) > 0 and drive[0].origins is not None


def _new_folder(path: Path) -> Path:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} exists and is not an empty folder: choose another place, or remove it first")
    path.mkdir(parents=True, exist_ok=True)
    return path

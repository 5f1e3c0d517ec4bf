"""Own-data folders as a user would have them, in other axes than ours, and damaged on purpose in the files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from copilot4d.datasets.folder_config import OUR_AXES, parse_axes
from copilot4d.datasets.pose_files import write_tum_poses
from copilot4d.geometry import Drive, se3
from tests.doctor.logs import healthy_log

NUSCENES_AXES = "x right, y forward, z up"
Change = Callable[[np.ndarray], np.ndarray]


def same(values: np.ndarray) -> np.ndarray:
    return values


def write_own(
    folder: Path, *, axes: str = OUR_AXES, poses: Change = same, points: Change = same, lines: str = "",
    drive: Drive | None = None, times: str = "timestamps: {filename: ns}",
) -> Path:  # fmt: skip
    """The healthy log in files whose axes are `axes`; `poses` and `points` damage what the files then hold."""
    drive = drive or healthy_log()
    turn = parse_axes(axes)
    (folder / "sweeps").mkdir(parents=True)
    for sweep in drive:
        rows = np.column_stack([points(sweep.points @ turn), np.full(len(sweep), 0.5)])
        rows.astype("<f4").tofile(folder / "sweeps" / f"{sweep.timestamp_ns:019d}.bin")
    file_poses = se3.compose(drive.world_from_lidar, se3.from_rotation_translation(turn, np.zeros(3)))
    write_tum_poses(folder / "poses.txt", drive.timestamps_ns, poses(file_poses))
    describe(folder, f"axes: {axes}\n{times}\n{lines}")
    return folder


def describe(folder: Path, lines: str) -> None:
    (folder / "copilot4d.yaml").write_text(f"version: 1\n{lines}\n")


def tum_rows(folder: Path) -> np.ndarray:
    return np.loadtxt(folder / "poses.txt")


def write_tum_rows(folder: Path, rows: np.ndarray) -> None:
    np.savetxt(folder / "poses.txt", rows, fmt="%.12g")

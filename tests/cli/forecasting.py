"""Running `copilot4d forecast` on a small KITTI tree."""

from __future__ import annotations

import json
from pathlib import Path

from copilot4d.cli.main import main
from copilot4d.datasets.point_files import write_points
from copilot4d.datasets.pose_files import write_kitti_poses
from copilot4d.geometry import Drive


def write_kitti(root: Path, drive: Drive, name: str = "00") -> None:
    folder = root / "sequences" / name
    (folder / "velodyne").mkdir(parents=True)
    for i, sweep in enumerate(drive):
        write_points(folder / "velodyne" / f"{i:06d}.bin", sweep.points)
    (folder / "calib.txt").write_text("Tr: 1 0 0 0 0 1 0 0 0 0 1 0\n")
    (folder / "times.txt").write_text("".join(f"{t * 1e-9:.6f}\n" for t in drive.timestamps_ns))
    write_kitti_poses(folder / "poses.txt", drive.world_from_lidar)


def sweep_file(root: Path, frame: int, name: str = "00") -> Path:
    return root / "sequences" / name / "velodyne" / f"{frame:06d}.bin"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def forecast(data: Path, out: Path, *more: str, model: str = "copy_last") -> int:
    return main(["forecast", "--model", model, "--data", str(data), "--out", str(out), *more])


def description(out: Path) -> dict:
    return json.loads((out / "forecast.json").read_text())

"""`copilot4d forecast`: which moment of a log, and where the ego goes from there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.cli.main import main
from copilot4d.datasets import write_folder
from copilot4d.datasets.point_files import read_points
from copilot4d.datasets.pose_files import write_kitti_poses, write_tum_poses
from copilot4d.geometry import Drive, se3
from tests.cli.forecasting import description, forecast, sweep_file, truncate, write_kitti
from tests.support.scenes import make_drive


@pytest.fixture
def kitti(tmp_path: Path) -> Path:
    write_kitti(tmp_path / "kitti", make_drive(frames=22, rings=12, azimuths=90))
    return tmp_path / "kitti"


def test_at_the_end_of_the_log_the_ego_goes_on_at_constant_velocity(kitti: Path, tmp_path: Path, capsys) -> None:
    assert forecast(kitti, tmp_path / "out", "--frame", "17") == 0
    assert "last 3 of these" in capsys.readouterr().out
    future = description(tmp_path / "out")["future"]
    assert [entry["frame"] for entry in future] == [19, 21, None, None, None]
    assert [entry["pose_from"] for entry in future] == ["log"] * 2 + ["constant velocity"] * 3
    assert [entry["time_s"] for entry in future] == [0.2, 0.4, 0.6, 0.8, 1.0]
    poses = np.array([entry["world_from_lidar"] for entry in future])
    steps = se3.relative_motion(poses[:-1], poses[1:])
    np.testing.assert_allclose(steps, np.broadcast_to(steps[0], steps.shape), atol=1e-6)
    assert np.linalg.norm(steps[0, :3, 3]) == pytest.approx(1.2, abs=0.01)  # 6 m/s for 0.2 s


def test_a_short_past_is_used_and_named(kitti: Path, tmp_path: Path, capsys) -> None:
    assert forecast(kitti, tmp_path / "out", "--frame", "2") == 0
    assert "from 2 past sweeps (the 1s setting has 5)" in capsys.readouterr().out
    assert [entry["frame"] for entry in description(tmp_path / "out")["past"]] == [0, 2]


def test_future_poses_as_kitti_lines_one_per_frame(kitti: Path, tmp_path: Path, capsys) -> None:
    poses = np.stack([se3.from_yaw(0.1 * k, (5 + k, -k, 1.73)) for k in range(7)])
    write_kitti_poses(tmp_path / "route.txt", poses)
    assert forecast(kitti, tmp_path / "out", "--future-poses", str(tmp_path / "route.txt")) == 0
    assert "route.txt" in capsys.readouterr().out
    future = description(tmp_path / "out")["future"]
    np.testing.assert_allclose([entry["world_from_lidar"] for entry in future], poses, atol=1e-9)
    assert [entry["time_s"] for entry in future] == pytest.approx([0.2 * k for k in range(1, 8)])
    assert {entry["pose_from"] for entry in future} == {"file"}
    last = open_dataset(kitti)["00"][8].without_box(open_dataset(kitti)["00"].ego_box)
    expected = se3.transform_points(se3.relative_motion(poses[6], last.world_from_lidar), last.points)
    np.testing.assert_allclose(read_points(tmp_path / "out" / "future_07.ply").points, expected, atol=1e-4)


def test_future_poses_as_a_tum_trajectory_in_the_logs_time(kitti: Path, tmp_path: Path, capsys) -> None:
    # 2 m/s along y: at frame 8 (0.8 s) y is 1.6, and the five future frames are at 2.0, 2.4, ... 3.6.
    times = np.array([0.8, 1.1, 1.45, 2.0])
    write_tum_poses(
        tmp_path / "route.txt",
        (times * 1e9).astype(np.int64),
        np.stack([se3.from_yaw(0, (0, 2 * t, 0)) for t in times]),
    )
    assert forecast(kitti, tmp_path / "out", "--future-poses", str(tmp_path / "route.txt")) == 0
    y = [entry["world_from_lidar"][1][3] for entry in description(tmp_path / "out")["future"]]
    assert y == pytest.approx([2.0, 2.4, 2.8, 3.2, 3.6])
    write_tum_poses(tmp_path / "short.txt", np.array([0, 10**9]), se3.identity((2,)))
    assert forecast(kitti, tmp_path / "out", "--future-poses", str(tmp_path / "short.txt")) == 1
    assert "1.000 to 1.800 s" in capsys.readouterr().err


def test_a_missing_or_wrong_file_of_future_poses_is_named(kitti: Path, tmp_path: Path, capsys) -> None:
    assert forecast(kitti, tmp_path / "out", "--future-poses", str(tmp_path / "nowhere.txt")) == 1
    assert "nowhere.txt" in capsys.readouterr().err
    (tmp_path / "empty.txt").write_text("# nothing\n")
    assert forecast(kitti, tmp_path / "out", "--future-poses", str(tmp_path / "empty.txt")) == 1
    assert "empty.txt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--drive", "07"], "no drive 07"),
        (["--drive", "00", "--frame", "22"], "frames 0..21"),
        (["--drive", "00", "--frame", "-1"], "frames 0..21"),
        (["--frame", "8"], "--drive"),
    ],
)
def test_a_moment_that_is_not_there_is_wrong_usage(
    kitti: Path, tmp_path: Path, capsys, options: list[str], words: str
) -> None:
    write_kitti(kitti, make_drive(frames=3, rings=4, azimuths=30), "01")
    assert forecast(kitti, tmp_path / "out", *options) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_log_without_a_whole_window_says_why_and_what_to_do(tmp_path: Path, capsys) -> None:
    write_kitti(tmp_path / "short", make_drive(frames=6, rings=4, azimuths=30))
    assert forecast(tmp_path / "short", tmp_path / "out") == 1
    message = capsys.readouterr().err
    assert "6 sweeps" in message
    assert "--frame" in message
    assert forecast(tmp_path / "short", tmp_path / "out", "--frame", "5") == 0


def test_without_a_frame_skip_moves_on_to_a_moment_that_can_be_read(kitti: Path, tmp_path: Path, capsys) -> None:
    truncate(sweep_file(kitti, 4))
    assert forecast(kitti, tmp_path / "out") == 1
    assert forecast(kitti, tmp_path / "out", "--on-bad-sweep", "skip") == 0
    told = description(tmp_path / "out")
    assert told["reference_frame"] == 9
    assert len(told["skipped"]) == 1
    truncate(sweep_file(kitti, 9))
    truncate(sweep_file(kitti, 8))
    assert forecast(kitti, tmp_path / "out", "--on-bad-sweep", "skip", "--frame", "9") == 1  # the newest itself


def test_one_frame_of_the_setting_still_has_a_velocity_if_the_log_has_two_sweeps(tmp_path: Path, capsys) -> None:
    drive = make_drive(frames=2, rings=6, azimuths=40, yaw_rate=0.5)
    write_kitti(tmp_path / "two", drive)
    for frame in (0, 1):  # 0.1 s apart, where the setting's frames are 0.2 s apart
        assert forecast(tmp_path / "two", tmp_path / "out", "--frame", str(frame)) == 0
        future = description(tmp_path / "out")["future"]
        assert {entry["pose_from"] for entry in future} == {"constant velocity"}
        assert [entry["time_s"] for entry in future] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
        motion = se3.relative_motion(*drive.world_from_lidar)
        expected = drive.world_from_lidar[frame] @ np.linalg.matrix_power(motion, 10)
        np.testing.assert_allclose(future[-1]["world_from_lidar"], expected, atol=1e-5)
    assert capsys.readouterr().out.strip().endswith(f"Next: copilot4d doctor {tmp_path / 'two'}")


def test_a_single_sweep_is_forecast_as_seen_by_an_ego_that_stands(tmp_path: Path, capsys) -> None:
    write_kitti(tmp_path / "one", make_drive(frames=1, rings=6, azimuths=40))
    assert forecast(tmp_path / "one", tmp_path / "out", "--frame", "0", "--setting", "3s") == 0
    assert "stands still" in capsys.readouterr().out
    future = description(tmp_path / "out")["future"]
    assert {entry["pose_from"] for entry in future} == {"standing still"}
    assert [entry["time_s"] for entry in future] == pytest.approx([0.6, 1.2, 1.8, 2.4, 3.0])


def test_after_a_gap_the_ego_goes_on_at_the_speed_it_had(tmp_path: Path) -> None:
    whole = make_drive(21, speed=10.0, yaw_rate=0.0, rings=4, azimuths=40)
    sweeps = [*(whole[i] for i in range(10)), whole[20]]  # 1.1 s are missing before the last sweep
    log = write_folder(Drive.from_sweeps("gap", sweeps), tmp_path / "log")
    out = tmp_path / "out"
    assert main(["forecast", "--model", "copy_last", "--data", str(log), "--frame", "10", "--out", str(out)]) == 0
    future = json.loads((out / "forecast.json").read_text())["future"]
    x = [entry["world_from_lidar"][0][3] for entry in future]
    assert x == pytest.approx([22, 24, 26, 28, 30], abs=1e-6)  # 20 m so far, 2 m every 0.2 s

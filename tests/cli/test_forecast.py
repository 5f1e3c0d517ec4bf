"""`copilot4d forecast`, as a user calls it, on a KITTI tree that the test writes."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import tyro

from copilot4d import load_forecaster, open_dataset
from copilot4d.cli import evaluate as evaluate_verb
from copilot4d.cli.main import main
from copilot4d.datasets import write_folder
from copilot4d.datasets.point_files import read_points
from copilot4d.datasets.pose_files import write_kitti_poses
from copilot4d.geometry import Drive, se3
from tests.cli.forecasting import description, forecast, sweep_file, truncate, write_kitti
from tests.support.scenes import make_drive

# At 10 Hz the 1s setting is every second sweep, five in and five out: the first whole moment is frame 8.
PAST, FUTURE = (0, 2, 4, 6, 8), (10, 12, 14, 16, 18)


@pytest.fixture
def kitti(tmp_path: Path) -> Path:
    write_kitti(tmp_path / "kitti", make_drive(frames=22, rings=12, azimuths=90))
    return tmp_path / "kitti"


@pytest.mark.parametrize("format", ["ply", "bin", "npz"])
@pytest.mark.parametrize("model", ["copy_last", "ray_tracing"])
def test_writes_what_the_forecaster_says_of_the_first_whole_moment(
    kitti: Path, tmp_path: Path, model: str, format: str
) -> None:
    assert forecast(kitti, tmp_path / "out", "--format", format, model=model) == 0
    drive = open_dataset(kitti)["00"]
    past = [drive[i].without_box(drive.ego_box) for i in PAST]
    expected = load_forecaster(model).forecast(past, drive.world_from_lidar[list(FUTURE)])
    for k, sweep in enumerate(expected.sweeps):
        written = read_points(tmp_path / "out" / f"future_{k + 1:02d}.{format}")
        np.testing.assert_allclose(written.points, sweep.points, atol=1e-5)


def test_describes_what_it_forecast_from_what(kitti: Path, tmp_path: Path) -> None:
    assert forecast(kitti, tmp_path / "out", "--seed", "3") == 0
    told, drive = description(tmp_path / "out"), open_dataset(kitti)["00"]
    assert (told["model"], told["drive"], told["setting"], told["reference_frame"]) == ("copy_last", "00", "1s", 8)
    assert told["data"] == str(kitti)
    assert told["options"]["seed"] == 3
    assert [entry["frame"] for entry in told["past"]] == list(PAST)
    assert [entry["frame"] for entry in told["future"]] == list(FUTURE)
    assert [entry["time_s"] for entry in told["future"]] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert {entry["pose_from"] for entry in told["future"]} == {"log"}
    poses = np.array([entry["world_from_lidar"] for entry in told["future"]])
    np.testing.assert_allclose(poses, drive.world_from_lidar[list(FUTURE)], atol=1e-12)
    for entry in told["future"]:
        assert len(read_points(tmp_path / "out" / entry["file"]).points) == entry["points"]


@pytest.mark.parametrize("model", ["copy_last", "ray_tracing"])
def test_reads_no_sweep_of_the_future(kitti: Path, tmp_path: Path, model: str) -> None:
    assert forecast(kitti, tmp_path / "before", "--format", "bin", model=model) == 0
    for frame in range(9, 22):
        truncate(sweep_file(kitti, frame))
    assert forecast(kitti, tmp_path / "after", "--format", "bin", model=model) == 0
    for k in range(1, 6):
        name = f"future_{k:02d}.bin"
        assert (tmp_path / "after" / name).read_bytes() == (tmp_path / "before" / name).read_bytes()


def test_an_unknown_model_and_an_output_that_is_a_file_are_wrong_usage(kitti: Path, tmp_path: Path, capsys) -> None:
    assert forecast(kitti, tmp_path / "out", model="gpt") == 2
    assert "copy_last" in capsys.readouterr().err
    (tmp_path / "file").write_text("mine")
    assert forecast(kitti, tmp_path / "file") == 2
    assert (tmp_path / "file").read_text() == "mine"


def test_a_bad_sweep_stops_the_work_or_is_skipped_by_name(kitti: Path, tmp_path: Path, capsys) -> None:
    truncate(sweep_file(kitti, 4))
    assert forecast(kitti, tmp_path / "out", "--frame", "8") == 1
    assert "000004.bin" in capsys.readouterr().err
    assert forecast(kitti, tmp_path / "out", "--frame", "8", "--on-bad-sweep", "skip") == 0
    told = description(tmp_path / "out")
    assert [entry["frame"] for entry in told["past"]] == [6, 8]  # evenly spaced still: what follows the bad one
    assert len(told["skipped"]) == 1
    assert "000004.bin" in told["skipped"][0]
    assert "skipped" in capsys.readouterr().out


def test_files_of_an_earlier_forecast_do_not_stay_among_the_new(kitti: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_kitti_poses(tmp_path / "route.txt", se3.identity((9,)))
    assert forecast(kitti, out, "--future-poses", str(tmp_path / "route.txt"), "--format", "bin") == 0
    (out / "notes.txt").write_text("mine")
    assert forecast(kitti, out) == 0
    assert sorted(p.name for p in out.iterdir()) == [
        "forecast.json", *(f"future_{k:02d}.ply" for k in range(1, 6)), "notes.txt",
    ]  # fmt: skip


def test_pictures_show_past_and_future_and_survive_a_bad_true_sweep(kitti: Path, tmp_path: Path) -> None:
    truncate(sweep_file(kitti, 14))
    assert forecast(kitti, tmp_path / "out", "--pictures") == 0
    assert PIL.Image.open(tmp_path / "out" / "forecast.gif").n_frames == len(PAST) + len(FUTURE)
    assert PIL.Image.open(tmp_path / "out" / "forecast.png").width > 1000
    assert (tmp_path / "out" / "forecast.mp4").stat().st_size > 1000
    assert "000014.bin" in description(tmp_path / "out")["skipped"][0]


def test_says_what_it_wrote_and_ends_with_a_command_that_works(kitti: Path, tmp_path: Path, capsys) -> None:
    assert forecast(kitti, tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert all(str(path) in said for path in (tmp_path / "out").iterdir())
    verb, *arguments = shlex.split(said.strip().splitlines()[-1].removeprefix("Next: copilot4d "))
    assert verb == "evaluate"
    parsed = tyro.cli(evaluate_verb.Options, args=arguments)
    assert parsed.model == "copy_last"


def test_pictures_of_an_earlier_forecast_go_with_it(kitti: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["forecast", "--model", "copy_last", "--data", str(kitti), "--out", str(out)]
    assert main([*arguments, "--pictures"]) == 0
    assert (out / "forecast.mp4").exists()
    assert main(arguments) == 0
    assert not list(out.glob("forecast.[pgm]*"))


def test_bin_files_for_two_lidars_are_refused_before_anything_is_removed(tmp_path: Path, capsys) -> None:
    two = [replace(s, origins=np.full_like(s.points, 0.1)) for s in make_drive(20, rings=4, azimuths=40)]
    log = write_folder(Drive.from_sweeps("two", two), tmp_path / "log", suffix=".npz")
    out = tmp_path / "out"
    arguments = ["forecast", "--model", "ray_tracing", "--data", str(log), "--out", str(out)]
    assert main(arguments) == 0
    before = sorted(p.name for p in out.iterdir())
    assert main([*arguments, "--format", "bin"]) == 2
    assert "ply or npz" in capsys.readouterr().err
    assert sorted(p.name for p in out.iterdir()) == before


def test_an_output_below_a_file_is_wrong_usage(kitti: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    arguments = ["forecast", "--model", "copy_last", "--data", str(kitti), "--out", str(tmp_path / "file" / "out")]
    assert main(arguments) == 2
    assert "file" in capsys.readouterr().err

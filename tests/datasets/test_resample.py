from __future__ import annotations

import json

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.cli.main import main
from copilot4d.datasets import write_folder
from copilot4d.datasets.resample import resample_dataset, resampled
from copilot4d.datasets.windows import protocol_windows
from copilot4d.errors import ProtocolError, UsageError
from copilot4d.geometry import Drive
from copilot4d.simulator import simulate_drive
from copilot4d.simulator.sensors import LidarSensor, SpinningHead
from tests.datasets.trees import small_drive

COARSE = LidarSensor(name="coarse", heads=(SpinningHead(elevations_deg=(2.0, -2.0, -6.0, -12.0), columns=90),))


def at(times_s) -> Drive:
    times = np.rint(np.asarray(times_s) * 1e9).astype(np.int64)
    return Drive(
        name="a", world_from_lidar=np.tile(np.eye(4), (len(times), 1, 1)), timestamps_ns=times, read=lambda i: i
    )


def test_twenty_hertz_by_hand():
    drive = resampled(at(np.arange(41) * 0.05), 5)
    assert drive.frames.tolist() == list(range(0, 41, 4))
    assert drive[3] == 12, "sweeps are read by their numbers in the log"
    assert drive[1:3].frames.tolist() == [4, 8]
    twice = resampled(drive, 2.5)
    assert twice.frames.tolist() == [0, 8, 16, 24, 32, 40]


@pytest.mark.parametrize(("rate", "to", "setting", "spacing_s"), [
    (20.0, 5.0, "1s", 0.2), (12.5, 5.0, "1s", 0.2), (7.0, 5 / 3, "3s", 0.6), (9.7, 5.0, "1s", 0.2),
    (30.0, 10.0, "3s", 0.6),
])  # fmt: skip
def test_odd_rates_get_complete_windows_of_the_right_length(rate, to, setting, spacing_s):
    log = at(5.0 + np.arange(int(20 * rate)) / rate)
    drive = resampled(log, to)
    windows = [w for w in protocol_windows({"a": drive}, setting) if w.complete]
    assert len(windows) > 0.4 * len(drive) * drive.interval_s / spacing_s if setting == "1s" else windows
    for window in windows:
        steps = np.diff(log.timestamps_ns[drive.frames[[*window.past, *window.future]]]) * 1e-9
        assert steps.mean() == pytest.approx(spacing_s, rel=0.05)
        assert np.abs(steps - spacing_s).max() <= 0.5 * spacing_s


def test_a_lost_sweep_leaves_a_gap_and_no_neighbour_stands_in():
    times = np.delete(np.arange(61) * 0.1, [20, 21, 22])
    drive = resampled(at(times), 5)
    assert 2.0 not in (drive.timestamps_ns * 1e-9).round(6)
    assert 2.2 not in (drive.timestamps_ns * 1e-9).round(6)
    spans = [w for w in protocol_windows({"a": drive}, "1s") if w.complete]
    assert all(not (drive.timestamps_ns[w.past[0]] < 2.1e9 < drive.timestamps_ns[w.future[-1]]) for w in spans)


def test_what_cannot_be_is_told():
    with pytest.raises(ProtocolError, match=r"runs at 10 Hz, and `resample` 20 asks for more"):
        resampled(at(np.arange(30) * 0.1), 20)
    with pytest.raises(ProtocolError, match=r"only \d+% of the times of `resample` 5 have a sweep"):
        resampled(at(np.arange(70) / 7.0), 5)
    with pytest.raises(UsageError, match=r"`resample` must lie in \[0.1, 100\]"):
        resampled(at([0, 1]), 0)
    with pytest.raises(UsageError, match="`resample` must lie in"):
        resampled(at([0, 1]), float("nan"))
    assert len(resampled(at([3.0]), 5)) == 1


def test_a_data_set_is_resampled_lazily(tmp_path):
    dataset = open_dataset(write_folder(small_drive(9), tmp_path / "d"))
    assert resample_dataset(dataset, None) is dataset
    slower = resample_dataset(dataset, 5.0)
    assert slower["a"].frames.tolist() == [0, 2, 4, 6, 8]
    np.testing.assert_array_equal(slower["a"][1].points, dataset["a"][2].points)


def test_scores_of_a_resampled_log_say_what_was_picked(tmp_path, capsys):
    """10 Hz resampled to 5 Hz has the frames of 10 Hz with a step of two: the same window, the same score."""
    write_folder(simulate_drive(seed=3, seconds=2.3, sensor=COARSE), tmp_path / "d")
    base = ["evaluate", "--model", "copy_last", "--data", str(tmp_path / "d"), "--setting", "1s"]
    assert main([*base, "--every", "9", "--out", str(tmp_path / "own.json")]) == 0
    assert main([*base, "--resample", "5", "--every", "5", "--limit", "3", "--out", str(tmp_path / "five.json")]) == 0
    five = json.loads((tmp_path / "five.json").read_text())
    told = five["options"]["resample"]
    assert told["hz"] == 5
    assert told["drives"]["000003"]["first_frames"][:4] == [0, 2, 4, 6]
    assert told["drives"]["000003"]["largest_offset_s"] == 0
    assert five["by_reference"][0]["reference_ns"] == 0
    own = json.loads((tmp_path / "own.json").read_text())
    assert own["by_reference"][0] == five["by_reference"][0]
    capsys.readouterr()
    assert main([*base, "--resample", "50", "--out", str(tmp_path / "x.json")]) == 1
    assert "asks for more" in capsys.readouterr().err

from __future__ import annotations

import threading

import numpy as np
import pytest

from copilot4d.cli.main import main
from copilot4d.datasets import write_folder
from copilot4d.errors import DataError, UsageError
from copilot4d.forecaster import Forecast, PlainForecaster
from copilot4d.forecasting.live import evenly_spaced, live_forecasts, played
from copilot4d.geometry import Sweep, se3
from tests.datasets.trees import small_drive


def sweep(tenths, x=None):
    pose = se3.from_yaw(0.0, (float(tenths if x is None else x), 0, 0))
    return Sweep(points=np.ones((3, 3), np.float32), world_from_lidar=pose, timestamp_ns=tenths * 100_000_000)


class Gated(PlainForecaster):
    """Waits at a gate in its first forecast, so that a test decides what arrives meanwhile."""

    name = "gated"

    def __init__(self):
        self.entered, self.gate, self.pasts = threading.Event(), threading.Event(), []

    def forecast(self, past, future_poses, rays=None, **_):
        self.pasts.append([s.timestamp_ns // 100_000_000 for s in past])
        self.entered.set()
        assert self.gate.wait(20)
        return Forecast(sweeps=tuple(
            Sweep(points=past[-1].points, world_from_lidar=pose, timestamp_ns=0) for pose in future_poses
        ))  # fmt: skip


def test_what_arrives_while_a_forecast_is_made_is_counted_and_the_newest_is_next():
    model = Gated()

    def robot():
        yield from (sweep(0), sweep(2))
        assert model.entered.wait(20)
        yield from (sweep(3), sweep(4), sweep(1), sweep(5), sweep(6))  # one of them late
        model.gate.set()

    made = list(live_forecasts(robot(), model, spacing_s=0.2, past=3, future=2))
    assert model.pasts == [[0, 2], [2, 4, 6]]
    assert [one.reference.timestamp_ns for one in made] == [200_000_000, 600_000_000]
    last = made[-1]
    assert (last.received, last.dropped, last.past) == (7, 1, 3)
    assert last.skipped == 3 or last.skipped == 4, "3, 4 and 5; and 0, if 2 had arrived before the loop looked"
    np.testing.assert_allclose(last.future_poses[:, 0, 3], [8, 10]), "the ego goes on as it drives"


def test_the_past_is_evenly_spaced_or_shorter():
    numbers = [s.timestamp_ns // 100_000_000 for s in evenly_spaced([sweep(t) for t in range(12)], 0.3, 4)]
    assert numbers == [2, 5, 8, 11]
    gap = [sweep(t) for t in (0, 1, 2, 7, 9, 11)]
    assert [s.timestamp_ns // 100_000_000 for s in evenly_spaced(gap, 0.2, 5)] == [7, 9, 11]


def test_what_the_robot_raises_reaches_the_caller():
    model = Gated()
    model.gate.set()

    def robot():
        yield from (sweep(0), sweep(2))
        assert model.entered.wait(20)
        raise DataError("bag", "points", expected="a", found="b", remedy="c")

    with pytest.raises(DataError, match="bag: points"):
        list(live_forecasts(robot(), model))


def test_a_drive_is_played_at_its_own_pace():
    drive, now, waits = small_drive(4), [100.0], []

    def sleep(seconds):
        waits.append(round(seconds, 6))
        now[0] += seconds

    read = list(played(drive, speed=2.0, sleep=sleep, clock=lambda: now[0]))
    assert waits == [0.05, 0.05, 0.05]
    np.testing.assert_array_equal(read[2].points, drive[2].points)
    with pytest.raises(UsageError, match="`speed` must be positive"):
        next(played(drive, speed=0.0))
    with pytest.raises(UsageError, match="`spacing_s` must be positive"):
        next(live_forecasts([], Gated(), spacing_s=0))


def test_the_verb(tmp_path, capsys):
    write_folder(small_drive(9, points=200), tmp_path / "d")
    base = ["serve", "--model", "copy_last", "--data", str(tmp_path / "d"), "--speed", "inf"]
    assert main([*base, "--limit", "1", "--out", str(tmp_path / "out")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "5 sweeps ahead" in said
    assert "1 forecasts" in said
    assert len(list((tmp_path / "out").glob("0001_future_*.ply"))) == 5
    assert main([*base, "--spacing", "3"]) == 2
    assert "no two sweeps 3 s apart" in " ".join(capsys.readouterr().err.split())

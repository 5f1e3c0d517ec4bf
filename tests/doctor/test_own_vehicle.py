"""Returns from the vehicle itself are found; the printed line drops them; healthy and standing logs are left alone."""

import re
from dataclasses import replace

import numpy as np

from copilot4d.cli.main import main
from copilot4d.datasets import open_dataset
from copilot4d.doctor import examine, examine_drive
from copilot4d.doctor.own_vehicle import own_returns_of
from copilot4d.geometry import Drive, Sweep, se3
from tests.doctor.logs import healthy_log
from tests.doctor.own_logs import describe, write_own
from tests.support.scenes import SENSOR_HEIGHT, beam_directions, cast

BODY = np.array([-2.2, -0.9, -1.2, 2.4, 0.9, -0.5])  # bonnet, roof edge and boot below the lidar


def with_body(drive: Drive, count: int = 2000) -> Drive:
    """The same log with returns from the vehicle that carries the lidar: the top of a box, with 1 cm of noise."""
    rng = np.random.default_rng(5)
    sweeps = []
    for sweep in drive:
        body = rng.uniform(BODY[:3], BODY[3:], (count, 3))
        body[:, 2] = BODY[5] + rng.normal(0, 0.01, count)
        sweeps.append(replace(sweep, points=np.concatenate([sweep.points, body.astype(np.float32)]), intensity=None))
    return Drive.from_sweeps(drive.name, sweeps)


def test_a_log_without_a_body_has_none():
    assert own_returns_of(healthy_log()) is None


def test_the_body_is_found_and_the_box_holds_it_and_little_more():
    drive = with_body(healthy_log())
    found = own_returns_of(drive)
    share = 2000 / np.mean([len(sweep) for sweep in drive])
    assert abs(found.share - share) < 0.02
    low, high = found.box[:3], found.box[3:]
    top = np.array([*BODY[:2], BODY[5] - 0.05]), np.array([*BODY[3:5], BODY[5] + 0.05])
    assert (low <= top[0]).all()
    assert (high >= top[1]).all()
    assert (top[0] - low < 0.35).all()
    assert (high - top[1] < 0.35).all()


def test_a_log_whose_box_drops_it_is_healthy():
    drive = with_body(healthy_log())
    assert own_returns_of(replace(drive, ego_box=BODY + np.array([-0.1, -0.1, 0, 0.1, 0.1, 0.1]))) is None


def test_a_standing_vehicle_is_not_asked():
    """All of its surroundings stay in place, too."""
    drive = with_body(healthy_log())
    standing = Drive.from_sweeps("standing", [replace(drive[0], timestamp_ns=i * 10**8) for i in range(8)])
    assert own_returns_of(standing) is None


def test_walls_along_a_straight_road_are_not_the_vehicle():
    walls = np.array([[-500, 1.8, 0, 500, 2.4, 3.0], [30, -9, 0, 40, -4, 8.0], [60, -9, 0, 64, -4, 8.0]])
    sweeps = []
    for i in range(10):
        pose = se3.from_yaw(0.0, (6.0 * i, 0.0, SENSOR_HEIGHT))
        points = cast(pose, walls, beam_directions(24, 360))
        sweeps.append(Sweep(points=points, world_from_lidar=pose, timestamp_ns=i * 200_000_000))
    assert own_returns_of(Drive.from_sweeps("road", sweeps)) is None


def test_the_doctor_prints_a_line_that_makes_the_log_healthy(tmp_path):
    folder = write_own(tmp_path / "log", drive=with_body(healthy_log()))
    (finding,) = [f for f in examine(folder).findings if f.severity == "problem"]
    assert finding.code == "own-vehicle"
    line = re.search(r"`(ego_box: [^`]*)`", finding.remedy)[1]
    describe(folder, f"timestamps: {{filename: ns}}\n{line}")
    assert examine(folder).healthy
    kept = open_dataset(folder)["log"]
    dropped = kept[3].without_box(kept.ego_box)
    assert len(kept[3]) - len(dropped) == 2000  # the body, all of it, and nothing else
    assert examine_drive(kept).own_returns is None


def test_evaluate_and_forecast_warn(tmp_path, capsys):
    folder = write_own(tmp_path / "log", drive=with_body(healthy_log(16)))
    assert main(["evaluate", "--model", "copy_last", "--data", str(folder), "--setting", "1s", "--limit", "1",
                 "--out", str(tmp_path / "scores.json")]) == 0  # fmt: skip
    said = " ".join(capsys.readouterr().err.split())
    assert "are returns from the vehicle itself" in said
    assert "ego_box: [" in said
    assert main(["forecast", "--model", "copy_last", "--data", str(folder), "--out", str(tmp_path / "f")]) == 0
    assert "are returns from the vehicle itself" in " ".join(capsys.readouterr().err.split())

"""Moving rays: a forecaster that knows the truth has no error, a copy has that of the motion."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d import load_forecaster
from copilot4d.datasets.windows import protocol_windows
from copilot4d.evaluation.moving_rays import (
    _box_depths,
    constant_velocity_errors,
    moving_ray_errors,
)
from copilot4d.evaluation.moving_tally import MovingTally
from copilot4d.evaluation.protocol import Protocol
from copilot4d.evaluation.runner import evaluate_dataset
from copilot4d.evaluation.scores import ScoreFile
from copilot4d.forecaster import Forecast, PlainForecaster
from copilot4d.geometry import Rays
from copilot4d.simulator.benchmark import street_v1_drive


@pytest.fixture(scope="module")
def street():
    drive = street_v1_drive("train", 1)
    drives = {drive.name: drive}
    windows = [w for w in protocol_windows(drives, "1s", every=40) if w.reference in (40, 80)]
    return drives, windows


class Knowing(PlainForecaster):
    """Answers each ray with its true depth, and `off_m`."""

    name = "knowing"

    def __init__(self, drive, off_m=0.0):
        self.drive, self.off_m = drive, off_m

    def forecast(self, past, future_poses, rays=None, **_):
        depths = []
        for pose, asked in zip(future_poses, rays, strict=True):
            (frame,) = np.flatnonzero((np.abs(self.drive.world_from_lidar - pose) < 1e-9).all((1, 2)))
            all_rays, true_m = self.drive[int(frame)].rays()
            by_direction = {d.tobytes(): m for d, m in zip(all_rays.directions, true_m, strict=True)}
            depths.append(np.array([by_direction[d.tobytes()] for d in asked.directions]) + self.off_m)
        return Forecast(sweeps=tuple(past[-1:]) * len(depths), depths=tuple(depths))


def test_who_knows_the_truth_is_right_and_who_is_off_is_off(street):
    drives, windows = street
    (drive,) = drives.values()
    assert moving_ray_errors(Knowing(drive), drives, windows).summary()["within_1m"] == 1.0
    off = moving_ray_errors(Knowing(drive, 1.5), drives, windows).summary()
    assert off["within_1m"] == 0.0
    assert off["median_m"] == pytest.approx(1.5, abs=0.011)
    assert [row["horizon"] for row in off["per_horizon"]] == [1, 2, 3, 4, 5]


def test_constant_velocity_beats_copying_what_moves(street):
    drives, windows = street
    moved = constant_velocity_errors(drives, windows).summary()
    copied = moving_ray_errors(load_forecaster("copy_last"), drives, windows).summary()
    assert moved["rays"] == copied["rays"] > 50
    assert moved["within_1m"] > 0.7 > copied["within_1m"]


def test_an_evaluation_tells_of_moving_rays(street, tmp_path):
    drives, _ = street
    (drive,) = drives.values()
    scores = evaluate_dataset(
        Knowing(drive, 0.4), drives, setting="1s", protocol=Protocol(roi_half_m=32.0), every=40, limit=2
    )
    moving = scores.moving
    assert moving["rays"] == sum(row["rays"] for row in moving["per_horizon"]) > 50
    assert (moving["within_1m"], len(moving["per_horizon"])) == (1.0, 5)
    assert moving["median_m"] == pytest.approx(0.4, abs=0.011)
    assert ScoreFile.read(scores.write(tmp_path / "scores.json")).moving == moving


def test_counts_by_hand_survive_being_stored():
    tally = MovingTally()
    tally.add(2, np.array([0.005, 0.995, 3.0, np.nan]))
    tally.add(1, np.array([1.0]))
    again = MovingTally.from_plain(tally.to_plain()).summary()
    assert again == tally.summary()
    first, second = again["per_horizon"]
    assert (first["rays"], first["within_1m"]) == (1, 0.0)  # 1 m is not within
    assert (second["rays"], second["within_1m"]) == (4, 0.5)
    assert second["median_m"] == pytest.approx(0.995)
    assert MovingTally().summary() == {}


def test_rays_enter_a_turned_box_where_they_should():
    rays = Rays(np.zeros((3, 3)), np.array([[1.0, 0, 0], [0, 1.0, 0], [-1.0, 0, 0]]))
    pose, size = np.array([10.0, 0.0, -1.0, np.pi / 2]), np.array([4.0, 2.0, 2.0])
    np.testing.assert_allclose(_box_depths(rays, pose, size), [9.0, np.inf, np.inf])

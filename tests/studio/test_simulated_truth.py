"""The truth of another plan on a simulated street: the log's way gives the log again, a braked ego stays behind."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.datasets import Dataset
from copilot4d.geometry import se3
from copilot4d.simulator.benchmark import street_v1_drive
from copilot4d.studio.moment import read_moment
from copilot4d.studio.plan import Plan
from copilot4d.studio.simulated_truth import can_simulate, simulated_truth
from tests.support.scenes import make_drive


@pytest.fixture(scope="module")
def street(tmp_path_factory):
    root = tmp_path_factory.mktemp("street") / "mini32"
    root.mkdir()
    drive = street_v1_drive("val", 3)
    return Dataset(format="simulated", root=root, names=(drive.name,), open_drive=lambda name: drive)


def test_the_logs_own_way_gives_the_logs_own_future(street):
    moment = read_moment(street, "val_003", 40, "1s")
    again = list(simulated_truth(street, moment, Plan(kind="log").at(moment).poses))
    assert len(again) == 5
    for sweep, true in zip(again, moment.truth, strict=True):
        moved = se3.relative_motion(true.world_from_lidar, sweep.world_from_lidar)
        assert np.linalg.norm(moved[:3, 3]) < 0.1
        assert se3.rotation_angle(moved) < 0.02
        assert len(sweep) == pytest.approx(len(true), rel=0.02)


def test_a_braking_ego_sees_the_street_from_where_it_stops(street):
    moment = read_moment(street, "val_003", 40, "3s")
    poses = Plan(kind="brake").at(moment).poses
    sweeps = list(simulated_truth(street, moment, poses))
    for sweep, pose in zip(sweeps, poses, strict=True):
        apart = sweep.world_from_lidar[:2, 3] - pose[:2, 3]
        assert np.linalg.norm(apart) < 0.3, "the ego is where the plan says"
    behind = np.linalg.norm(moment.log_poses[-1][:3, 3] - sweeps[-1].world_from_lidar[:3, 3])
    assert behind > 3.0


def test_only_streets_can_be_simulated_again(street, tmp_path):
    assert can_simulate(street, street["val_003"])
    toy = make_drive(12, name="val_003", rings=8, azimuths=60)
    plain = Dataset(format="folder", root=tmp_path, names=("val_003",), open_drive=lambda name: toy)
    assert not can_simulate(plain, toy)

"""Two sweeps fit best under the true motion, and the ground has no say."""

import numpy as np
import pytest

from copilot4d.doctor.registration import CAP_M, SweepPair, forward_starts, structure
from copilot4d.geometry import se3
from tests.doctor.logs import healthy_log
from tests.support.scenes import SENSOR_HEIGHT

LOG = healthy_log()


def pair(earlier=4, later=6):
    clouds = [structure(LOG[i].points, -SENSOR_HEIGHT) for i in (earlier, later)]
    found = SweepPair.of(*clouds)
    assert found is not None
    return found, se3.relative_motion(LOG.world_from_lidar[earlier], LOG.world_from_lidar[later])


def test_structure_keeps_what_stands_and_drops_ground_and_vehicle():
    points = np.array([[10, 0, -1.7], [10, 0, 0], [1, 1, 0], [90, 0, 0], [np.nan, 0, 0]], dtype=np.float32)
    assert structure(points, -1.73).tolist() == [[10, 0, 0]]
    assert len(structure(points, None)) == 2


def test_the_true_motion_fits_best():
    sweeps, true = pair()
    away = [true @ se3.from_yaw(0.0, (0.4, 0, 0)), true @ se3.from_yaw(0.03), np.eye(4), se3.invert(true)]
    misfits = sweeps.misfits_m(np.stack([true, *away, np.full((4, 4), np.nan)]))
    assert misfits[0] < 0.15
    assert (misfits[1:5] > 1.5 * misfits[0]).all()
    assert (misfits[:5] <= CAP_M).all()
    assert np.isnan(misfits[5])


def test_the_motion_is_found_from_a_start_nearby():
    sweeps, true = pair()
    found = sweeps.registered(np.stack([true @ se3.from_yaw(0.04, (0.3, -0.2, 0)), np.eye(4)]))
    off = se3.relative_motion(true, found)
    assert np.linalg.norm(off[:2, 3]) < 0.1
    assert np.rad2deg(se3.rotation_angle(off)) < 0.6


def test_starts_reach_as_far_as_a_vehicle_gets():
    starts = forward_starts(0.5)[:, :3, 3]
    assert starts[:, 0].max() == pytest.approx(15, abs=0.5)
    assert starts[:, 1].min() == pytest.approx(-15, abs=0.5)
    assert not starts[:, 2].any()


def test_two_few_points_are_no_pair():
    few = np.random.default_rng(0).uniform(5, 20, (60, 3))
    assert SweepPair.of(few, few) is None
    assert SweepPair.of(np.zeros((0, 3)), few) is None

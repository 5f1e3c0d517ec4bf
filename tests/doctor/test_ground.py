"""The ground is found whatever the axes and the unit."""

import numpy as np
import pytest

from copilot4d.doctor.explanations import axis_changes
from copilot4d.doctor.ground import Ground, agree, find_ground
from tests.doctor.logs import healthy_log
from tests.support.scenes import SENSOR_HEIGHT


@pytest.mark.parametrize("change", axis_changes(), ids=lambda c: "".join(str(int(v)) for v in c.ravel()))
def test_up_turns_with_the_points(change):
    points = healthy_log()[3].points @ change.T
    ground = find_ground(points)
    expected = change @ np.array([0.0, 0.0, 1.0])
    assert ground is not None
    found = np.zeros(3)
    found[ground.axis] = ground.sign
    assert found.tolist() == expected.tolist()
    assert ground.origin_height == pytest.approx(SENSOR_HEIGHT, abs=0.05)
    assert ground.lead > 2


@pytest.mark.parametrize("scale", [1e-3, 0.3048, 100.0, 1000.0])
def test_the_height_scales_with_the_unit(scale):
    ground = find_ground(healthy_log()[3].points * np.float32(scale))
    assert ground is not None
    assert ground.up == "+z"
    assert ground.origin_height == pytest.approx(SENSOR_HEIGHT * scale, rel=0.03)


def test_an_origin_on_the_ground_has_height_zero_and_up_is_still_known():
    ground = find_ground(healthy_log()[3].points + np.array([0, 0, SENSOR_HEIGHT], dtype=np.float32))
    assert ground is not None
    assert ground.up == "+z"
    assert ground.origin_height == pytest.approx(0, abs=0.05)


def test_a_ball_of_points_and_a_handful_have_no_ground():
    assert find_ground(np.zeros((50, 3), dtype=np.float32)) is None
    assert find_ground(np.zeros((5000, 3), dtype=np.float32)) is None
    assert find_ground(np.full((5000, 3), np.nan, dtype=np.float32)) is None


def test_the_majority_decides_and_only_its_heights_count():
    up = Ground(axis=2, sign=1, origin_height=1.7, lead=5)
    also_up = Ground(axis=2, sign=1, origin_height=1.9, lead=3)
    other = Ground(axis=1, sign=-1, origin_height=9.0, lead=1.1)
    agreed = agree([up, other, also_up])
    assert agreed is not None
    assert agreed.up == "+z"
    assert agreed.origin_height == pytest.approx(1.8)
    assert agree([]) is None

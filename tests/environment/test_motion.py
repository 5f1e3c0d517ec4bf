from __future__ import annotations

import numpy as np
import pytest

from copilot4d.environment.motion import motion_of, twist_of
from copilot4d.geometry import se3


def test_speed_and_yaw_rate_are_the_exact_arc_of_a_circle():
    quarter = motion_of(np.array([10.0, 0, 0, 0, 0, np.pi / 2]), 1.0)
    radius = 20 / np.pi
    assert quarter[:3, 3] == pytest.approx([radius, radius, 0.0])
    assert se3.yaw_of(quarter) == pytest.approx(np.pi / 2)
    right = motion_of(np.array([10.0, 0, 0, 0, 0, -np.pi / 2]), 1.0)
    assert right[:3, 3] == pytest.approx([radius, -radius, 0.0])


def test_straight_on_is_speed_times_time():
    motion = motion_of(np.array([8.0, 0, 0, 0, 0, 0]), 0.2)
    assert motion == pytest.approx(se3.from_yaw(0.0, (1.6, 0.0, 0.0)))


def test_a_pitching_ego_turns_its_nose_down_where_y_turns_forward():
    motion = motion_of(np.array([0.0, 0, 0, 0, np.pi / 2, 0]), 1.0)
    assert motion[:3, :3] @ np.array([1.0, 0, 0]) == pytest.approx([0, 0, -1.0])


@pytest.mark.parametrize("size", [1e-9, 1e-5, 0.9999e-3, 1.0001e-3, 0.1, 1.0, 3.0])
def test_two_half_steps_are_one_step_and_the_twist_comes_back(size):
    rng = np.random.default_rng(5)
    turn = rng.normal(size=3)
    twist = np.concatenate([rng.normal(size=3) * 10, turn / np.linalg.norm(turn) * size])
    half, whole = motion_of(twist, 0.5), motion_of(twist, 1.0)
    assert half @ half == pytest.approx(whole, abs=1e-9)
    assert se3.rigidity_error(whole) < 1e-12
    assert twist_of(whole, 1.0) == pytest.approx(twist, rel=1e-8, abs=1e-9)
    assert twist_of(whole, 0.5) == pytest.approx(2 * twist, rel=1e-8, abs=1e-9)  # twice as fast in half the time


def test_the_twist_of_standing_still_is_zero():
    assert (twist_of(se3.identity(), 0.2) == 0).all()

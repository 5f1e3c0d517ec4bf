"""The ego's way: arcs and stops by hand, curves through waypoints, headings without jumps, the round trip to poses."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from copilot4d.studio.paths import (
    WHEELBASE_M,
    Controls,
    controls_of,
    drawn_way,
    drive_way,
    poses_of,
    swerve_way,
    way_of,
)


def test_straight_on_at_one_speed():
    way = drive_way(Controls(speed_m_s=8.0), np.array([0.5, 2.0]))
    np.testing.assert_allclose(way, [[4, 0, 0], [16, 0, 0]], atol=1e-12)


def test_a_held_wheel_is_an_arc_to_the_left():
    # 10 m radius: tan(steer) = wheelbase / radius. A quarter circle ends at (10, 10), looking left.
    steer = np.rad2deg(np.arctan(WHEELBASE_M / 10.0))
    quarter_s = np.pi / 2 * 10.0 / 5.0
    [end] = drive_way(Controls(speed_m_s=5.0, steer_deg=steer), np.array([quarter_s]))
    np.testing.assert_allclose(end, [10, 10, np.pi / 2], atol=1e-9)
    [right] = drive_way(Controls(speed_m_s=5.0, steer_deg=-steer), np.array([quarter_s]))
    np.testing.assert_allclose(right, [10, -10, -np.pi / 2], atol=1e-9)


def test_braking_stops_after_v_squared_over_2b_and_stays():
    way = drive_way(Controls(speed_m_s=10.0, brake_m_s2=5.0), np.array([1.0, 2.0, 9.0]))
    np.testing.assert_allclose(way[:, 0], [10 - 2.5, 10.0, 10.0])


def test_a_braking_car_stays_on_the_arc_of_one_that_does_not():
    times = np.linspace(0.1, 2.0, 20)
    braked = drive_way(Controls(speed_m_s=10.0, steer_deg=10.0, brake_m_s2=4.0), times)
    radius = WHEELBASE_M / np.tan(np.deg2rad(10.0))
    np.testing.assert_allclose(np.hypot(braked[:, 0], braked[:, 1] - radius), radius, rtol=1e-9)


def test_controls_are_read_back_from_the_step_that_they_made():
    wanted = Controls(speed_m_s=7.0, steer_deg=-6.0)
    world_from = poses_of(se3.from_yaw(0.7, (3, 4, 5)), drive_way(wanted, np.array([0.0, 0.1])))
    found = controls_of(se3.relative_motion(world_from[1], world_from[0]), 0.1)
    assert found.speed_m_s == pytest.approx(7.0, rel=1e-3)  # the chord is a little shorter than the arc
    assert found.steer_deg == pytest.approx(-6.0, rel=1e-3)
    assert controls_of(se3.identity(), 0.1) == Controls()


@pytest.mark.parametrize("wrong", [{"speed_m_s": -1.0}, {"steer_deg": 60.0}, {"brake_m_s2": np.nan}])
def test_controls_that_no_car_has_are_refused(wrong):
    with pytest.raises(UsageError, match="must lie between"):
        Controls(**wrong)


def test_a_swerve_goes_left_and_comes_back_heading_along_its_way():
    times = np.linspace(0.0, 4.4, 441)
    way = swerve_way(10.0, 2.0, times)
    assert way[:, 1].max() == pytest.approx(2.0)
    assert way[-1, 1] == pytest.approx(0.0, abs=1e-6)
    moved = np.diff(way[:, :2], axis=0)
    np.testing.assert_allclose(np.arctan2(moved[:, 1], moved[:, 0]), way[:-1, 2], atol=0.02)
    np.testing.assert_array_equal(swerve_way(0.0, 2.0, times)[:, 1:], 0.0)  # who stands cannot swerve


def test_a_drawn_way_is_at_each_waypoint_at_its_time():
    waypoints, at = np.array([[4.0, 0.5], [9.0, 2.0], [14.0, 2.0]]), np.array([0.5, 1.0, 1.5])
    way = drawn_way(waypoints, at, at)
    np.testing.assert_allclose(way[:, :2], waypoints, atol=1e-12)
    dense = drawn_way(waypoints, at, np.linspace(0, 1.5, 200))
    assert (np.diff(dense[:, 0]) >= 0).all()
    assert dense[:, 1].max() <= 2.0 + 1e-9, "a monotone curve never swings beyond its waypoints"
    assert np.abs(np.diff(dense[:, 2])).max() < 0.1, "headings do not jump"


def test_a_car_whose_waypoints_lie_on_each_other_stands_and_keeps_its_heading():
    waypoints = np.array([[3.0, 1.0], [4.0, 2.0], [4.0, 2.0], [4.0, 2.0]])
    way = drawn_way(waypoints, np.arange(1, 5.0), np.array([2.5, 3.0, 4.0]))
    np.testing.assert_allclose(way[:, :2], [[4, 2]] * 3, atol=1e-12)
    assert np.ptp(way[:, 2]) == 0.0
    assert 0.3 < way[0, 2] < 1.3


def test_a_way_back_is_driven_in_reverse():
    way = drawn_way(np.array([[-2.0, 0.0], [-5.0, -1.0]]), np.array([1.0, 2.0]), np.linspace(0.1, 2.0, 20))
    assert np.abs(way[:, 2]).max() < np.pi / 4, "a car that goes back does not turn round on the spot"


def test_a_full_circle_has_headings_that_go_on_beyond_pi():
    angles = np.linspace(0, 2 * np.pi, 17)[1:]
    circle = 10 * np.stack([np.sin(angles), 1 - np.cos(angles)], axis=1)
    way = drawn_way(circle, np.arange(1, 17.0), np.arange(1, 17.0))
    assert way[-1, 2] == pytest.approx(2 * np.pi, abs=0.5)
    assert (np.diff(way[:, 2]) > 0).all()


@pytest.mark.parametrize(
    ("waypoints", "times"), [([[np.nan, 0.0]], [1.0]), ([[1.0, 0.0], [2.0, 0.0]], [1.0, 1.0]), ([[1.0, 0.0]], [0.0])]
)
def test_waypoints_that_are_no_way_are_refused(waypoints, times):
    with pytest.raises(UsageError, match="drawn way"):
        drawn_way(np.array(waypoints), np.array(times), np.array([0.5]))


def test_ways_and_poses_are_inverse_also_on_a_slope():
    tilt = se3.from_quaternion(np.array([0.98, 0.05, 0.15, 0.1]), np.array([100.0, -20.0, 3.0]))
    way = drive_way(Controls(speed_m_s=9.0, steer_deg=5.0), np.array([0.2, 0.4, 0.6]))
    poses = poses_of(tilt, way)
    np.testing.assert_allclose(way_of(tilt, poses), way, atol=1e-9)
    assert se3.rigidity_error(poses).max() < 1e-9
    uphill = tilt[:3, :3] @ np.array([1.0, 0, 0])
    straight = poses_of(tilt, drive_way(Controls(speed_m_s=10.0), np.array([1.0])))
    np.testing.assert_allclose(straight[0, :3, 3] - tilt[:3, 3], 10 * uphill, atol=1e-9)

"""Plans for the ego of a log: braking and swerving have the laws of motion that their names promise."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.cli.demo_plans import braked, swerved
from copilot4d.geometry import se3

TIMES = np.arange(0, 3.01, 0.1)


def straight(speed: float, yaw: float = 0.5) -> np.ndarray:
    along = np.array([np.cos(yaw), np.sin(yaw), 0.0])
    return np.stack([se3.from_yaw(yaw, tuple(7.0 + speed * t * along)) for t in TIMES])


def bend(speed: float = 8.0, rate: float = 0.2) -> np.ndarray:
    step = se3.from_yaw(rate * 0.1, (speed * 0.1, 0.0, 0.0))
    poses = [se3.identity()]
    for _ in TIMES[1:]:
        poses.append(poses[-1] @ step)
    return np.stack(poses)


def test_a_braking_ego_stops_where_physics_says():
    kept, slowed = straight(8.0), braked(straight(8.0), TIMES, braking_m_s2=5.0)
    distance = np.linalg.norm(slowed[:, :3, 3] - kept[0, :3, 3], axis=1)
    assert distance[10] == pytest.approx(8.0 - 2.5, abs=1e-6)  # v t - a t^2 / 2 after a second
    assert distance[-1] == pytest.approx(8.0**2 / 10, abs=1e-6)  # v^2 / 2a, for good
    assert np.ptp(distance[17:]) < 1e-6
    np.testing.assert_allclose(slowed[0], kept[0], atol=1e-9)


def test_a_braking_ego_stays_on_its_own_way():
    kept, slowed = bend(), braked(bend(), TIMES)
    finer = se3.interpolate_trajectory(TIMES, kept, np.linspace(0, 3, 3001))[:, :3, 3]
    off = np.linalg.norm(slowed[:, None, :3, 3] - finer[None], axis=-1).min(axis=1)
    assert off.max() < 0.01
    assert se3.yaw_of(slowed[-1]) == pytest.approx(0.2 * 6.4 / 8.0, abs=0.01)  # headed as the way is there


def test_an_ego_that_stands_or_is_slower_anyway_is_not_moved_on():
    np.testing.assert_allclose(braked(straight(0.0), TIMES), straight(0.0), atol=1e-9)
    harder = braked(straight(8.0), TIMES, braking_m_s2=7.0)
    np.testing.assert_allclose(braked(harder, TIMES, braking_m_s2=2.0)[-1], harder[-1], atol=0.05)


def test_a_swerve_goes_left_and_the_heading_follows():
    kept = straight(8.0)
    aside = se3.compose(se3.invert(kept), swerved(kept, TIMES, offset_m=2.0))  # seen from the log's own ego
    np.testing.assert_allclose(aside[0], np.eye(4), atol=1e-9)
    offset = aside[:, 1, 3]
    assert offset[7] == pytest.approx(1.0, abs=1e-6)  # half way out after 0.7 s
    assert offset[20] == pytest.approx(2.0, abs=1e-6)
    np.testing.assert_allclose(aside[:, [0, 2], 3], 0, atol=1e-9)
    yaw = se3.yaw_of(aside)
    assert yaw[7] > 0.2
    assert abs(yaw[20]) < 1e-6
    assert yaw[-1] < 0, "on its way back"
    right = se3.compose(se3.invert(kept), swerved(kept, TIMES, offset_m=-2.0))
    np.testing.assert_allclose(right[:, 1, 3], -offset, atol=1e-9)


def test_an_ego_that_hardly_moves_does_not_jump_aside():
    aside = se3.compose(se3.invert(straight(0.0)), swerved(straight(0.0), TIMES))
    np.testing.assert_allclose(aside, np.broadcast_to(np.eye(4), aside.shape), atol=1e-9)


def test_poses_stay_rigid():
    for poses in (braked(bend(), TIMES), swerved(bend(), TIMES)):
        assert se3.rigidity_error(poses).max() < 1e-9

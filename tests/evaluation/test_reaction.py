"""Reaction: a car's front is found on its lane, whoever drives behind, beside or above."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.evaluation.reaction import BEYOND_M, LanePath, displacement_m, front_m, reacts

WIDTH, HEIGHT, LENGTH = 1.8, 1.5, 4.2


def bend(count=40, radius=30.0, step=0.5):
    """Poses along a left bend, on a slope."""
    turn = np.arange(count) * step / radius
    return np.stack([radius * np.sin(turn), radius * (1 - np.cos(turn)), 0.02 * np.arange(count) * step, turn], -1)


def car(pose, seed=0, points=120):
    """Returns of a car whose middle stands at a pose (x, y, z, yaw)."""
    rng = np.random.default_rng(seed)
    local = rng.uniform((-LENGTH / 2, -WIDTH / 2, 0.0), (LENGTH / 2, WIDTH / 2, HEIGHT), (points, 3))
    local[: points // 2, 0] = LENGTH / 2  # half of them on the front
    x, y, z, yaw = pose
    turn = np.array([[np.cos(yaw), -np.sin(yaw), 0], [np.sin(yaw), np.cos(yaw), 0], [0, 0, 1]])
    return local @ turn.T + (x, y, z)


def ground(seed=1, points=4000):
    rng = np.random.default_rng(seed)
    flat = rng.uniform((-20, -20, 0), (40, 40, 0), (points, 3))
    return flat + np.c_[np.zeros((points, 2)), 0.02 * flat[:, 0] + rng.normal(0, 0.02, points)]


@pytest.fixture
def path():
    return LanePath.of(bend(), WIDTH, HEIGHT)


def test_arc_length_runs_along_the_bend(path):
    poses = bend()
    along, beside, height = path.position_m(poses[:, :3])
    np.testing.assert_allclose(along, BEYOND_M + 0.5 * np.arange(40), atol=0.01)
    assert np.abs(beside).max() < 1e-6
    assert np.abs(height).max() < 1e-6
    left = poses[20, :3] + 1.1 * np.array([-np.sin(poses[20, 3]), np.cos(poses[20, 3]), 0.5])
    along, beside, height = path.position_m(left[None])
    np.testing.assert_allclose([along[0], beside[0], height[0]], [BEYOND_M + 10.0, 1.1, 0.55], atol=0.02)


@pytest.mark.parametrize(("brake", "keep"), [(10, 35), (30, 35), (35, 30), (5, 6)])
def test_the_front_moves_as_the_car_does(path, brake, keep):
    poses = bend()
    clouds = [np.concatenate([car(poses[i], seed=i), ground()]) for i in (brake, keep)]
    found = displacement_m(clouds[0], clouds[1], path)
    assert found == pytest.approx(0.5 * (brake - keep), abs=0.15)
    assert front_m(clouds[0], path) == pytest.approx(BEYOND_M + 0.5 * brake + LENGTH / 2, abs=0.3)


def test_what_is_behind_beside_above_or_stray_is_not_the_front(path):
    poses = bend()
    alone = front_m(car(poses[20]), path)
    beside = car(poses[35] + (-3.2 * np.sin(poses[35, 3]), 3.2 * np.cos(poses[35, 3]), 0, 0))
    above = car(poses[35]) + np.array([0, 0, 4.0])
    strays = car(poses[35], points=3)
    cloud = np.concatenate([car(poses[20]), car(poses[4], seed=2), beside, above, strays, ground()])
    assert front_m(cloud, path) == pytest.approx(alone, abs=1e-9)


def test_nothing_on_the_lane_is_not_found(path):
    assert np.isnan(front_m(ground(), path))
    assert np.isnan(front_m(np.zeros((0, 3)), path))
    assert np.isnan(displacement_m(ground(), car(bend()[20]), path))


def test_a_car_that_stands_still_has_a_path_too():
    path = LanePath.of(np.repeat(bend()[:1], 30, axis=0), WIDTH, HEIGHT)
    assert front_m(car(bend()[0]), path) == pytest.approx(BEYOND_M + LENGTH / 2, abs=0.01)
    with pytest.raises(UsageError, match="at least one pose"):
        LanePath.of(np.zeros((0, 4)), WIDTH, HEIGHT)


@pytest.mark.parametrize(
    ("imagined", "true", "answer"),
    [(-2, -4, True), (-1.99, -4, False), (2, -4, False), (-9, -4, True), (np.nan, -4, False), (0, -4, False)],
)
def test_a_reaction_has_the_truths_sign_and_half_its_size(imagined, true, answer):
    assert reacts(imagined, true) is answer

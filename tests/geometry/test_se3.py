"""SE(3) by its laws, over dtypes and batch shapes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from copilot4d.geometry import se3

SHAPES = [(), (1,), (5,), (2, 3)]
DTYPES = [np.float32, np.float64]


def random_motion(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return se3.from_quaternion(
        rng.normal(size=(*shape, 4)).astype(dtype), rng.normal(size=(*shape, 3)).astype(dtype) * 5
    )


def tolerance(dtype):
    return {"atol": 2e-5, "rtol": 1e-5} if dtype is np.float32 else {"atol": 1e-12, "rtol": 1e-12}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
class TestLaws:
    def test_inverse_undoes_on_both_sides(self, shape, dtype):
        a = random_motion(shape, dtype)
        for product in (se3.compose(a, se3.invert(a)), se3.compose(se3.invert(a), a)):
            assert_allclose(product, se3.identity(shape, dtype), **tolerance(dtype))
            assert product.dtype == dtype

    def test_composition_is_associative_and_acts_in_order(self, shape, dtype):
        a, b, c = (random_motion(shape, dtype, seed) for seed in range(3))
        points = np.random.default_rng(3).normal(size=(*shape, 7, 3)).astype(dtype)
        assert_allclose(se3.compose(se3.compose(a, b), c), se3.compose(a, se3.compose(b, c)), **tolerance(dtype))
        one_by_one = se3.transform_points(a, se3.transform_points(b, points))
        assert_allclose(se3.transform_points(se3.compose(a, b), points), one_by_one, **tolerance(dtype))

    def test_rigid_motions_keep_distances_and_orientation(self, shape, dtype):
        a = random_motion(shape, dtype)
        points = np.random.default_rng(4).normal(size=(*shape, 6, 3)).astype(dtype)
        moved = se3.transform_points(a, points)
        assert_allclose(
            np.linalg.norm(np.diff(moved, axis=-2), axis=-1),
            np.linalg.norm(np.diff(points, axis=-2), axis=-1),
            rtol=1e-4,
        )
        assert_allclose(np.linalg.det(a[..., :3, :3].astype(np.float64)), np.ones(shape), atol=1e-5)
        assert (se3.rigidity_error(a) < 1e-5).all()

    def test_relative_motion_carries_points_between_sensors(self, shape, dtype):
        world_from_a, world_from_b = random_motion(shape, dtype, 5), random_motion(shape, dtype, 6)
        in_b = np.random.default_rng(7).normal(size=(*shape, 4, 3)).astype(dtype)
        in_a = se3.transform_points(se3.relative_motion(world_from_a, world_from_b), in_b)
        assert_allclose(
            se3.transform_points(world_from_a, in_a), se3.transform_points(world_from_b, in_b), **tolerance(dtype)
        )

    def test_quaternion_round_trip(self, shape, dtype):
        rotation = random_motion(shape, dtype)[..., :3, :3]
        quaternion = se3.quaternion_from_rotation(rotation)
        assert (quaternion[..., 0] >= 0).all()
        assert_allclose(np.linalg.norm(quaternion, axis=-1), np.ones(shape), atol=1e-6)
        assert_allclose(se3.rotation_from_quaternion(quaternion), rotation, **tolerance(dtype))

    def test_interpolation_ends_and_steady_speed(self, shape, dtype):
        a, b = random_motion(shape, dtype, 8), random_motion(shape, dtype, 9)
        assert_allclose(se3.interpolate(a, b, 0.0), a, **tolerance(dtype))
        assert_allclose(se3.interpolate(a, b, 1.0), b, **tolerance(dtype))
        middle = se3.interpolate(a, b, 0.5)
        assert_allclose(middle[..., :3, 3], (a[..., :3, 3] + b[..., :3, 3]) / 2, **tolerance(dtype))
        halves = [se3.rotation_angle(se3.relative_motion(*pair)) for pair in ((a, middle), (middle, b))]
        assert_allclose(halves[0], halves[1], atol=1e-3 if dtype is np.float32 else 1e-9)
        assert_allclose(se3.interpolate(a, b, 0.25), se3.interpolate(b, a, 0.75), **tolerance(dtype))


def test_yaw_turns_counter_clockwise_seen_from_above():
    turn = se3.from_yaw(np.pi / 2, (10.0, 0.0, 1.0))
    assert_allclose(se3.transform_points(turn, np.array([[2.0, 0.0, 0.0]])), [[10.0, 2.0, 1.0]], atol=1e-12)
    assert_allclose(se3.yaw_of(turn), np.pi / 2)
    assert_allclose(se3.rotate_vectors(turn, np.array([[1.0, 0, 0]])), [[0.0, 1.0, 0.0]], atol=1e-12)


def test_known_quaternions():
    half = np.sqrt(0.5)
    quarter_turns = {"x": [half, half, 0, 0], "y": [half, 0, half, 0], "z": [half, 0, 0, half]}
    expected = {"x": [0, 0, 1], "y": [1, 0, 0], "z": [-1, 0, 0]}  # where +y, +z, +y go
    vector = {"x": [0, 1, 0], "y": [0, 0, 1], "z": [0, 1, 0]}
    for axis, quaternion in quarter_turns.items():
        rotation = se3.rotation_from_quaternion(np.array(quaternion))
        assert_allclose(rotation @ np.array(vector[axis], float), expected[axis], atol=1e-12)


@pytest.mark.parametrize("quaternion", [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1e-9, 0.6, 0.8, 0], [1, 0, 0, 0]])
def test_half_turns_survive_the_round_trip(quaternion):
    rotation = se3.rotation_from_quaternion(np.array(quaternion, float))
    again = se3.rotation_from_quaternion(se3.quaternion_from_rotation(rotation))
    assert_allclose(again, rotation, atol=1e-12)


def test_interpolation_takes_the_shorter_arc_whatever_the_quaternion_signs():
    a, b = se3.from_yaw(np.deg2rad(170)), se3.from_yaw(np.deg2rad(-170))
    assert_allclose(abs(np.rad2deg(se3.yaw_of(se3.interpolate(a, b, 0.5)))), 180, atol=1e-9)
    assert_allclose(np.rad2deg(se3.rotation_angle(se3.relative_motion(a, se3.interpolate(a, b, 0.25)))), 5, atol=1e-9)


def test_trajectory_interpolates_between_its_own_neighbours_and_extrapolates_at_the_ends():
    times = np.array([0.0, 1.0, 3.0])
    poses = np.stack([se3.from_yaw(0.0, (x, 0.0, 0.0)) for x in (0.0, 1.0, 5.0)])
    at = se3.interpolate_trajectory(times, poses, np.array([0.5, 1.0, 2.0, 4.0, -1.0]))
    assert_allclose(at[:, 0, 3], [0.5, 1.0, 3.0, 7.0, -1.0])
    assert_allclose(se3.interpolate_trajectory(times[:1], poses[:1], np.array([9.0]))[0], poses[0])


def test_rigidity_error_finds_scale_mirror_last_row_and_nan():
    good = se3.from_yaw(0.3, (1.0, 2.0, 3.0))
    scaled, mirrored, row, nan = (good.copy() for _ in range(4))
    scaled[:3, :3] *= 1.01
    mirrored[:3, 0] *= -1
    row[3, 0] = 0.5
    nan[0, 3] = np.nan
    for bad in (scaled, mirrored, row, nan):
        assert se3.rigidity_error(bad) > se3.RIGID_TOLERANCE
    rounded = np.round(good, 6)
    assert 0 < se3.rigidity_error(rounded) < se3.RIGID_TOLERANCE
    assert se3.rigidity_error(se3.nearest_rigid(rounded)) < 1e-12


def test_float32_points_far_from_the_world_origin_keep_millimetres():
    """A world frame may be UTM: the sum is done in the poses' float64, not in the points' float32."""
    world_from_a = se3.from_yaw(0.4, (500_000.0, 5_400_000.0, 300.0))
    world_from_b = se3.from_yaw(0.5, (500_001.0, 5_400_002.0, 300.0))
    points = np.random.default_rng(0).uniform(-50, 50, (100, 3)).astype(np.float32)
    there = se3.transform_points(se3.relative_motion(world_from_a, world_from_b), points)
    back = se3.transform_points(se3.relative_motion(world_from_b, world_from_a), there)
    assert there.dtype == np.float32
    assert_allclose(back, points, atol=1e-4)

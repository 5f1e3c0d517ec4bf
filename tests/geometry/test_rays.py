"""Rays: points <-> origin + direction + depth, and boxes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from copilot4d.errors import UsageError
from copilot4d.geometry import BeamPattern, Rays, inside_box, intersect_box, rays_through, se3

BOX = np.array([-1.0, -2.0, -3.0, 1.0, 2.0, 3.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("per_point", [False, True])
def test_points_come_back_from_rays_and_depths(dtype, per_point):
    rng = np.random.default_rng(0)
    points = rng.normal(scale=20, size=(200, 3)).astype(dtype)
    origins = rng.normal(size=(200, 3) if per_point else 3).astype(dtype)
    rays, depths = rays_through(points, origins)
    assert rays.directions.dtype == depths.dtype == dtype
    assert_allclose(np.linalg.norm(rays.directions, axis=1), 1, atol=1e-6)
    assert_allclose(rays.points_at(depths), points, atol=1e-5)
    assert (depths >= 0).all()


def test_a_point_on_its_origin_has_depth_zero_and_no_nan():
    rays, depths = rays_through(np.zeros((1, 3)), np.zeros(3))
    assert depths[0] == 0
    assert_array_equal(rays.directions, [[1, 0, 0]])


def test_hand_computed_intersections():
    origins = np.array([[-5.0, 0, 0], [0, 0, 0], [0, 7, 0], [-5, 0, 0], [-5, 2.5, 0], [0, -7, 0]])
    directions = np.array([[1.0, 0, 0], [0, 1, 0], [0, -1, 0], [-1, 0, 0], [1, 0, 0], [0, 1, 0]])
    segment = intersect_box(Rays(origins, directions), BOX)
    assert_array_equal(segment.hits, [True, True, True, False, False, True])
    assert_allclose(segment.entry[[0, 1, 2, 5]], [4, 0, 5, 5])
    assert_allclose(segment.exit[[0, 1, 2, 5]], [6, 2, 9, 9])
    assert np.isnan(segment.entry[3])
    assert np.isnan(segment.exit[4])


def test_a_ray_in_a_face_or_along_an_edge_touches_the_closed_box():
    rays = Rays(np.array([[-5.0, 2.0, 0.0], [-5.0, 2.0, 3.0], [-5.0, 2.0001, 0.0]]), np.array([[1.0, 0, 0]] * 3))
    segment = intersect_box(rays, BOX)
    assert_array_equal(segment.hits, [True, True, False])
    assert_allclose(segment.entry[:2], 4)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**32 - 1))
def test_intersections_agree_with_walking_along_the_ray(seed):
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(8, 3))
    directions[rng.random((8, 3)) < 0.2] = 0
    directions[:, 0] += np.where(np.abs(directions).sum(1) == 0, 1, 0)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    rays = Rays(rng.uniform(-5, 5, (8, 3)), directions)
    segment = intersect_box(rays, BOX)
    steps = np.linspace(0, 20, 2001)
    walked = inside_box(rays.origins[:, None] + rays.directions[:, None] * steps[None, :, None], BOX)
    for i in range(8):
        if walked[i].any():
            assert segment.hits[i]
            assert segment.entry[i] <= steps[walked[i]][0] + 1e-9
            assert segment.exit[i] >= steps[walked[i]][-1] - 1e-9
        if segment.hits[i] and segment.exit[i] - segment.entry[i] > 0.02 and segment.entry[i] < 19:
            assert walked[i].any()


def test_rays_follow_a_change_of_frame():
    a_from_b = se3.from_yaw(0.7, (3.0, -1.0, 0.5))
    points = np.random.default_rng(1).normal(scale=9, size=(50, 3))
    rays, depths = rays_through(points, np.array([0.2, 0.1, 0.3]))
    assert_allclose(rays.transformed(a_from_b).points_at(depths), se3.transform_points(a_from_b, points), atol=1e-9)
    assert_allclose(rays[10:20].points_at(depths[10:20]), points[10:20], atol=1e-9)


def test_joined_rays_are_those_of_each_part_in_order():
    points = np.random.default_rng(2).normal(scale=9, size=(7, 3))
    (one, near), (two, far) = (rays_through(points + i, np.full(3, 0.1 * i)) for i in (0, 1))
    joined = Rays.joined([one, two[:0], two])
    assert_allclose(joined.points_at(np.concatenate([near, far])), np.concatenate([points, points + 1]), atol=1e-9)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="from_origin"):
        Rays(np.zeros(3), np.zeros((5, 3)))


def test_a_beam_pattern_starts_at_the_sensor():
    pattern = BeamPattern(np.array([[0.0, 1.0, 0.0], [0.0, 0.0, -1.0]]), 80.0)
    assert_allclose(pattern.rays().points_at(np.array([2.0, 3.0])), [[0, 2, 0], [0, 0, -3]])

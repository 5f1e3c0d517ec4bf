"""What a ray may be answered: hand-computed cases, and what must not matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from copilot4d.depth_selection import CANDIDATES, FEATURES, MeasuredPast, candidates
from copilot4d.depth_selection.candidates import _find_recent, find_recent_plain
from copilot4d.geometry import Rays, Sweep, se3

SECOND = 1_000_000_000
AHEAD = Rays.from_origin(np.zeros(3), np.array([[1.0, 0.0, 0.0]]))


def sweep(points, t, pose=None):
    return Sweep(
        points=np.asarray(points, dtype=np.float32),
        world_from_lidar=se3.identity() if pose is None else pose,
        timestamp_ns=t * SECOND,
    )


def at_angle(degrees, range_m):
    return [range_m * np.cos(np.deg2rad(degrees)), range_m * np.sin(np.deg2rad(degrees)), 0.0]


def depth(found, name):
    return float(found.depths_m[0, CANDIDATES.index(name)])


def feature(found, name):
    return float(found.features[0, FEATURES.index(name)])


def of(past, *, rendered_m, opacity=1.0, exit_m=32.0, rays=AHEAD, pose=None, t=3):
    measured = MeasuredPast.of(past).along(rays, se3.identity() if pose is None else pose, t * SECOND)
    n = len(rays)
    return candidates(measured, rays, np.full(n, rendered_m), np.full(n, opacity), np.full(n, exit_m))


def test_a_past_point_is_as_far_as_the_ego_has_left_to_it():
    """RayReading at 10 m, 2 m on the way to the reference, then 3 m further: 5 m are left."""
    past = [sweep([[10.0, 0, 0]], 0), sweep([[0, 50.0, 0]], 1, se3.from_yaw(0.0, (2.0, 0, 0)))]
    found = of(past, rendered_m=20.0, pose=se3.from_yaw(0.0, (5.0, 0, 0)))
    assert depth(found, "nearest") == pytest.approx(5.0, abs=1e-4)
    assert depth(found, "rendered") == 20.0
    assert feature(found, "ahead_s") == pytest.approx(2.0)
    assert feature(found, "recent_age") == 1.0  # a sweep older than the newest


def test_a_newer_point_is_the_recent_one_where_it_is_not_much_further_off():
    near_by = [sweep([at_angle(0.0, 10)], 0), sweep([at_angle(0.1, 20)], 1)]
    assert depth(of(near_by, rendered_m=15.0), "recent") == pytest.approx(20.0, abs=1e-3)
    assert depth(of(near_by, rendered_m=15.0), "nearest") == pytest.approx(10.0, abs=1e-3)
    assert depth(of(near_by, rendered_m=15.0), "farthest") == pytest.approx(20.0, abs=1e-3)
    far_off = [sweep([at_angle(0.0, 10)], 0), sweep([at_angle(0.5, 20)], 1)]
    assert depth(of(far_off, rendered_m=15.0), "recent") == pytest.approx(10.0, abs=1e-3)


def test_what_is_imagined_snaps_to_the_surface_that_it_means_and_to_no_other():
    past = [sweep([at_angle(0.05, 10.3), at_angle(0.02, 25.0)], 0)]
    assert depth(of(past, rendered_m=10.0), "snapped") == pytest.approx(10.3, abs=1e-3)
    assert feature(of(past, rendered_m=10.0), "is_near") == 1.0
    assert depth(of(past, rendered_m=15.0), "snapped") == 15.0
    assert feature(of(past, rendered_m=15.0), "is_near") == 0.0


def test_a_beam_comes_back_only_from_what_was_measured_on_it():
    hit = of([sweep([at_angle(0.3, 10.0)], 0)], rendered_m=10.0)
    assert hit.returns[0].tolist() == [False, True, True, True, True, True]
    miss = of([sweep([at_angle(0.9, 10.0)], 0)], rendered_m=10.0)
    assert not miss.returns.any()


def test_a_surface_may_begin_where_no_beam_has_been():
    """Behind a point at 10 m; the ego has come 4 m nearer since, so that 6.5 m are left to the edge of its cell."""
    past = [sweep([[10.2, 0.2, 0.2]], 0)]
    rays = Rays.from_origin(np.array([0, 0.2, 0.2]), np.array([[1.0, 0.0, 0.0]]))
    found = of(past, rendered_m=20.0, rays=rays, pose=se3.from_yaw(0.0, (4.0, 0, 0)))
    assert depth(found, "unobserved") == pytest.approx(6.5, abs=0.4)
    assert feature(found, "rendered_against_unobserved") > 0 > feature(found, "recent_against_unobserved")
    assert np.exp(feature(found, "unobserved_before_rendered_log")) == pytest.approx(20 - 6.5, abs=1)
    assert np.exp(feature(found, "unobserved_before_recent_log")) < 0.8
    seen = of([sweep([[200.0, 0.2, 0.2]], 0)], rendered_m=20.0, rays=rays, pose=se3.from_yaw(0.0, (90.0, 0, 0)))
    assert depth(seen, "unobserved") == 20.0  # all is observed: what is rendered


def test_features_tell_what_lies_beyond_the_region():
    past = [sweep([at_angle(0.0, 40.0)], 0)]
    assert feature(of(past, rendered_m=32.05, opacity=0.1), "is_beyond") == 1.0
    assert feature(of(past, rendered_m=32.05, exit_m=50.0), "is_beyond") == 0.0
    assert feature(of(past, rendered_m=32.05, opacity=0.1), "is_faint") == 1.0
    assert feature(of(past, rendered_m=32.05, opacity=0.1), "recent_against_rendered") > 0
    assert feature(of(past, rendered_m=60.0), "recent_against_rendered") < 0


def test_neither_the_order_of_points_nor_the_world_frame_matters():
    rng = np.random.default_rng(3)
    clouds = [rng.uniform(-20, 20, (300, 3)) for _ in range(3)]
    poses = [se3.from_yaw(0.1 * t, (t, 0.2 * t, 0)) for t in range(4)]
    directions = rng.normal(size=(50, 3))
    rays = Rays.from_origin(np.zeros(3), directions / np.linalg.norm(directions, axis=1, keepdims=True))
    past = [sweep(cloud, t, poses[t]) for t, cloud in enumerate(clouds)]
    expected = of(past, rendered_m=9.0, rays=rays, pose=poses[3])
    shuffled = [replace(s, points=s.points[rng.permutation(len(s))]) for s in past]
    moved_by = se3.from_yaw(1.1, (100.0, -50.0, 2.0))
    moved = [replace(s, world_from_lidar=se3.compose(moved_by, s.world_from_lidar)) for s in past]
    for other, pose in ((shuffled, poses[3]), (moved, se3.compose(moved_by, poses[3]))):
        found = of(other, rendered_m=9.0, rays=rays, pose=pose)
        np.testing.assert_allclose(found.depths_m, expected.depths_m, atol=1e-3)
        np.testing.assert_allclose(found.features, expected.features, atol=5e-3)


def test_later_frames_than_were_learned_count_as_the_latest_learned():
    past = [sweep([[10.0, 0, 0]], 0)]
    assert feature(of(past, rendered_m=5.0, t=60), "ahead_s") == feature(of(past, rendered_m=5.0, t=3), "ahead_s")


def test_no_rays_have_no_candidates():
    nothing = Rays(origins=np.zeros((0, 3)), directions=np.zeros((0, 3)))
    found = of([sweep([[10.0, 0, 0]], 0)], rendered_m=5.0, rays=nothing)
    assert found.depths_m.shape == (0, len(CANDIDATES))
    assert found.features.shape == (0, len(FEATURES))


def test_the_recent_neighbour_is_the_one_that_the_plain_rule_takes():
    rng = np.random.default_rng(5)
    indices = rng.integers(0, 40, size=(200, 6))
    indices[:50, 4:] = -1  # fewer points than neighbours
    chords, ranges_m = (rng.uniform(0, 0.05, (200, 6)), rng.uniform(1, 50, (200, 6)))
    chords, ranges_m = np.sort(chords, axis=1).astype(np.float32), ranges_m.astype(np.float32)
    ages, points = rng.integers(0, 5, 40).astype(np.float32), rng.normal(size=(40, 3)).astype(np.float32)
    chosen, angle = find_recent_plain(indices, chords, ages)
    rows, taken = np.arange(200), indices[np.arange(200), chosen]
    expected = ranges_m[rows, chosen], ages[taken], points[taken, 2]
    recent_m, recent_age, height_m = (np.empty(200, np.float32) for _ in range(3))
    recent_angle = np.empty(200)
    _find_recent(indices, chords, ranges_m, ages, points, recent_m, recent_angle, recent_age, height_m)
    for found, wanted in zip((recent_m, recent_age, height_m), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_allclose(recent_angle, angle, rtol=1e-12)
    np.testing.assert_array_equal(ranges_m[:50, 4], ranges_m[:50, 0])

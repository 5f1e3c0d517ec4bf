"""Where beams have been: hand-computed walks, and what must not matter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d.depth_selection.visibility import GRID, NOWHERE_M, STEP_M, ObservedSpace
from copilot4d.geometry import Rays, Sweep, se3

NEAR = STEP_M + 1e-6  # a walk finds edges to a step


def sweep(points, pose=None, origins=None):
    return Sweep(
        points=np.asarray(points, dtype=np.float32),
        world_from_lidar=se3.identity() if pose is None else pose,
        timestamp_ns=0,
        origins=None if origins is None else np.asarray(origins, dtype=np.float32),
    )


def fan(radius_m, degrees):
    """Points on a circle around the sensor, a tenth of a degree apart."""
    angles = np.deg2rad(np.arange(*degrees, 0.1))
    return np.column_stack([radius_m * np.cos(angles), radius_m * np.sin(angles), np.full(len(angles), 0.2)])


def ray(origin, direction):
    direction = np.asarray(direction, dtype=float)
    return Rays.from_origin(np.asarray(origin, dtype=float), (direction / np.linalg.norm(direction))[None])


def unobserved(space, rays, *depths_m):
    found = space.along(rays, np.array([depths_m]) if depths_m else np.zeros((len(rays), 1)))
    return float(found.starts_m[0]), float(found.lengths_m[0]), found.before_m[0]


def test_what_lies_behind_a_point_has_not_been_observed():
    """A beam to 20 m and a longer one far off: along the first, the unobserved begins behind the point's own cell."""
    space = ObservedSpace.of([sweep([[20.2, 0.2, 0.2]])])
    start, length, before = unobserved(space, ray([0, 0.2, 0.2], [1, 0, 0]), 10.0, 25.0)
    assert start == pytest.approx(20.5, abs=NEAR)
    assert length == pytest.approx(GRID.maximum[0] - 20.5, abs=2 * NEAR)
    assert before[0] == 0
    assert before[1] == pytest.approx(25 - 20.5, abs=2 * NEAR)


def test_a_ray_from_elsewhere_enters_the_shadow_of_what_was_measured():
    """Beams to 40 m on both sides of a wall at x = 10 between y = -3 and 3: a ray along y at x = 30 is in the wall's
    shadow while |y| < 9, and out of it, in what was seen, before and after."""
    wall = np.array([[10.2, y, 0.2] for y in np.arange(-3, 3, 0.02)])
    space = ObservedSpace.of([sweep(np.concatenate([wall, fan(40, (-60, -17)), fan(40, (17, 60))]))])
    start, length, _ = unobserved(space, ray([30, -20, 0.2], [0, 1, 0]))
    assert start == pytest.approx(20 - 9, abs=1.0)
    assert length == pytest.approx(18, abs=1.5)


def test_older_sweeps_and_other_lidars_have_seen_too():
    """From 30 m on, looking back; and from a second lidar's place: both in the newest frame."""
    turned = se3.from_yaw(np.pi, (30.2, 0.2, 0.2))
    newest = sweep([[20.2, 0.2, 0.2]])
    alone = ObservedSpace.of([newest])
    both = ObservedSpace.of([sweep([[9.7, 0.0, 0.0]], turned), newest])
    merged = ObservedSpace.of([sweep([[20.2, 0.2, 0.2], [20.4, 0.2, 0.2]], origins=[[0, 0.2, 0.2], [30.2, 0.2, 0.2]])])
    along = ray([0, 0.2, 0.2], [1, 0, 0])
    assert unobserved(alone, along)[0] == pytest.approx(20.5, abs=NEAR)
    assert unobserved(both, along)[0] == pytest.approx(30.5, abs=NEAR)
    assert unobserved(merged, along)[0] == pytest.approx(30.5, abs=NEAR)


def test_a_gap_between_beams_is_not_unobserved():
    """A cell before a point and one behind it are shorter than the least stretch: they count on the way, but begin
    nothing."""
    points = [[10.2, 0.2, 0.2], [40.2, 0.2, 0.2]]
    space = ObservedSpace.of([sweep(points, origins=[[0, 0.2, 0.2], [11.1, 0.2, 0.2]])])
    start, _, before = unobserved(space, ray([0, 0.2, 0.2], [1, 0, 0]), 20.0)
    assert before[0] == pytest.approx(1.0)
    assert start == pytest.approx(40.5, abs=NEAR)


def test_where_all_is_observed_it_begins_nowhere():
    """Beams to 200 m leave the grid; so does a ray that starts outside it."""
    space = ObservedSpace.of([sweep([[200.0, 0.2, 0.2]], origins=[[0, 0.2, 0.2]])])
    assert unobserved(space, ray([0, 0.2, 0.2], [1, 0, 0]))[:2] == (NOWHERE_M, 0.0)
    assert unobserved(space, ray([500.0, 0, 0], [1, 0, 0]))[:2] == (NOWHERE_M, 0.0)


def test_a_sweep_without_points_has_seen_nothing():
    start, length, _ = unobserved(ObservedSpace.of([sweep(np.zeros((0, 3)))]), ray([0, 0, 0], [1, 0, 0]))
    assert (start, length) == (0.0, pytest.approx(GRID.maximum[0], abs=2 * NEAR))


def test_strange_points_and_rays_end():
    """A stray point a light second away, and a ray that goes nowhere."""
    space = ObservedSpace.of([sweep([[3e8, 3e8, 0.2], [20.2, 0.2, 0.2]])])
    assert space.cells.sum() > 100
    nowhere = Rays(origins=np.full((1, 3), 0.2), directions=np.zeros((1, 3)))
    assert unobserved(space, nowhere)[:2] == (NOWHERE_M, 0.0)


def test_many_rays_in_threads_are_each_what_it_is_alone(monkeypatch):
    """Enough rays that they are shared out, an odd number of them."""
    space = ObservedSpace.of([sweep(fan(20, (-60, 60)))])
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(5001, 3)) * [1, 1, 0.1]
    rays = Rays.from_origin(np.array([1.0, 0.2, 0.2]), directions / np.linalg.norm(directions, axis=1)[:, None])
    depths_m = rng.uniform(1, 60, (len(rays), 2))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    shared = space.along(rays, depths_m)
    for i in (0, 1250, 2500, 3333, 5000):
        alone = space.along(rays[i : i + 1], depths_m[i : i + 1])
        assert (shared.starts_m[i], shared.lengths_m[i]) == (alone.starts_m[0], alone.lengths_m[0])
        np.testing.assert_array_equal(shared.before_m[i], alone.before_m[0])
    assert len(np.unique(shared.starts_m)) > 10


def test_a_walk_looks_at_every_step_of_the_way_and_nowhere_else():
    """The definition, step by step in Python, for rays in all directions: along axes, from outside, on the edge."""
    rng = np.random.default_rng(3)
    space = ObservedSpace((rng.random(GRID.shape) < 0.6).astype(np.uint8))
    origins = rng.uniform([-100, -100, -6], [100, 100, 8], (60, 3))
    directions = rng.normal(size=(60, 3)) * [1, 1, 0.1]
    origins[:4] = [[0, 0, 0], GRID.minimum, GRID.maximum, [0, 0, 6.99]]
    directions[:4] = [[1, 0, 0], [1, 1, 0.05], [-1, -1, -0.05], [0, -1, 0]]
    rays = Rays(origins, directions / np.linalg.norm(directions, axis=1, keepdims=True))
    depths_m = rng.uniform(0, 120, (60, 2))
    found = space.along(rays, depths_m)
    size = np.array(GRID.cell_size)
    for r in range(60):
        place, stride = (rays.origins[r] - GRID.minimum) / size, rays.directions[r] * (STEP_M / size)
        start, length, before, run, is_over = NOWHERE_M, 0.0, np.zeros(2), 0.0, False
        for step in range(int(NOWHERE_M / STEP_M)):
            if not ((place >= 0) & (place < GRID.shape)).all():
                break
            depth = step * STEP_M
            if space.cells[tuple(place.astype(int))] == 0:
                run += STEP_M
                before += STEP_M * (depth < depths_m[r])
                if not is_over and run >= 1.0:
                    start, length = depth + STEP_M - run, run
            else:
                is_over, run = is_over or run >= 1.0, 0.0
            if is_over and depth + STEP_M >= depths_m[r].max():
                break
            place = place + stride
        assert (found.starts_m[r], found.lengths_m[r]) == (start, length)
        assert np.array_equal(found.before_m[r], before)

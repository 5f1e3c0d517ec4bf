from __future__ import annotations

import numpy as np
import pytest

from copilot4d.baselines.angular import nearest_in_angle, rays_by_origin
from copilot4d.errors import ForecastError
from copilot4d.geometry import Rays


def unit(azimuth_deg: float, elevation_deg: float = 0.0) -> np.ndarray:
    a, e = np.deg2rad([azimuth_deg, elevation_deg])
    return np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])


def rays_from(origin: object, *directions: np.ndarray) -> Rays:
    return Rays.from_origin(np.asarray(origin, dtype=float), np.stack(directions))


def test_takes_the_range_of_the_nearest_direction_not_of_the_nearest_point() -> None:
    points = np.stack([unit(2) * 50, unit(10) * 3])
    match = nearest_in_angle(points, rays_from([0, 0, 0], unit(0), unit(9)))
    assert match.indices[:, 0].tolist() == [0, 1]
    np.testing.assert_allclose(match.ranges_m[:, 0], [50, 3], rtol=1e-6)
    np.testing.assert_allclose(match.chords[:, 0], 2 * np.sin(np.deg2rad([2, 1]) / 2), rtol=1e-4)


def test_has_no_seam_behind_the_sensor_and_none_at_the_zenith() -> None:
    points = np.stack([unit(179.5) * 10, unit(-175) * 20, unit(0, 89) * 7, unit(90, 80) * 30])
    match = nearest_in_angle(points, rays_from([0, 0, 0], unit(-179.5), unit(180, 89.5)))
    np.testing.assert_allclose(match.ranges_m[:, 0], [10, 7], rtol=1e-6)


def test_each_ray_looks_from_its_own_origin() -> None:
    # From the first origin point 0 is straight ahead, from the second, one metre up, it is point 1.
    points = np.array([[10, 0, 0], [10, 0, 1], [10, 0.2, 0.5]], dtype=np.float32)
    forward = np.tile([1.0, 0, 0], (4, 1))
    origins = np.array([[0, 0, 0], [2, 0, 1], [2, 0, 1], [0, 0, 0]], dtype=float)
    match = nearest_in_angle(points, Rays(origins, forward))
    assert match.indices[:, 0].tolist() == [0, 1, 1, 0]
    np.testing.assert_allclose(match.ranges_m[:, 0], [10, 8, 8, 10], rtol=1e-6)


def test_agrees_with_a_full_search() -> None:
    rng = np.random.default_rng(0)
    points, directions = rng.normal(size=(400, 3)) * [30, 30, 3], rng.normal(size=(150, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    origins = rng.normal(size=(3, 3))[rng.integers(0, 3, 150)]
    match = nearest_in_angle(points, Rays(origins, directions), neighbours=3)
    offsets = points[None] - origins[:, None]
    distance = np.linalg.norm(offsets, axis=2)
    cosine = np.einsum("rnc,rc->rn", offsets, directions) / distance
    best = np.argsort(-cosine, axis=1)[:, :3]
    np.testing.assert_array_equal(match.indices, best)
    np.testing.assert_allclose(match.ranges_m, np.take_along_axis(distance, best, 1), rtol=1e-5)


def test_many_origins_share_views_by_cell_but_every_ray_is_answered_once() -> None:
    rng = np.random.default_rng(1)
    origins = np.stack([np.linspace(0, 1, 500), np.zeros(500), np.zeros(500)], axis=1)[rng.permutation(500)]
    rays = Rays(origins, np.tile([0.0, 1, 0], (500, 1)))
    groups = list(rays_by_origin(rays))
    assert len(groups) == 11  # 0-0.1, ..., 0.9-1.0, and 1.0 itself
    assert sorted(np.concatenate([members for _, members in groups])) == list(range(500))
    wall = np.stack([np.linspace(-1, 2, 3001), np.full(3001, 20.0), np.zeros(3001)], axis=1)
    np.testing.assert_allclose(nearest_in_angle(wall, rays).ranges_m[:, 0], 20, atol=1e-3)


def test_a_point_on_the_origin_and_a_point_that_is_nan_are_never_chosen() -> None:
    points = np.array([[0, 0, 0], [np.nan, 1, 0], [0, 5, 0], [np.inf, 0, 0]], dtype=np.float32)
    match = nearest_in_angle(points, rays_from([0, 0, 0], unit(0)))
    assert match.indices.tolist() == [[2]]
    with pytest.raises(ForecastError, match="none of the points can be seen"):
        nearest_in_angle(points[:2], rays_from([0, 0, 0], unit(0)))


def test_fewer_points_than_neighbours_leaves_the_rest_unanswered() -> None:
    match = nearest_in_angle(np.array([[4.0, 0, 0]]), rays_from([0, 0, 0], unit(1)), neighbours=3)
    assert match.indices.tolist() == [[0, -1, -1]]
    assert match.ranges_m.tolist() == [[4, np.inf, np.inf]]


def test_no_rays_and_bad_rays() -> None:
    none = Rays(np.zeros((0, 3)), np.zeros((0, 3)))
    assert nearest_in_angle(np.array([[4.0, 0, 0]]), none).ranges_m.shape == (0, 1)
    with pytest.raises(ForecastError, match="finite"):
        nearest_in_angle(np.array([[4.0, 0, 0]]), rays_from([0, 0, 0], np.full(3, np.nan)))


def test_a_handicap_counts_like_an_angle_at_a_right_angle() -> None:
    points = np.stack([unit(3) * 5, unit(5) * 9])
    rays = rays_from([0, 0, 0], unit(0))
    for handicap_deg, expected in ((3.9, 5), (4.1, 9)):  # 3, 4, 5: hypot(3, 4) against 5
        match = nearest_in_angle(points, rays, handicaps=np.deg2rad([handicap_deg, 0]))
        np.testing.assert_allclose(match.ranges_m, [[expected]], rtol=1e-6)

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.environment.observation import Packing, disagreement, even_choice
from copilot4d.errors import ForecastError, UsageError


def cloud(*rows: tuple[float, float, float]) -> np.ndarray:
    return np.array(rows, dtype=np.float32).reshape(-1, 3)


def test_points_come_first_then_zeros():
    packed = Packing(4, 100.0).pack(cloud((1, 2, 3), (4, 5, 6)))
    assert packed.observation["points"].tolist() == [[1, 2, 3], [4, 5, 6], [0, 0, 0], [0, 0, 0]]
    assert packed.observation["count"] == 2
    assert packed.observation["points"][: packed.observation["count"]].shape == (2, 3)
    assert not packed.subsampled
    assert packed.outside == 0


def test_points_outside_the_bounds_are_left_out_and_counted():
    packed = Packing(4, 10.0).pack(cloud((1, 0, 0), (0, -10.5, 0), (0, 0, 10), (11, 0, 0)))
    assert packed.observation["points"][:2].tolist() == [[1, 0, 0], [0, 0, 10]]
    assert packed.outside == 2
    assert not packed.subsampled
    assert packed.padded(np.array([0.1, 0.2, 0.3, 0.4])).tolist() == pytest.approx([0.1, 0.3, 0, 0])


def test_observations_of_any_cloud_are_in_the_space():
    packing = Packing(50, 20.0)
    space = packing.space()
    for n in (0, 1, 49, 50, 51, 1000):
        points = np.random.default_rng(n).normal(scale=15, size=(n, 3)).astype(np.float32)
        packed = packing.pack(points)
        assert packed.observation in space
        assert packed.subsampled == ((np.abs(points).max(axis=1) <= 20).sum() > 50 if n else False)
        shown = packed.observation["points"][: packed.observation["count"]]
        assert (shown == points[packed.kept]).all()
        assert (np.diff(packed.kept) > 0).all()


def test_a_choice_is_always_the_same_and_even_along_the_sweep():
    chosen = even_choice(10_000, 2_500)
    assert (chosen == even_choice(10_000, 2_500)).all()
    assert len(np.unique(chosen)) == 2_500
    assert np.histogram(chosen, bins=50, range=(0, 10_000))[0] == pytest.approx(np.full(50, 50), abs=2)
    for beams in (16, 32, 64):  # a sweep in firing order: no beam is lost, none is favoured
        share = np.bincount(even_choice(beams * 400, beams * 200) % beams, minlength=beams) / 200
        assert share.min() > 0.8
        assert share.max() < 1.2


def test_a_sweep_that_is_not_finite_is_an_error():
    with pytest.raises(ForecastError, match="1 of 2 points"):
        Packing(4, 10.0).pack(cloud((1, 0, 0), (np.nan, 0, 0)))


def test_sizes_that_cannot_be():
    with pytest.raises(UsageError, match="max_points"):
        Packing(0, 10.0)
    with pytest.raises(UsageError, match="bound_m"):
        Packing(4, float("inf"))


def test_disagreement_is_the_distance_to_the_nearest_point_of_the_others():
    points = cloud((0, 0, 0), (10, 0, 0))
    near = cloud((10, 0, 1), (0, 2, 0), (0, 3, 0))
    far = cloud((0, 0, 100))
    assert disagreement(points, [near]).tolist() == [2, 1]
    assert disagreement(points, [near, far]).tolist() == [(2 + 5) / 2, (1 + 5) / 2]  # at most 5 m count
    assert disagreement(points, [near, cloud()]).tolist() == [(2 + 5) / 2, (1 + 5) / 2]
    assert disagreement(points, [points, points]).tolist() == [0, 0]
    assert disagreement(cloud(), [near]).shape == (0,)

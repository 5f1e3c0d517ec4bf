"""Where rays lie in the view, and what its cells hold."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.depth_selection.neighbours import AZIMUTHS, CELLS, ELEVATIONS, RangeView, cells_of


def towards(azimuth_deg, elevation_deg):
    a, e = np.deg2rad(azimuth_deg), np.deg2rad(elevation_deg)
    return np.array([[np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), np.sin(e)]])


@pytest.mark.parametrize(
    ("azimuth", "elevation", "column", "row"),
    [
        (0.5, 0.5, 90, 24),  # ahead, just above the horizon: 30.5 degrees above the lowest, cells of 1.25
        (90.5, -29.9, 135, 0),  # left, and down
        (-90.5, 19.9, 44, 39),  # right, and up
        (-179.9, 0.5, 0, 24),
        (179.9, 0.5, 179, 24),
        (0.5, -80.0, 90, 0),  # beyond the view
        (0.5, 80.0, 90, 39),
    ],
)
def test_where_a_ray_lies(azimuth, elevation, column, row):
    (cell,) = cells_of(towards(azimuth, elevation))
    assert divmod(int(cell), AZIMUTHS) == (row, column)


def test_a_direction_straight_behind_and_one_a_little_too_long_have_cells():
    """-y of minus zero and a rounding error in z must not fall off the view."""
    odd = np.array([[-1.0, 0.0, 0.0], [-1.0, -0.0, 0.0], [0.0, 0.0, 1.0 + 1e-12], [0.0, 0.0, -1.0 - 1e-12]])
    cells = cells_of(odd)
    assert ((cells >= 0) & (cells < CELLS)).all()


def test_cells_hold_means_and_whether_there_are_rays_in_whatever_order():
    features = np.array([[1.0, 10.0], [3.0, 20.0], [5.0, 0.0]], dtype=np.float32)
    cells = np.array([7, 7, AZIMUTHS + 1])
    values = RangeView.of(features, cells).values
    assert values.shape == (3, ELEVATIONS, AZIMUTHS)
    np.testing.assert_allclose(values[:, 0, 7], [2.0, 15.0, 1.0])
    np.testing.assert_allclose(values[:, 1, 1], [5.0, 0.0, 1.0])
    assert np.count_nonzero(values) == 5
    order = np.array([2, 0, 1])
    np.testing.assert_allclose(RangeView.of(features[order], cells[order]).values, values)

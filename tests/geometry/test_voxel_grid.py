"""`VoxelGrid`: floor, upper edge exclusive, x before y before z."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from copilot4d.errors import UsageError
from copilot4d.geometry import VoxelGrid

GRID = VoxelGrid(minimum=(-2.0, 0.0, -1.0), cell_size=(0.5, 1.0, 0.25), shape=(8, 3, 4))  # ends at (2, 3, 0)


def test_hand_computed_indices():
    points = np.array([[-2.0, 0.0, -1.0], [-1.51, 0.99, -0.76], [-1.5, 1.0, -0.75], [1.99, 2.99, -0.01]])
    assert_array_equal(GRID.index_of(points), [[0, 0, 0], [0, 0, 0], [1, 1, 1], [7, 2, 3]])
    assert GRID.contains(points).all()
    assert GRID.maximum == (2.0, 3.0, 0.0)


def test_edges_lower_inclusive_upper_exclusive_and_nothing_below_zero_wraps():
    on_or_over = np.array([[2.0, 1.0, -0.5], [0.0, 3.0, -0.5], [0.0, 1.0, 0.0], [-2.0001, 1, -0.5], [np.nan, 1, -0.5]])
    assert not GRID.contains(on_or_over).any()
    assert GRID.index_of(np.array([-2.0001, 1.0, -0.5]))[0] == -1  # floor, not truncation towards zero
    assert not GRID.contains(np.array([np.inf, 0.0, 0.0]))


def test_centres_fall_into_their_own_cells_and_flat_indices_round_trip():
    index = np.stack(np.meshgrid(*(np.arange(n) for n in GRID.shape), indexing="ij"), -1).reshape(-1, 3)
    assert_array_equal(GRID.index_of(GRID.centre_of(index)), index)
    flat = GRID.flat_index(index)
    assert_array_equal(flat, np.arange(GRID.cells))  # C order over (x, y, z)
    assert_array_equal(GRID.unflat_index(flat), index)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (4,), (2, 5)])
def test_batch_shapes_and_dtypes_agree(shape, dtype):
    points = np.random.default_rng(0).uniform(-3, 4, (*shape, 3)).astype(dtype)
    expected = np.floor((points.astype(float) - GRID.minimum) / GRID.cell_size)
    assert_array_equal(GRID.index_of(points), expected)
    inside = ((expected >= 0) & (expected < GRID.shape)).all(-1)
    assert_array_equal(GRID.contains(points), inside)


def test_the_papers_grid():
    grid = VoxelGrid.from_bounds((-80, -80, -4.5), (80, 80, 4.5), shape=(1024, 1024, 64))
    assert_allclose(grid.cell_size, (0.15625, 0.15625, 0.140625))
    assert_allclose(grid.box, [-80, -80, -4.5, 80, 80, 4.5])


@pytest.mark.parametrize(
    "bad",
    [
        {"minimum": (0, 0, 0), "cell_size": (1, 0, 1), "shape": (1, 1, 1)},
        {"minimum": (0, 0, 0), "cell_size": (1, 1, 1), "shape": (1, 0, 1)},
        {"minimum": (0, np.nan, 0), "cell_size": (1, 1, 1), "shape": (1, 1, 1)},
        {"minimum": (0, 0), "cell_size": (1, 1, 1), "shape": (1, 1, 1)},
    ],
)
def test_impossible_grids_are_refused(bad):
    with pytest.raises(UsageError, match="VoxelGrid"):
        VoxelGrid(**bad)
    with pytest.raises(UsageError, match="maximum"):
        VoxelGrid.from_bounds((0, 0, 0), (1, -1, 1), shape=(1, 1, 1))

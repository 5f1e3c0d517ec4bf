from __future__ import annotations

import torch

from copilot4d.geometry import VoxelGrid
from copilot4d.rendering import interpolate, trilinear_corners

GRID = VoxelGrid.from_bounds((-6, -2, 0), (6, 2, 3), (6, 8, 5))


def test_a_linear_function_of_x_y_z_is_reproduced():
    centres = torch.from_numpy(GRID.centre_of(torch.cartesian_prod(*map(torch.arange, GRID.shape)).numpy()))
    scale = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    values = (centres @ scale).view(1, *GRID.shape, 1)
    generator = torch.Generator().manual_seed(0)
    inner = torch.rand(100, 3, generator=generator, dtype=torch.float64)
    size, low = torch.tensor(GRID.cell_size), torch.tensor(GRID.minimum)
    points = low + size / 2 + inner * (torch.tensor(GRID.shape) - 1) * size
    found = interpolate(values, points, torch.zeros(100, dtype=torch.int64), GRID)[:, 0]
    torch.testing.assert_close(found, points @ scale)


def test_values_at_centres_are_exact_in_each_scene():
    values = torch.randn(3, *GRID.shape, 4, generator=torch.Generator().manual_seed(1))
    cells = torch.tensor([[0, 0, 0], [5, 7, 4], [2, 6, 1]])
    points = torch.from_numpy(GRID.centre_of(cells.numpy())).float()
    found = interpolate(values, points, torch.tensor([0, 2, 1]), GRID)
    expected = torch.stack([values[0, 0, 0, 0], values[2, 5, 7, 4], values[1, 2, 6, 1]])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_outside_the_centres_the_nearest_value_holds():
    values = torch.randn(1, *GRID.shape, 2, generator=torch.Generator().manual_seed(2))
    points = torch.tensor([[-6.0, -2.0, 0.0], [99.0, 99.0, 99.0]])
    found = interpolate(values, points, torch.tensor([0, 0]), GRID)
    torch.testing.assert_close(found, torch.stack([values[0, 0, 0, 0], values[0, -1, -1, -1]]))


def test_weights_sum_to_one_and_a_flat_grid_works():
    points = torch.rand(50, 3, generator=torch.Generator().manual_seed(3)) * 4 - 2
    weights = trilinear_corners(points, torch.zeros(50, dtype=torch.int64), GRID).weights
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(50))
    flat = VoxelGrid.from_bounds((-2, -2, -1), (2, 2, 1), (4, 4, 1))
    values = torch.randn(1, 4, 4, 1, 3, generator=torch.Generator().manual_seed(4))
    low = interpolate(values, points * torch.tensor([1, 1, 0.0]), torch.zeros(50, dtype=torch.int64), flat)
    high = interpolate(values, points * torch.tensor([1, 1, 0.0]) + torch.tensor([0, 0, 0.9]), torch.zeros(50).long(), flat)  # fmt: skip # noqa: E501
    torch.testing.assert_close(low, high)


def test_gradients_by_finite_differences():
    values = torch.randn(1, 3, 2, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    grid = VoxelGrid.from_bounds((0, 0, 0), (3, 2, 2), (3, 2, 2))
    points = torch.rand(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(6)) * 2
    assert torch.autograd.gradcheck(
        lambda v: interpolate(v, points, torch.zeros(7, dtype=torch.int64), grid), values.requires_grad_()
    )

"""Rays through voxels as 4D-Occ published it: hand-computed depths, gradients, and the same on every device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.geometry import VoxelGrid
from copilot4d.rendering import RayBatch
from copilot4d.rendering.exit_depth import exit_depths, sorted_exit_depths

GRID = VoxelGrid.from_bounds((0.0, -2.0, -2.0), (8.0, 2.0, 2.0), shape=(8, 4, 4))


def along_x(start: float = 0.0) -> RayBatch:
    return RayBatch(
        origins=torch.tensor([[start, 0.5, 0.5]]), directions=torch.tensor([[1.0, 0, 0]]), scenes=torch.zeros(1).long()
    )


def row(densities: dict[int, float]) -> torch.Tensor:
    """(1, 8, 4, 1, 1, 2, 4): densities of the voxels that the ray along x crosses, at the second step."""
    values = torch.zeros(1, 8, 4, 1, 1, 2, 4)
    for x, density in densities.items():
        values[0, x, 2, 0, 0, 1, 2] = density
    return values


def test_a_ray_ends_where_it_leaves_the_voxel_that_stops_it():
    step = torch.ones(1).long()
    solid = exit_depths(row({3: 100.0}), along_x(), step, GRID)
    assert solid.expected_m.item() == pytest.approx(4.0)
    assert solid.opacity.item() == pytest.approx(1.0)
    empty = exit_depths(row({}), along_x(), step, GRID)
    assert (empty.expected_m.item(), empty.opacity.item(), empty.median_m.item()) == (8.0, 0.0, np.inf)
    # Half stops in voxel 2 (which it leaves at 3 m), half of the rest in voxel 5 (6 m), the rest at the exit (8 m).
    log2 = float(np.log(2))
    seen = exit_depths(row({2: log2, 5: log2}), along_x(), step, GRID)
    assert seen.expected_m.item() == pytest.approx(0.5 * 3 + 0.25 * 6 + 0.25 * 8)
    assert seen.opacity.item() == pytest.approx(0.75)
    # 3/8 of the ray must be stopped: in voxel 2, after -log2(5/8) of its metre.
    assert seen.median_m.item() == pytest.approx(2 - np.log2(5 / 8))
    other_step = exit_depths(row({3: 100.0}), along_x(), torch.zeros(1).long(), GRID)
    assert other_step.expected_m.item() == 8.0
    outside = exit_depths(row({0: 100.0}), along_x(-5.0), step, GRID)
    assert outside.expected_m.item() == pytest.approx(6.0)


def random_case(count: int = 40):
    generator = torch.Generator().manual_seed(0)
    densities = torch.relu(torch.randn(2, 8, 4, 1, 1, 3, 4, generator=generator))
    directions = torch.nn.functional.normalize(torch.randn(count, 3, generator=generator), dim=-1)
    rays = RayBatch(
        origins=torch.rand(count, 3, generator=generator) * 6 - 1, directions=directions,
        scenes=torch.randint(0, 2, (count,), generator=generator),
    )  # fmt: skip
    return densities, rays, torch.randint(0, 3, (count,), generator=generator)


def test_the_walk_and_the_plain_way_agree_in_value_and_gradient():
    densities, rays, steps = random_case()
    a, b = densities.clone().requires_grad_(), densities.clone().requires_grad_()
    walked, plain = exit_depths(a, rays, steps, GRID), sorted_exit_depths(b, rays, steps, GRID)
    for mine, theirs in zip(walked, plain, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    weights = torch.linspace(-1, 1, len(rays))
    (walked.expected_m * weights).sum().backward()
    (plain.expected_m * weights).sum().backward()
    assert a.grad is not None
    assert a.grad.abs().sum() > 1
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-4)


def test_no_density_lengthens_a_ray():
    densities, rays, steps = random_case()
    densities.requires_grad_()
    exit_depths(densities, rays, steps, GRID).expected_m.sum().backward()
    assert densities.grad is not None
    assert (densities.grad <= 0).all()


def test_shapes_that_do_not_fit_are_refused():
    densities, rays, steps = random_case()
    with pytest.raises(UsageError, match="densities must be"):
        exit_depths(densities[:, :4], rays, steps, GRID)
    with pytest.raises(UsageError, match="its step of time"):
        exit_depths(densities, rays, steps[:3], GRID)

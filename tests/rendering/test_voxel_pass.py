"""Rays through one step's densities in one pass: the depths of plain PyTorch, to 1e-4 m, wherever rays run."""

from __future__ import annotations

import math

import pytest
import torch

from copilot4d.geometry import VoxelGrid
from copilot4d.rendering import RayBatch, voxel_depth
from copilot4d.rendering.voxel_depth import passed_voxels, sorted_voxel_depths, voxel_depths

GRID = VoxelGrid(minimum=(-4.0, -3.0, -1.0), cell_size=(0.5, 0.5, 0.25), shape=(16, 12, 8))
TOLERANCE_M = 1e-4


def scenes(seed: int, scenes: int = 1, steps: int = 2) -> torch.Tensor:
    """Free space with fog, thin and solid voxels: optical depths from 1e-4 to 1e4 in one grid."""
    generator = torch.Generator().manual_seed(seed)
    shape = (scenes, 8, 6, 2, 2, steps, 8)
    kind = torch.randint(0, 10, shape, generator=generator)
    logits = torch.full(shape, -9.0) + torch.randn(shape, generator=generator)
    logits[kind == 0] = -1.0
    logits[kind == 1] = 1.5
    logits[kind == 2] = 1e4
    return logits


def rays(seed: int, count: int) -> RayBatch:
    """From inside and outside; the last ones lie on edges and faces of voxels, and run along axes and diagonals."""
    generator = torch.Generator().manual_seed(seed)
    origins = torch.rand(count, 3, generator=generator) * torch.tensor([12.0, 10.0, 4.0]) - torch.tensor([6.0, 5.0, 2])
    directions = torch.randn(count, 3, generator=generator)
    edges = [
        ((-4.0, -3.0, -1.0), (1, 1, 0.5)), ((0.0, 0.0, 0.0), (1, 0, 0)), ((0.0, 0.0, 0.0), (0, -1, 0)),
        ((0.25, 0.25, 0.1), (0, 0, 1)), ((0.0, 0.5, 0.25), (1, 1, 0)), ((-9.0, 0.0, 0.0), (1, 0, 0)),
        ((-9.0, 0.0, 0.0), (-1, 0, 0)), ((4.0, 3.0, 1.0), (1, 0, 0)), ((4.0, 3.0, 1.0), (-1, -1, -0.5)),
        ((-9.0, 5.0, 0.0), (1, 0, 0)),
    ]  # fmt: skip
    for i, (origin, direction) in enumerate(edges[: max(0, count)]):
        origins[i], directions[i] = torch.tensor(origin), torch.tensor(direction, dtype=torch.float32)
    return RayBatch(
        origins=origins,
        directions=directions / directions.norm(dim=-1, keepdim=True),
        scenes=torch.zeros(count, dtype=torch.int64),
    )


@pytest.mark.parametrize("seed", range(4))
def test_one_pass_gives_the_depths_of_the_sorted_planes(seed):
    logits, batch = scenes(seed), rays(seed, 3000)
    for step in (0, 1):
        seen = passed_voxels(logits[0, :, :, :, :, step], batch, GRID)
        expected = sorted_voxel_depths(logits, batch, torch.full((len(batch),), step), GRID)
        torch.testing.assert_close(seen.expected_m, expected.expected_m, atol=TOLERANCE_M, rtol=0)
        torch.testing.assert_close(seen.opacity, expected.opacity, atol=1e-5, rtol=0)
        # The median is where half of what is stopped is stopped; between two voxels that stop half each, it jumps.
        stopped = expected.opacity > 1e-3
        is_near = (seen.median_m - expected.median_m).abs() < TOLERANCE_M
        assert is_near[stopped].float().mean() > 0.999
        assert torch.equal(seen.median_m.isinf(), expected.opacity <= 1e-6)


def test_fog_and_a_wall_by_hand():
    logits = torch.full((8, 6, 2, 2, 8), math.log(math.expm1(0.1)))  # 0.2 per metre
    ray = RayBatch(origins=torch.tensor([[-4.0, 0.2, 0.1]]), directions=torch.tensor([[1.0, 0, 0]]),
                   scenes=torch.zeros(1, dtype=torch.int64))  # fmt: skip
    seen = passed_voxels(logits, ray, GRID)
    assert seen.expected_m.item() == pytest.approx((1 - math.exp(-0.2 * 8)) / 0.2, abs=1e-5)
    assert seen.median_m.item() == pytest.approx(-math.log((1 + math.exp(-1.6)) / 2) / 0.2, abs=1e-5)
    logits[6] = 1e5  # from x = 2 on nothing passes
    assert passed_voxels(logits, ray, GRID).expected_m.item() == pytest.approx((1 - math.exp(-1.2)) / 0.2, abs=1e-4)


def test_many_rays_of_one_step_go_this_way_and_threads_do_not_matter(monkeypatch):
    logits, batch = scenes(7, scenes=2, steps=3), rays(7, 5000)
    batch = RayBatch(origins=batch.origins, directions=batch.directions, scenes=torch.ones(5000, dtype=torch.int64))
    steps = torch.full((5000,), 2)
    by_ray = voxel_depths(logits, batch, steps, GRID)
    monkeypatch.setattr(voxel_depth, "WORTH_A_TABLE", 5000)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = voxel_depths(logits, batch, steps, GRID)
        torch.set_num_threads(2)
        together = voxel_depths(logits, batch, steps, GRID)
    finally:
        torch.set_num_threads(threads)
    for one, other, plain in zip(alone, together, by_ray, strict=True):
        assert torch.equal(one, other)
        finite = plain.isfinite() & one.isfinite()
        assert ((one - plain)[finite].abs() < TOLERANCE_M).float().mean() > 0.999
    expected = passed_voxels(logits[1, :, :, :, :, 2], batch, GRID)
    assert torch.equal(alone.expected_m, expected.expected_m)
    steps[0] = 1  # not all of one step: as before
    assert torch.equal(voxel_depths(logits, batch, steps, GRID).expected_m[1:], by_ray.expected_m[1:])

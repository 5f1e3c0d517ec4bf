from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.geometry import Rays, VoxelGrid, intersect_box
from copilot4d.rendering import RayBatch, sample_rays
from copilot4d.rendering.sampling import look_up_rays
from copilot4d.rendering.traversal import walk_rays

GRID = VoxelGrid.from_bounds((-8, -4, -2), (8, 4, 2), (8, 8, 4))  # cells 2 x 1 x 1: no two axes alike


def some_rays(count: int, seed: int = 0, scenes: int = 1) -> RayBatch:
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(count, 3, generator=generator)
    directions /= directions.norm(dim=-1, keepdim=True)
    origins = torch.randn(count, 3, generator=generator) * torch.tensor([3.0, 2.0, 0.8])
    return RayBatch(origins=origins, directions=directions, scenes=torch.arange(count) % scenes)


def one_ray(origin, direction) -> RayBatch:
    direction = torch.tensor([direction], dtype=torch.float32)
    return RayBatch(
        origins=torch.tensor([origin], dtype=torch.float32),
        directions=direction / direction.norm(),
        scenes=torch.tensor([0]),
    )


def test_samples_lie_in_the_occupied_cell_and_nowhere_else():
    occupied = torch.zeros(1, *GRID.shape, dtype=torch.bool)
    occupied[0, 6, 4, 2] = True  # x in [4, 6), y in [0, 1), z in [0, 1)
    samples = sample_rays(one_ray((0.0, 0.5, 0.5), (1, 0, 0)), GRID, step_m=0.5, max_samples=99, occupied=occupied)
    assert samples.depths_m.tolist() == [4.25, 4.75, 5.25, 5.75]
    assert samples.slots.tolist() == [0, 1, 2, 3]
    along_y = sample_rays(one_ray((5.0, -3.5, 0.5), (0, 1, 0)), GRID, step_m=0.5, max_samples=99, occupied=occupied)
    assert along_y.depths_m.tolist() == [3.75, 4.25]  # y from 0 to 1
    swapped = sample_rays(one_ray((0.5, 0.0, 0.5), (0, 1, 0)), GRID, step_m=0.5, max_samples=99, occupied=occupied)
    assert len(swapped) == 0


def test_without_a_mask_the_whole_ray_in_the_box_is_sampled():
    samples = sample_rays(one_ray((-20.0, 1.5, 0.5), (1, 0, 0)), GRID, step_m=1.0, max_samples=99)
    assert samples.depths_m.tolist() == [12.5 + i for i in range(16)]
    assert len(sample_rays(one_ray((-20.0, 9.0, 0.5), (1, 0, 0)), GRID, step_m=1.0, max_samples=99)) == 0
    assert len(sample_rays(one_ray((20.0, 1.0, 0.5), (1, 0, 0)), GRID, step_m=1.0, max_samples=99)) == 0


def test_skipping_is_the_dense_lattice_less_the_empty_cells():
    """The law that skipping rests on: it moves no sample."""
    rays, offsets = some_rays(400, scenes=2), torch.rand(400, generator=torch.Generator().manual_seed(1))
    occupied = torch.rand(2, *GRID.shape, generator=torch.Generator().manual_seed(2)) < 0.3
    dense = sample_rays(rays, GRID, step_m=0.13, max_samples=9999, offsets=offsets)
    points = (rays.origins[dense.rays] + rays.directions[dense.rays] * dense.depths_m[:, None]).numpy()
    cell = np.clip(GRID.index_of(points), 0, np.array(GRID.shape) - 1)
    inside = occupied[rays.scenes[dense.rays], cell[:, 0], cell[:, 1], cell[:, 2]]
    skipped = sample_rays(rays, GRID, step_m=0.13, max_samples=9999, offsets=offsets, occupied=occupied)
    expected = set(zip(dense.rays[inside].tolist(), dense.depths_m[inside].tolist(), strict=True))
    found = set(zip(skipped.rays.tolist(), skipped.depths_m.tolist(), strict=True))
    assert len(found) == len(skipped)
    assert len(expected ^ found) <= 2  # a sample on a cell's face may fall to either side
    assert 0.15 < len(found) / len(dense) < 0.45


def test_walking_and_looking_up_agree():
    rays, offsets = some_rays(300, seed=5), torch.rand(300, generator=torch.Generator().manual_seed(3))
    occupied = torch.rand(1, *GRID.shape, generator=torch.Generator().manual_seed(4)) < 0.4
    for cap in (9999, 7):
        walked = walk_rays(rays, GRID, occupied, offsets, 0.11, cap)
        looked_up = look_up_rays(rays, GRID, occupied, offsets, 0.11, cap)
        same = walked[0] == looked_up[0]
        assert float(same.float().mean()) > 0.99
        torch.testing.assert_close(walked[0].sum(), looked_up[0].sum(), rtol=0, atol=4)


@pytest.mark.parametrize("cap", [1, 2, 5, 16])
def test_a_capped_ray_keeps_evenly_spread_samples(cap):
    samples = sample_rays(one_ray((-8.0, 0.5, 0.5), (1, 0, 0)), GRID, step_m=1.0, max_samples=cap)
    assert 1 <= len(samples) <= cap
    gaps = np.diff(samples.depths_m.numpy())
    assert len(set(gaps.tolist())) <= 1
    assert samples.depths_m.min() < 16 / max(1, len(samples))


def test_spans_agree_with_the_slab_test_of_geometry():
    rays = some_rays(200, seed=9)
    rays.directions[:3] = torch.eye(3)  # parallel to faces
    entry, leave = rays.span(GRID)
    truth = intersect_box(Rays(rays.origins.double().numpy(), rays.directions.double().numpy()), GRID.box)
    hits = torch.from_numpy(truth.hits)
    assert torch.equal(leave >= entry, hits)
    np.testing.assert_allclose(entry[hits].numpy(), truth.entry[truth.hits], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(leave[hits].numpy(), truth.exit[truth.hits], rtol=1e-4, atol=1e-4)


def test_no_rays_and_bad_arguments():
    assert len(sample_rays(some_rays(0), GRID, step_m=0.1, max_samples=4)) == 0
    with pytest.raises(UsageError, match="step_m"):
        sample_rays(some_rays(1), GRID, step_m=0.0, max_samples=4)
    with pytest.raises(UsageError, match="occupied"):
        sample_rays(some_rays(1), GRID, step_m=1.0, max_samples=4, occupied=torch.ones(1, 8, 4, 8, dtype=torch.bool))

"""Rays through voxels of constant density: depths computed by hand, both implementations, gradients."""

from __future__ import annotations

import math

import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.geometry import VoxelGrid
from copilot4d.rendering import RayBatch
from copilot4d.rendering.voxel_depth import sorted_voxel_depths, voxel_depths

EMPTY, SOLID = -60.0, 1e4  # logits: density 0, and 1e4 per cell
GRID = VoxelGrid(minimum=(-2.0, -3.0, -1.0), cell_size=(0.5, 0.5, 0.25), shape=(8, 12, 8))
BOTH = pytest.mark.parametrize("render", [voxel_depths, sorted_voxel_depths])


def logits_of(value: float = EMPTY, *, scenes: int = 1, steps: int = 1, fold: int = 2) -> torch.Tensor:
    x, y, z = GRID.shape
    return torch.full((scenes, x // fold, y // fold, fold, fold, steps, z), value)


def put(logits: torch.Tensor, scene: int, step: int, cell: tuple[int, int, int], value: float) -> None:
    x, y, z = cell
    fold = logits.shape[3]
    logits[scene, x // fold, y // fold, x % fold, y % fold, step, z] = value


def rays_of(*rows: tuple[float, ...], scenes: list[int] | None = None) -> RayBatch:
    table = torch.tensor(rows)
    directions = table[:, 3:] / table[:, 3:].norm(dim=-1, keepdim=True)
    return RayBatch(
        origins=table[:, :3].contiguous(),
        directions=directions,
        scenes=torch.tensor(scenes or [0] * len(rows)),
    )


def first(rays: RayBatch) -> torch.Tensor:
    return torch.zeros(len(rays), dtype=torch.int64)


def logit_for(density_per_cell: float) -> float:
    return math.log(math.expm1(density_per_cell))


@BOTH
def test_a_solid_voxel_stops_a_ray_at_its_face_and_an_empty_grid_at_its_exit(render):
    logits = logits_of()
    put(logits, 0, 0, (6, 7, 5), SOLID)  # x in [1, 1.5), y in [0.5, 1), z in [0.25, 0.5)
    rays = rays_of(
        (-1.5, 0.7, 0.3, 1, 0, 0),  # hits its near face x = 1
        (-1.5, 0.7, 0.6, 1, 0, 0),  # passes above it, leaves at x = 2
        (1.2, 2.5, 0.3, 0, -1, 0),  # from the other side: y = 1
        (1.2, 0.7, 0.9, 0, 0, -1),  # from above: z = 0.5
        (-4.0, 0.7, 0.3, 1, 0, 0),  # starts outside the grid
        (0.0, 0.0, 5.0, 0, 0, 1),  # never meets the grid
    )
    seen = render(logits, rays, first(rays), GRID)
    torch.testing.assert_close(seen.expected_m[:5], torch.tensor([2.5, 3.5, 1.5, 0.4, 5.0]), atol=1e-3, rtol=0)
    torch.testing.assert_close(seen.median_m[:5], torch.tensor([2.5, torch.inf, 1.5, 0.4, 5.0]), atol=1e-3, rtol=0)
    torch.testing.assert_close(seen.opacity, torch.tensor([1.0, 0, 1, 1, 1, 0]), atol=1e-6, rtol=0)
    assert seen.expected_m[5].isfinite()


@BOTH
def test_depths_through_fog_and_a_half_transparent_voxel_are_those_computed_by_hand(render):
    fog = 0.4  # per cell of 0.5 m: 0.8 per metre
    rays = rays_of((-2.0, 0.2, 0.1, 1, 0, 0))
    seen = render(logits_of(logit_for(fog)), rays, first(rays), GRID)
    assert seen.expected_m.item() == pytest.approx((1 - math.exp(-0.8 * 4)) / 0.8, rel=1e-5)
    assert seen.median_m.item() == pytest.approx(-math.log(1 - (1 - math.exp(-3.2)) / 2) / 0.8, rel=1e-5)
    assert seen.opacity.item() == pytest.approx(1 - math.exp(-3.2), rel=1e-5)

    logits = logits_of()
    put(logits, 0, 0, (4, 6, 4), logit_for(0.5))  # x in [0, 0.5): a ray passes with probability e^-0.5
    put(logits, 0, 0, (7, 6, 4), SOLID)  # x = 1.5
    inside = 0.5 * (1 - math.exp(-0.5)) / 0.5
    seen = render(logits, rays, first(rays), GRID)
    assert seen.expected_m.item() == pytest.approx(2 + inside + 1.0 * math.exp(-0.5), abs=1e-3)
    assert seen.median_m.item() == pytest.approx(3.5, abs=1e-3)


@BOTH
def test_the_median_is_that_of_what_is_stopped_even_where_most_of_a_ray_passes(render):
    logits = logits_of()
    put(logits, 0, 0, (4, 6, 4), logit_for(0.02))  # x in [0, 0.5) stops 2%
    put(logits, 0, 0, (6, 6, 4), logit_for(0.06))  # x in [1, 1.5) stops three times as much
    rays = rays_of((-2.0, 0.2, 0.1, 1, 0, 0))
    seen = render(logits, rays, first(rays), GRID)
    half = -math.log(1 - (1 - math.exp(-0.08)) / 2)
    assert seen.median_m.item() == pytest.approx(3.0 + (half - 0.02) / 0.06 * 0.5, abs=1e-3)


@BOTH
def test_a_slanted_ray_counts_the_length_of_its_way_through_a_voxel(render):
    logits = logits_of()
    put(logits, 0, 0, (4, 6, 4), logit_for(0.7))  # x in [0, 0.5), y in [0, 0.5), z in [0, 0.25)
    rays = rays_of((-0.25, -0.5, 0.1, 1, 2, 0))  # enters at (0, 0), leaves at (0.25, 0.5): 0.559 m inside
    opacity = render(logits, rays, first(rays), GRID).opacity.item()
    assert opacity == pytest.approx(1 - math.exp(-0.7 / 0.5 * math.hypot(0.25, 0.5)), rel=1e-4)


@BOTH
def test_rays_look_into_their_own_scene_and_step(render):
    logits = logits_of(scenes=2, steps=3)
    put(logits, 1, 2, (6, 7, 5), SOLID)
    rays = rays_of(*[(-1.5, 0.7, 0.3, 1, 0, 0)] * 4, scenes=[0, 1, 1, 1])
    seen = render(logits, rays, torch.tensor([2, 0, 1, 2]), GRID)
    torch.testing.assert_close(seen.expected_m, torch.tensor([3.5, 3.5, 3.5, 2.5]), atol=1e-3, rtol=0)


def random_rays(count: int) -> RayBatch:
    generator = torch.Generator().manual_seed(1)
    origins = torch.randn(count, 3, generator=generator) * torch.tensor([1.0, 1.5, 0.5])
    directions = torch.nn.functional.normalize(torch.randn(count, 3, generator=generator), dim=-1)
    return RayBatch(
        origins=origins, directions=directions, scenes=torch.randint(0, 2, (count,), generator=generator)
    )  # fmt: skip


@pytest.mark.parametrize("fold", [1, 2, 4])
def test_walking_and_sorting_give_the_same_depths_and_gradients(fold):
    rays, generator = random_rays(300), torch.Generator().manual_seed(2)
    steps = torch.randint(0, 3, (300,), generator=generator)
    values = 2 * torch.randn(logits_of(scenes=2, steps=3, fold=fold).shape, generator=generator) - 1
    weights = torch.randn(300, generator=generator)
    found = []
    for render in (voxel_depths, sorted_voxel_depths):
        logits = values.clone().requires_grad_()
        seen = render(logits, rays, steps, GRID)
        (seen.expected_m * weights).sum().backward()
        found.append((*seen, logits.grad))
    for walked, sorted_ in zip(*found, strict=True):
        torch.testing.assert_close(walked, sorted_, atol=2e-4, rtol=1e-3)


def test_the_gradient_is_that_of_finite_differences():
    rays, generator = random_rays(12), torch.Generator().manual_seed(3)
    rays = RayBatch(origins=rays.origins.double(), directions=rays.directions.double(), scenes=rays.scenes)
    steps = torch.zeros(12, dtype=torch.int64)
    values = torch.randn(logits_of(scenes=2).shape, generator=generator, dtype=torch.float64) - 1
    logits = values.clone().requires_grad_()
    sorted_voxel_depths(logits, rays, steps, GRID).expected_m.sum().backward()
    asked = logits.grad.flatten().abs().topk(10).indices  # a voxel that no ray crosses has gradient 0 on both sides
    for i in asked.tolist():
        ends = []
        for sign in (1, -1):
            moved = values.clone().flatten()
            moved[i] += sign * 1e-5
            ends.append(sorted_voxel_depths(moved.view_as(values), rays, steps, GRID).expected_m.sum())
        assert logits.grad.flatten()[i].item() == pytest.approx(((ends[0] - ends[1]) / 2e-5).item(), rel=1e-5)


@BOTH
def test_the_rays_of_a_batch_may_be_none(render):
    rays = RayBatch(origins=torch.zeros(0, 3), directions=torch.zeros(0, 3), scenes=torch.zeros(0, dtype=torch.int64))
    seen = render(logits_of(), rays, first(rays), GRID)
    assert [len(v) for v in seen] == [0, 0, 0]


def test_logits_of_another_grid_and_missing_steps_are_refused():
    rays = random_rays(3)
    with pytest.raises(UsageError, match="of a grid"):
        voxel_depths(torch.zeros(1, 4, 6, 2, 2, 1, 9), rays, first(rays), GRID)
    with pytest.raises(UsageError, match="step of time"):
        voxel_depths(logits_of(), rays, torch.zeros(2, dtype=torch.int64), GRID)


@pytest.mark.parametrize("threads", [1, 2])
def test_without_gradients_rays_see_the_same_to_the_last_bit(threads):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(logits_of(steps=3, scenes=2).shape, generator=generator) - 3
    count = 5000  # more than one part, and enough for two threads
    directions = torch.randn(count, 3, generator=generator)
    rays = RayBatch(
        origins=3 * torch.randn(count, 3, generator=generator),
        directions=directions / directions.norm(dim=1, keepdim=True),
        scenes=torch.arange(count) % 2,
    )
    steps = torch.arange(count) % 3
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        seen = voxel_depths(logits, rays, steps, GRID)
    finally:
        torch.set_num_threads(before)
    with_gradients = voxel_depths(logits.requires_grad_(), rays, steps, GRID)
    assert with_gradients.expected_m.requires_grad
    for value, other in zip(seen, with_gradients, strict=True):
        assert torch.equal(value, other)
    assert 0.1 < (seen.opacity > 0.5).float().mean() < 0.9

"""Rendering in one compiled pass gives what plain PyTorch gives; in float64, since fp32 is less exact than the pass."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch

from copilot4d import load_forecaster, open_dataset
from copilot4d.geometry import Rays, VoxelGrid
from copilot4d.presets import tiny
from copilot4d.rendering import RayBatch, composite, median_depth, pad_samples, sample_rays, weights_from_logits
from copilot4d.rendering.one_pass import columns_under
from copilot4d.simulator.benchmark import street_v1_drive
from copilot4d.tokenizer import renderer
from tests.support.real_data import real_data
from tests.tokenizer.clouds import tiny_tokenizer
from tests.tokenizer.oracle import oracle_tokenizer, scene_with

KINDS = ("sum", "normalised", "median")
STEP_M, MANY = 0.1, 4096


def exact(grid, features, rays, mask_grid, mask, kind, max_samples=MANY):
    """Depth, opacity and number of samples by PyTorch in float64."""
    samples = sample_rays(rays, mask_grid, step_m=STEP_M, max_samples=max_samples, occupied=mask)
    depths = samples.depths_m.double()
    points = rays.origins.double()[samples.rays] + rays.directions.double()[samples.rays] * depths[:, None]
    with torch.no_grad():
        logits = copy.deepcopy(grid).double()(features.double(), points, rays.scenes[samples.rays])
    weights, depths = weights_from_logits(pad_samples(logits, samples, -torch.inf)), pad_samples(depths, samples, 0.0)
    seen = composite(weights, depths)
    depth = {"sum": seen.depth_m, "normalised": seen.depth_m / seen.opacity.clamp(min=torch.finfo(torch.float32).eps)}
    depth_m = depth[kind] if kind in depth else median_depth(weights, depths, STEP_M)
    return depth_m, seen.opacity, len(samples)


def assert_same(tokenizer, scene, rays, mask, kind, max_samples=MANY):
    """The one pass is right to 0.1 mm, and near the fp32 path, whose own medians are wrong by centimetres where the
    sums before and behind a gap are equal to the last digits.
    """
    arguments = (tokenizer.feature_grid, scene.features, rays)
    sampling = renderer.Sampling(grid=tokenizer.mask_grid, mask=mask, step_m=STEP_M, max_samples=max_samples)
    seen, count = renderer.render_in_one_pass(*arguments, sampling, kind)
    in_parts, its_count = renderer.render_in_parts(*arguments, sampling, kind)
    depth_m, opacity, true_count = exact(*arguments, tokenizer.mask_grid, mask, kind, max_samples)
    assert count == its_count == true_count
    torch.testing.assert_close(seen.depth_m.double(), depth_m, rtol=0, atol=1e-4)
    torch.testing.assert_close(seen.opacity.double(), opacity, rtol=0, atol=1e-4)
    assert not len(rays) or ((seen.depth_m - in_parts.depth_m).abs() < 1e-3).double().mean() > 0.99
    torch.testing.assert_close(seen.opacity, in_parts.opacity, rtol=0, atol=1e-4)
    return seen


def random_rays(count, origin=(0.3, -0.2, 0.1), seed=0) -> Rays:
    directions = np.random.default_rng(seed).normal(size=(count, 3)) * (1, 1, 0.15)
    return Rays.from_origin(np.array(origin), directions / np.linalg.norm(directions, axis=-1, keepdims=True))


def random_scene(tokenizer, seed=0, count=600):
    cells = np.random.default_rng(seed).integers((0, 0, 0), tokenizer.feature_grid.grid.shape, size=(count, 3))
    return scene_with(tokenizer, cells.tolist())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("skipping", [True, False])
def test_scenes_made_by_hand(kind, skipping):
    tokenizer = oracle_tokenizer()
    scene = random_scene(tokenizer)
    mask = tokenizer.skipping_mask(scene, None) if skipping else None
    seen = assert_same(tokenizer, scene, RayBatch.of([random_rays(700)]), mask, kind)
    assert 0.1 < (seen.opacity > 0.5).float().mean() < 0.9


@pytest.fixture(scope="module")
def street():
    """A simulated sweep as the shipped tokenizer decodes it, and some of the sweep's rays."""
    tokenizer = load_forecaster("mini").tokenizer
    sweep = street_v1_drive("val", 0)[10]
    rays, _ = sweep.rays()
    return tokenizer, tokenizer.decode(tokenizer.encode([sweep])), RayBatch.of([rays[np.arange(0, len(rays), 29)]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("skipping", [True, False])
def test_a_street(street, kind, skipping):
    tokenizer, scene, rays = street
    assert len(rays) > 500
    assert_same(tokenizer, scene, rays, tokenizer.skipping_mask(scene, None) if skipping else None, kind)


def test_a_real_street():
    """A sweep of KITTI in the shipped tokenizer: with the mask that a forecast samples in."""
    sweep = open_dataset(real_data("fixtures", "kitti_odometry"))["00"][0]
    tokenizer = load_forecaster("mini").tokenizer
    scene = tokenizer.decode(tokenizer.encode([sweep]))
    rays, _ = sweep.rays()
    seen = assert_same(
        tokenizer, scene, RayBatch.of([rays[np.arange(0, len(rays), 97)]]), tokenizer.skipping_mask(scene, 0), "median"
    )
    assert (seen.opacity > 0.5).float().mean() > 0.3


@pytest.mark.parametrize("kind", KINDS)
def test_rays_along_axes_on_edges_and_outside(kind):
    tokenizer = oracle_tokenizer()
    scene = random_scene(tokenizer, count=3000)
    low, high = np.array(tokenizer.mask_grid.minimum), np.array(tokenizer.mask_grid.maximum)
    middle = (low + high) / 2
    axes = np.concatenate([np.eye(3), -np.eye(3)])
    starts = [
        middle, middle + 0.013, low, high, low + 1e-6, high - 1e-6, np.array([low[0], middle[1], middle[2]]),
        low + np.array(tokenizer.mask_grid.cell_size), low - 3.0, high + 3.0, np.array([low[0] - 5, 0.03, 0.02]),
        np.array([0.03, high[1] + 5, 0.02]),
    ]  # fmt: skip
    diagonal = np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0], [-1.0, 1.0, 1.0]])
    directions = np.concatenate([axes, diagonal / np.linalg.norm(diagonal, axis=1, keepdims=True)])
    rays = Rays(np.repeat(starts, len(directions), axis=0), np.tile(directions, (len(starts), 1)))
    for mask in (None, tokenizer.skipping_mask(scene, None)):
        seen = assert_same(tokenizer, scene, RayBatch.of([rays]), mask, kind)
        assert (seen.opacity > 0.5).any()
        assert (seen.opacity == 0).any()


@pytest.mark.parametrize("max_samples", [1, 2, 7, 40])
def test_thinned_samples_are_those_of_the_other_path(max_samples):
    tokenizer = tiny_tokenizer()
    scene = tokenizer.decode(torch.randint(0, 32, (1, 16, 16), generator=torch.Generator().manual_seed(0)))
    for mask in (None, tokenizer.skipping_mask(scene, None)):
        assert_same(tokenizer, scene, RayBatch.of([random_rays(300)]), mask, "normalised", max_samples)


def test_rays_of_several_scenes_in_any_order():
    tokenizer = oracle_tokenizer()
    scenes = [random_scene(tokenizer, seed) for seed in range(3)]
    both = dataclasses.replace(
        scenes[0], features=torch.cat([s.features for s in scenes]),
        coarse_logits=torch.cat([s.coarse_logits for s in scenes]),
    )  # fmt: skip
    rays = RayBatch.of([random_rays(200, seed=1), random_rays(0), random_rays(100, seed=2)])
    mixed = rays[torch.randperm(len(rays), generator=torch.Generator().manual_seed(0))]
    assert_same(tokenizer, both, mixed, tokenizer.skipping_mask(both, None), "median")
    assert len(assert_same(tokenizer, both, rays[:0], None, "median").depth_m) == 0


def test_a_grid_of_one_level():
    config = tiny().tokenizer
    config = dataclasses.replace(config, feature_grid=dataclasses.replace(config.feature_grid, levels=1))
    tokenizer = tiny_tokenizer(config)
    scene = tokenizer.decode(torch.randint(0, 32, (1, 16, 16), generator=torch.Generator().manual_seed(0)))
    assert_same(tokenizer, scene, RayBatch.of([random_rays(100)]), None, "sum")


@torch.no_grad()
def test_threads_change_no_bit(street):
    tokenizer, scene, rays = street
    rays = RayBatch(
        origins=rays.origins.repeat(4, 1), directions=rays.directions.repeat(4, 1), scenes=rays.scenes.repeat(4)
    )
    hidden = tokenizer.feature_grid.hidden_grid(scene.features)
    threads, seen = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            seen.append(
                renderer.one_pass.render(
                    hidden, rays, tokenizer.mask_grid, step_m=STEP_M, max_samples=MANY, mask=None, kind=2
                )
            )
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(seen[0].depth_m, seen[1].depth_m)
    assert torch.equal(seen[0].opacity, seen[1].opacity)


def test_the_columns_of_a_mask_are_those_that_its_samples_interpolate():
    mask_grid = VoxelGrid.from_bounds((-4, -2, -1), (4, 2, 1), (8, 4, 2))  # cells of 1 m
    grid = VoxelGrid.from_bounds((-4, -2, -1), (4, 2, 1), (16, 8, 4))  # cells of 0.5 m
    mask = torch.zeros(mask_grid.shape, dtype=torch.bool)
    mask[2, 0, 1] = True  # x from -2 to -1, y from -2 to -1: between centres -2.25 and -0.75, -1.75 and -0.75
    used = columns_under(mask, mask_grid, grid).view(16, 8)
    assert used.nonzero().tolist() == [[x, y] for x in (3, 4, 5, 6) for y in (0, 1, 2)]

"""Whole renderings of scenes made by hand, through the public door."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.geometry import BeamPattern, Rays
from copilot4d.presets import tiny
from copilot4d.rendering import BEYOND_EXIT_M
from copilot4d.tokenizer import Scene, generate_points, voxel_centres
from copilot4d.tokenizer.skipping import to_grid
from tests.tokenizer.clouds import tiny_tokenizer
from tests.tokenizer.oracle import oracle_tokenizer, scene_with


def ray_to(target, origin=(0.0, 0.0, 0.0)) -> Rays:
    offset = np.asarray(target, dtype=np.float64) - origin
    return Rays(np.array([origin]), (offset / np.linalg.norm(offset))[None])


@pytest.mark.parametrize("cell", [(50, 13, 3), (5, 44, 9), (33, 60, 6)])
def test_an_object_at_x_y_z_is_rendered_at_x_y_z(cell):
    tokenizer = oracle_tokenizer()
    scene = scene_with(tokenizer, [cell])
    size = np.array(tokenizer.feature_grid.grid.cell_size)
    centre = tokenizer.feature_grid.grid.centre_of(np.array(cell))
    for origin in ((0.0, 0.0, 0.0), (-7.0, 3.0, 1.5)):
        seen = tokenizer.render(scene, [ray_to(centre, origin)])
        assert bool(seen.returned[0])
        # the surface is met where interpolation reaches 1/2, half a cell before the centre or less
        assert (np.abs(seen.points[0].numpy() - centre) <= size).all()
        assert np.linalg.norm(seen.points[0].numpy() - centre) < 0.75 * size.max()
        assert seen.opacity[0] > 0.99
    swapped = centre[[1, 0, 2]]
    assert not bool(tokenizer.render(scene, [ray_to(swapped)]).returned[0])


def test_skipping_and_dense_sampling_give_the_same_depth():
    tokenizer = oracle_tokenizer()
    rng = np.random.default_rng(0)
    cells = rng.integers((0, 0, 0), tokenizer.feature_grid.grid.shape, size=(600, 3))
    scene = scene_with(tokenizer, cells.tolist())
    directions = rng.normal(size=(500, 3)) * (1, 1, 0.15)
    rays = Rays.from_origin(np.array([0.3, -0.2, 0.1]), directions / np.linalg.norm(directions, axis=-1, keepdims=True))
    skipped = tokenizer.render(scene, [rays])
    dense = tokenizer.render(scene, [rays], skipping=False)
    assert 0.1 < skipped.returned.float().mean() < 0.9
    assert torch.equal(skipped.returned, dense.returned)
    torch.testing.assert_close(skipped.depth_m, dense.depth_m, rtol=0, atol=2e-3)
    torch.testing.assert_close(skipped.opacity, dense.opacity, rtol=0, atol=1e-3)
    assert skipped.samples < 0.6 * dense.samples


def test_the_nearer_of_two_objects_hides_the_further():
    tokenizer = oracle_tokenizer()
    grid = tokenizer.feature_grid.grid
    near, far = (44, 32, 6), (56, 32, 6)
    ray = ray_to(grid.centre_of(np.array(near)), (0.0, grid.centre_of(np.array(near))[1], grid.centre_of(np.array(near))[2]))  # fmt: skip # noqa: E501
    both = tokenizer.render(scene_with(tokenizer, [near, far]), [ray]).depth_m
    torch.testing.assert_close(both, tokenizer.render(scene_with(tokenizer, [near]), [ray]).depth_m)
    assert tokenizer.render(scene_with(tokenizer, [far]), [ray]).depth_m[0] > both[0] + 5


def test_a_ray_that_sees_nothing_answers_just_behind_the_exit():
    tokenizer = oracle_tokenizer()
    seen = tokenizer.render(scene_with(tokenizer, []), [ray_to((1.0, 0.0, 0.0))])
    assert seen.opacity.tolist() == [0.0]
    assert not bool(seen.returned[0])
    assert seen.answered_m[0] == pytest.approx(16 + BEYOND_EXIT_M)
    assert seen.samples == 0


@pytest.mark.parametrize(("kind", "is_answered"), [("sum", False), ("normalised", True), ("median", True)])
def test_a_ray_that_may_have_been_stopped_is_answered_there_by_depths_that_presume_it(kind, is_answered):
    """It is no return of its own, but one that is asked about came back: from there rather than from the exit."""
    tokenizer = oracle_tokenizer()
    rendering = dataclasses.replace(tokenizer.config.rendering, depth=kind)
    tokenizer.config = dataclasses.replace(tokenizer.config, rendering=rendering)
    cell, grid = (50, 33, 6), tokenizer.feature_grid.grid
    centre, scene = grid.centre_of(np.array(cell)), scene_with(tokenizer, [cell])
    beside = [centre + np.array([0, share * grid.cell_size[1], 0]) for share in np.linspace(0.3, 1.2, 91)]
    grazing = [tokenizer.render(scene, [ray_to(place)]) for place in beside]
    seen = next(one for one in grazing if 0.02 < one.opacity[0] < 0.4)
    assert not bool(seen.returned[0])
    expected = seen.depth_m[0] if is_answered else seen.exit_m[0] + BEYOND_EXIT_M
    assert seen.answered_m[0] == expected
    assert bool(seen.answered_m[0] < np.linalg.norm(centre) + 1) == is_answered


def test_a_given_mask_restricts_the_samples():
    tokenizer = oracle_tokenizer()
    scene = scene_with(tokenizer, [(50, 33, 6)])
    grid = tokenizer.feature_grid.grid
    centre = grid.centre_of(np.array((50, 33, 6)))
    ray = ray_to(centre, (0.0, centre[1], centre[2]))
    nowhere = torch.zeros(1, *tokenizer.mask_grid.shape, dtype=torch.bool)
    assert tokenizer.render(scene, [ray], mask=nowhere).samples == 0
    nowhere[(0, *tokenizer.mask_grid.index_of(centre))] = True
    assert tokenizer.render(scene, [ray], mask=nowhere).depth_m[0] == pytest.approx(centre[0] - 0.2, abs=0.15)


def test_rays_of_several_scenes_see_their_own():
    tokenizer = oracle_tokenizer()
    a, b = scene_with(tokenizer, [(50, 32, 6)]), scene_with(tokenizer, [(40, 32, 6)])
    both = Scene(
        features=torch.cat([a.features, b.features]), coarse_logits=torch.cat([a.coarse_logits, b.coarse_logits])
    )
    ray = ray_to((10.0, 0.25, 0.25), (0.0, 0.25, 0.25))
    depths = tokenizer.render(both, [ray, ray]).depth_m
    torch.testing.assert_close(depths[0], tokenizer.render(a, [ray]).depth_m[0])
    torch.testing.assert_close(depths[1], tokenizer.render(b, [ray]).depth_m[0])
    with pytest.raises(UsageError, match="one Rays per scene"):
        tokenizer.render(both, [ray])


def test_normalised_depth_divides_by_the_opacity():
    config = tiny().tokenizer
    config = dataclasses.replace(config, rendering=dataclasses.replace(config.rendering, depth="normalised"))
    summed, normalised = tiny_tokenizer(), tiny_tokenizer(config)
    torch.manual_seed(0)
    scene = summed.decode(torch.randint(0, 32, (1, 16, 16)))
    ray = ray_to((3.0, 2.0, 0.1))
    a, b = (t.render(scene, [ray], skipping=False) for t in (summed, normalised))
    torch.testing.assert_close(b.depth_m, a.depth_m / a.opacity)


def test_generation_drops_beams_without_return_or_beyond_reach():
    tokenizer = oracle_tokenizer()
    grid = tokenizer.feature_grid.grid
    cells = [(50, 33, 6), (33, 50, 6)]
    centres = grid.centre_of(np.array(cells))
    away = np.array([[-1.0, 0, 0]])
    directions = np.concatenate([centres / np.linalg.norm(centres, axis=-1, keepdims=True), away])
    (cloud,) = generate_points(tokenizer, scene_with(tokenizer, cells), BeamPattern(directions, 80.0))
    assert cloud.beams.tolist() == [0, 1]
    assert np.abs(cloud.points - centres).max() < 0.5
    assert (cloud.opacity > 0.9).all()
    (near,) = generate_points(tokenizer, scene_with(tokenizer, cells), BeamPattern(directions, 5.0))
    assert len(near.points) == 0


def test_voxel_centres_are_the_centres_of_predicted_voxels():
    config = dataclasses.replace(tiny().tokenizer, mode="voxel_centres")
    tokenizer = tiny_tokenizer(config)
    assert tokenizer.feature_grid is None
    scene = tokenizer.decode(torch.zeros(1, 16, 16, dtype=torch.int64))
    logits = torch.full_like(scene.coarse_logits, -20.0)
    logits[0, 3, 30, 2, 1, 7] = 20.0  # voxel (14, 121, 7)
    by_hand = Scene(features=scene.features, coarse_logits=logits)
    assert to_grid(logits).argmax() == np.ravel_multi_index((14, 121, 7), config.grid.shape)
    (cloud,) = voxel_centres(tokenizer, by_hand)
    np.testing.assert_allclose(cloud.points, config.grid.centre_of(np.array([[14, 121, 7]])), rtol=1e-6)
    (generated,) = generate_points(tokenizer, by_hand, BeamPattern(np.array([[1.0, 0, 0]]), 50.0))
    np.testing.assert_allclose(generated.points, cloud.points)
    with pytest.raises(UsageError, match="voxel_centres"):
        tokenizer.render(by_hand, [ray_to((1.0, 0, 0))])


def test_without_a_coarse_branch_every_ray_is_sampled_whole():
    tokenizer = tiny_tokenizer(dataclasses.replace(tiny().tokenizer, mode="no_skipping"))
    assert tokenizer.coarse_branch is None
    scene = tokenizer.decode(torch.zeros(1, 16, 16, dtype=torch.int64))
    seen = tokenizer.render(scene, [ray_to((1.0, 0, 0))])
    assert seen.samples == 16 / tokenizer.config.rendering.step_m
    with pytest.raises(UsageError, match="no coarse branch"):
        tokenizer.skipping_mask(scene)
    with pytest.raises(UsageError, match="no coarse branch"):
        voxel_centres(tokenizer, scene)


def test_rays_that_never_enter_the_region_have_no_answer():
    tokenizer = tiny_tokenizer()
    scene = tokenizer.decode(torch.zeros(1, 16, 16, dtype=torch.int64))
    outside = np.array([[100.0, 0.0, 0.0], [100.0, 0.0, 0.0], [0.0, 0.0, 50.0]])
    rays = Rays(outside, np.array([[1.0, 0, 0], [-1.0, 0, 0], [1.0, 0, 0]]))
    seen = tokenizer.render(scene, [rays])
    assert seen.missed.tolist() == [True, False, True]
    assert not seen.answered[seen.missed].any()
    assert not seen.returned[seen.missed].any()
    assert seen.exit_m.tolist() == pytest.approx([0.0, 116.0, 0.0])
    assert (seen.answered_m[seen.missed] < 0.1).all()

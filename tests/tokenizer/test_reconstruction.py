"""A sweep through the tokenizer and back: which points have rays, and how well the mask of cells covers them."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional

from copilot4d.presets import tiny
from copilot4d.tokenizer.reconstruction import clean_sweep, reconstruct
from copilot4d.tokenizer.skipping import true_mask
from copilot4d.tokenizer.voxels import PointBatch, voxelise
from tests.tokenizer.clouds import random_sweep, sweep_of, tiny_tokenizer

TINY = tiny().tokenizer


def test_points_without_a_ray_are_left_out():
    sweep = sweep_of([(1, 2, 0.5), (0, 0, 0.001), (-3, 0, 0)])
    assert clean_sweep(sweep).points.tolist() == [[1, 2, 0.5], [-3, 0, 0]]
    made = reconstruct(tiny_tokenizer(), sweep)
    assert made.points.shape == made.truth.points.shape == (2, 3)
    assert made.tokens.shape == (16, 16)


@pytest.mark.parametrize("expected_everywhere", [True, False])
def test_recall_and_precision_of_the_mask(expected_everywhere):
    """Looking everywhere finds every cell that holds points, and most cells hold none; looking nowhere finds none."""
    tokenizer = tiny_tokenizer()
    with torch.no_grad():
        tokenizer.coarse_branch.linear.weight.zero_()
        tokenizer.coarse_branch.linear.bias.fill_(30.0 if expected_everywhere else -30.0)
    sweep = random_sweep(300, grid=TINY.grid, beyond=0.9)
    made = reconstruct(tokenizer, sweep)
    held = true_mask(voxelise(PointBatch.of([sweep]), TINY.grid), TINY.skipping.pool)
    if expected_everywhere:
        assert made.mask_recall == 1.0
        assert made.mask_precision == pytest.approx(float(held.float().mean()))
        assert 0 < made.mask_precision < 0.5
    else:
        assert (made.mask_recall, made.mask_precision, made.samples_per_ray) == (0.0, 0.0, 0.0)


def test_a_ray_returns_only_where_it_is_opaque_enough():
    """A thin fog: with a threshold above its opacity no ray comes back, with one below it every ray does."""
    sweep = random_sweep(200, grid=TINY.grid, beyond=0.9)
    opacity = None
    for threshold, returned in ((0.0, True), (0.2, False)):
        rendering = dataclasses.replace(TINY.rendering, min_opacity=threshold)
        tokenizer = tiny_tokenizer(dataclasses.replace(TINY, mode="no_skipping", rendering=rendering))
        with torch.no_grad():
            tokenizer.feature_grid.occupancy.weight.zero_()
            tokenizer.feature_grid.occupancy.bias.fill_(-7.5)  # about 0.0006 a sample
        seen = tokenizer.render(tokenizer.decode(tokenizer.encode([sweep])), [sweep.rays()[0]])
        opacity = seen.opacity if opacity is None else opacity
        assert torch.equal(seen.opacity, opacity)
        assert 0 < float(opacity.min()) <= float(opacity.max()) < 0.1
        assert bool((seen.returned == returned).all())


def test_the_encoder_ends_with_norm_gelu_and_a_linear_layer():
    tokenizer = tiny_tokenizer()
    seen = {}
    tokenizer.encoder.norm.register_forward_hook(lambda module, given, made: seen.update(normed=made))
    tokenizer.encoder.leave.register_forward_hook(lambda module, given, made: seen.update(given=given[0], made=made))
    features = tokenizer.encode_features([random_sweep(100, grid=TINY.grid)])
    assert torch.equal(seen["given"], functional.gelu(seen["normed"]))
    assert torch.equal(features, seen["made"])

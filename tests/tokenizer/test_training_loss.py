"""One training pass: where its rays look, which of them are supervised, and how its losses add up."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from copilot4d.geometry import Rays
from copilot4d.presets import tiny
from copilot4d.rendering import RayBatch
from copilot4d.tokenizer import PointBatch, TokenizerBatch, training_loss, training_pass
from copilot4d.tokenizer.scene import Scene
from copilot4d.tokenizer.skipping import true_mask
from copilot4d.tokenizer.voxels import voxelise
from tests.tokenizer.clouds import random_sweep, tiny_tokenizer

TINY = tiny().tokenizer


def tokenizer_with(**changes):
    return tiny_tokenizer(dataclasses.replace(TINY, **changes)).train()


SWEEP = random_sweep(400, grid=TINY.grid, beyond=0.9)


def batch_to(targets) -> TokenizerBatch:
    """One sweep, and rays from its origin to the targets."""
    targets = np.asarray(targets, dtype=np.float64)
    depths = np.linalg.norm(targets, axis=-1)
    rays = Rays.from_origin(np.zeros(3), targets / depths[:, None])
    return TokenizerBatch(
        points=PointBatch.of([SWEEP]),
        rays=RayBatch.of([rays]),
        true_depths_m=torch.from_numpy(depths.astype(np.float32)),
    )


def losses_of(tokenizer, batch: TokenizerBatch) -> dict[str, float]:
    return {name: value.item() for name, value in training_pass(tokenizer, batch, offsets=None).losses.items()}


INSIDE, OUTSIDE = [(5.0, 3.0, 0.4), (-7.0, 2.0, -0.5)], [(40.0, 1.0, 0.0), (3.0, -30.0, 1.0)]  # the grid ends at 16 m


@pytest.mark.parametrize("kind", ["true", "union"])
@pytest.mark.parametrize("noise", [True, False])
def test_training_samples_the_true_cells_and_with_union_all_that_inference_samples(kind, noise, monkeypatch):
    tokenizer = tokenizer_with(
        rendering=dataclasses.replace(TINY.rendering, training_mask=kind),
        skipping=dataclasses.replace(TINY.skipping, noise=noise),
    )
    with torch.no_grad():  # some cells without points are expected to have some, and most are not
        tokenizer.coarse_branch.linear.bias[::7] = 3.0
        tokenizer.coarse_branch.linear.bias[1::7] = -0.7  # a probability of 1/3: between the two thresholds
    seen = {}
    inner = training_loss.render_samples

    def spy(grid, features, rays, sampling, offsets=None):
        seen["mask"] = sampling.mask.clone()
        return inner(grid, features, rays, sampling, offsets)

    def logits_seen(features, inner=tokenizer.coarse_branch.forward):
        seen["logits"] = inner(features)
        return seen["logits"]

    monkeypatch.setattr(training_loss, "render_samples", spy)
    monkeypatch.setattr(tokenizer.coarse_branch, "forward", logits_seen)
    batch = batch_to(INSIDE)
    training_pass(tokenizer, batch, offsets=None, noise=torch.Generator().manual_seed(4))
    held = true_mask(voxelise(batch.points, TINY.grid), TINY.skipping.pool)
    scene = Scene(features=torch.zeros(1, 1, 1, 1), coarse_logits=seen["logits"])
    expected = tokenizer.skipping_mask(scene, seed=4)  # what inference samples, with the same noise
    assert 0 < int((expected & ~held).sum()) < held.numel()
    assert torch.equal(seen["mask"], held | expected if kind == "union" else held)


def test_the_total_is_the_sum_of_the_losses_each_with_its_own_weight():
    weights = {"codebook": 2.0, "commitment": 3.0, "depth": 5.0, "concentration": 7.0, "termination": 11.0,
               "occupancy": 13.0}  # fmt: skip
    tokenizer = tokenizer_with(losses=dataclasses.replace(TINY.losses, **weights))
    found = losses_of(tokenizer, batch_to(SWEEP.points[:50]))
    assert set(found) == {"total", *weights}
    assert all(found[name] > 0 for name in weights)
    assert found["total"] == pytest.approx(sum(weight * found[name] for name, weight in weights.items()), rel=1e-5)


def test_rays_that_leave_the_volume_have_no_depth_to_learn_and_must_pass_every_sample():
    tokenizer = tokenizer_with(mode="no_skipping", losses=dataclasses.replace(TINY.losses, termination=1.0))
    leaving = losses_of(tokenizer, batch_to(OUTSIDE))
    assert leaving["depth"] == 0.0
    assert leaving["concentration"] > 0
    assert leaving["termination"] > 0
    both, ending = losses_of(tokenizer, batch_to(INSIDE + OUTSIDE)), losses_of(tokenizer, batch_to(INSIDE))
    assert both["depth"] == pytest.approx(ending["depth"] / 2, rel=1e-5)  # a mean over all four rays

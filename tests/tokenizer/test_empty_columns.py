"""Columns without a point: one reserved code, never learned, free space in the scene."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.geometry import Rays
from copilot4d.presets import tiny
from copilot4d.rendering import RayBatch
from copilot4d.tokenizer import Tokenizer
from copilot4d.tokenizer.codebook import EMPTY_TOKEN, Codebook, CodebookConfig
from copilot4d.tokenizer.training_loss import TokenizerBatch, ends_in, training_pass
from copilot4d.tokenizer.voxels import PointBatch
from tests.tokenizer.clouds import sweep_of

TINY = tiny().tokenizer
CODEBOOK = dataclasses.replace(TINY.codebook, empty_columns="reserved")


def reserving(**changes) -> Tokenizer:
    torch.manual_seed(0)
    return Tokenizer(dataclasses.replace(TINY, codebook=CODEBOOK, **changes))


def book(**changes) -> Codebook:
    torch.manual_seed(0)
    return Codebook(CodebookConfig(**{"codes": 8, "dim": 4, "bank_factor": 4, "empty_columns": "reserved"} | changes))


def test_columns_without_a_point_have_the_reserved_token_and_no_other_column_has():
    tokens = reserving().encode([sweep_of([(5.1, -3.0, 0.0), (-15.9, 15.9, 1.0)])])[0]
    hit = {(10, 6), (0, 15)}  # columns of 2 m, from -16 m on
    for x in range(16):
        for y in range(16):
            assert (int(tokens[x, y]) == EMPTY_TOKEN) == ((x, y) not in hit)


def test_the_reserved_code_is_zero_for_ever_and_out_of_every_loss():
    codes = book()
    features = torch.randn(1, 2, 2, 4, requires_grad=True)
    empty = torch.tensor([[[True, False], [False, True]]])
    out = codes(features, empty)
    assert (out.tokens == EMPTY_TOKEN).tolist() == empty.tolist()
    assert (out.values[empty] == 0).all()
    (out.values.sum() + out.codebook_loss + out.commitment_loss).backward()
    assert (features.grad[empty] == 0).all()
    assert (features.grad[~empty] != 0).any()
    assert (codes.weight.grad[EMPTY_TOKEN] == 0).all()
    gap = (codes.weight[out.tokens] - features)[~empty].detach()
    assert out.codebook_loss.item() == pytest.approx(float(gap.square().sum() / 16), rel=1e-5)  # of all 4 x 4 values


def test_kmeans_leaves_the_reserved_code_alone_and_uses_all_others():
    codes = book(dead_after=1, wait=1)
    rows = torch.arange(32.0)[:, None].expand(-1, 4) % 7 + 1
    counts = torch.zeros(8, dtype=torch.int64)
    counts[EMPTY_TOKEN] = 1000
    report = codes.update(rows, counts, torch.Generator().manual_seed(0))
    assert report.reinitialised
    assert report.used == 0.0  # the reserved code is not one of the learned
    assert (codes.weight[EMPTY_TOKEN] == 0).all()
    assert sorted(codes.weight[1:, 0].tolist()) == pytest.approx([1, 2, 3, 4, 5, 6, 7])


def test_a_codebook_that_reserves_must_be_told_what_is_empty_and_keeps_a_code_to_learn():
    with pytest.raises(UsageError, match="which columns are empty"):
        book().nearest(torch.zeros(1, 4))
    with pytest.raises(UsageError, match="beside the reserved one"):
        CodebookConfig(codes=1, empty_columns="reserved")
    with pytest.raises(UsageError, match="empty_columns is one of learned, reserved"):
        CodebookConfig(empty_columns="none")


@pytest.mark.parametrize("mode", ["full", "no_skipping"])
def test_rays_pass_through_empty_columns_whatever_the_networks_say(mode):
    tokenizer = reserving(mode=mode)
    with torch.no_grad():
        tokenizer.feature_grid.occupancy.bias.fill_(20.0)  # everything is solid
        if tokenizer.coarse_branch is not None:
            tokenizer.coarse_branch.linear.bias.fill_(20.0)
    tokens = torch.zeros(1, 16, 16, dtype=torch.int64)
    tokens[0, 12, 8] = 5  # x from 8 to 10 m, y from 0 to 2 m
    scene = tokenizer.decode(tokens)
    rays = Rays.from_origin(np.array([0.0, 1.0, 0.0]), np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]))
    seen = tokenizer.render(scene, [rays])
    assert seen.answered.tolist() == [True, False]
    assert float(seen.depth_m[0]) == pytest.approx(8.0, abs=2 * TINY.rendering.step_m)


def test_rays_that_end_in_a_column_that_the_encoder_did_not_see_are_left_out():
    tokenizer = reserving()
    own, hidden = (5.0, 3.0, 0.4), (-7.0, 2.0, -0.5)

    def losses(targets):
        targets = np.array(targets)
        depths = np.linalg.norm(targets, axis=-1)
        batch = TokenizerBatch(
            points=PointBatch.of([sweep_of([own])]),
            rays=RayBatch.of([Rays.from_origin(np.zeros(3), targets / depths[:, None])]),
            true_depths_m=torch.from_numpy(depths.astype(np.float32)),
            other=PointBatch.of([sweep_of([hidden])]),
        )
        noise = torch.Generator().manual_seed(1)
        return {n: v.item() for n, v in training_pass(tokenizer, batch, offsets=None, noise=noise).losses.items()}

    assert losses([own, hidden]) == losses([own])


def test_where_rays_end():
    rays = RayBatch.of([Rays.from_origin(np.zeros(3), np.array([[1.0, 0.0, 0.0]] * 3))])
    columns = torch.zeros(1, 16, 16, dtype=torch.bool)
    columns[0, 12, 8] = True
    found = ends_in(columns, rays, torch.tensor([8.5, 10.5, 100.0]), TINY.grid)
    assert found.tolist() == [True, False, False]

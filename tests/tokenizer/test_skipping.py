from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from copilot4d.config import from_mapping, to_mapping
from copilot4d.errors import DataError, UsageError
from copilot4d.tokenizer.skipping import (
    NEVER,
    QUIET_THRESHOLD,
    CoarseBranch,
    SkippingConfig,
    mask_grid,
    network_position,
    pooled,
    predicted_mask,
    predicted_voxels,
    ray_mask,
    to_grid,
    true_mask,
    without_columns,
)
from copilot4d.tokenizer.voxels import PointBatch, voxelise
from tests.tokenizer.clouds import SMALL, random_sweep, sweep_of


def test_positions_in_the_networks_order_are_those_of_the_grid():
    voxels = voxelise(PointBatch.of([random_sweep(100, seed=1), random_sweep(50, seed=2)]), SMALL)
    flat = torch.zeros(2 * 16 * 8 * 4, dtype=torch.bool)
    flat[network_position(voxels, 4, SkippingConfig())] = True
    grid = to_grid(flat.view(2, 4, 2, 4, 4, 4))
    assert grid.nonzero().tolist() == voxels.cells.tolist()


@pytest.mark.parametrize("pool", [2, 4])
def test_positions_of_cells_are_those_of_the_true_mask_each_once(pool):
    voxels = voxelise(PointBatch.of([random_sweep(100, seed=1), random_sweep(50, seed=2)]), SMALL)
    config, up = SkippingConfig(pool=pool, resolution="cell"), 4 // pool
    position = network_position(voxels, 4, config)
    assert len(position.unique()) == len(position) < len(voxels.flat)
    logits = torch.full((2 * 4 * 2 * up * up * 4,), -9.0)
    logits[position] = 9.0
    mask = predicted_mask(logits.view(2, 4, 2, up, up, 4), config, None)
    assert torch.equal(mask, true_mask(voxels, pool))


def test_one_logit_lands_on_its_voxel():
    branch = CoarseBranch(2, 4, 4)
    with torch.no_grad():
        branch.linear.weight.zero_()
        branch.linear.bias.zero_()
        branch.linear.bias[(3 * 4 + 1) * 4 + 2] = 9.0  # a = 3 along x, b = 1 along y, z = 2
    grid = to_grid(branch(torch.zeros(1, 4, 2, 2)))
    assert (grid[0] == 9).nonzero().tolist() == [[x, y, 2] for x in (3, 7, 11, 15) for y in (1, 5)]


def test_true_masks_cover_every_point():
    voxels = voxelise(PointBatch.of([sweep_of([(3.9, -1.9, 0.6)]), sweep_of([(-3.9, 1.9, -0.9)])]), SMALL)
    assert true_mask(voxels, 4).nonzero().tolist() == [[0, 3, 0, 3], [1, 0, 1, 0]]
    assert mask_grid(SMALL, 4).cell_size == (2.0, 2.0, 0.5)


def test_pooling_is_a_maximum_in_x_and_y_only():
    occupied = torch.zeros(1, 16, 8, 4, dtype=torch.bool)
    occupied[0, 5, 7, 2] = True
    assert pooled(occupied, 4).nonzero().tolist() == [[0, 1, 1, 2]]


def test_noise_is_logistic_and_comes_from_its_seed():
    config = SkippingConfig(pool=1, threshold=0.5)
    logits = torch.full((1, 10, 10, 4, 4, 10), 1.0)
    first = predicted_voxels(logits, config, torch.Generator().manual_seed(3))
    assert torch.equal(first, predicted_voxels(logits, config, torch.Generator().manual_seed(3)))
    # P(logit + noise > 0) = sigmoid(logit)
    assert float(first.float().mean()) == pytest.approx(0.731, abs=0.02)
    high = predicted_voxels(logits, SkippingConfig(threshold=0.9), torch.Generator().manual_seed(3))
    assert float(high.float().mean()) == pytest.approx(float(torch.sigmoid(torch.tensor(1 - 2.1972))), abs=0.02)


def test_without_noise_the_threshold_alone_decides():
    logits = torch.tensor([-0.1, 0.1, 1.3, 1.5]).view(1, 1, 1, 1, 1, 4)
    assert predicted_voxels(logits, SkippingConfig(threshold=0.5), None).flatten().tolist() == [False, True, True, True]
    loud = SkippingConfig(threshold=0.8, noise=False, pool=1)
    assert predicted_mask(logits, loud, torch.Generator()).flatten().tolist() == [False, False, False, True]


@pytest.mark.parametrize("pool", [4, 8])
def test_one_draw_per_cell_has_the_law_of_one_draw_per_voxel(pool):
    logits = torch.randn(1, 4, 2, 4, 4, 3, generator=torch.Generator().manual_seed(0)) - 3.5
    config = SkippingConfig(pool=pool, threshold=0.6)
    by_cell, by_voxel = torch.zeros(2, 1, 16 // pool, 8 // pool, 3)
    for seed in range(1500):
        by_cell += predicted_mask(logits, config, torch.Generator().manual_seed(seed))
        voxels = predicted_voxels(logits, config, torch.Generator().manual_seed(10_000 + seed))
        by_voxel += pooled(to_grid(voxels), pool)
    assert (by_cell / 1500 - by_voxel / 1500).abs().max() < 0.06
    assert 0.05 < float(by_voxel.mean()) / 1500 < 0.95


@pytest.mark.parametrize("pool", [2, 4, 8])
def test_without_noise_a_cell_is_looked_at_if_any_of_its_voxels_is_predicted(pool):
    logits = torch.randn(2, 4, 2, 4, 4, 3, generator=torch.Generator().manual_seed(1)) - 2.6
    config = SkippingConfig(pool=pool, threshold=0.4)
    expected = pooled(to_grid(predicted_voxels(logits, config, None)), pool)
    assert torch.equal(predicted_mask(logits, config, None), expected)
    assert 0 < expected.float().mean() < 1


def test_the_mask_holds_improbable_cells_where_no_noise_would():
    quiet = SkippingConfig(pool=1, noise=False)
    assert SkippingConfig().of_mask == SkippingConfig()  # with noise: the paper's
    assert quiet.of_mask.threshold == QUIET_THRESHOLD < quiet.threshold
    assert replace(quiet, mask_threshold=0.3).of_mask.threshold == 0.3
    logits = torch.logit(torch.tensor([0.1, 0.3, 0.4, 0.6])).view(1, 1, 1, 1, 1, 4)
    assert predicted_mask(logits, quiet, None).flatten().tolist() == [False, False, False, True]
    assert ray_mask(logits, quiet, None).flatten().tolist() == [False, True, True, True]
    held = torch.tensor([True, False, False, False]).view(1, 1, 1, 4)
    assert ray_mask(logits, quiet, None, held).flatten().tolist() == [True, True, True, True]
    with pytest.raises(UsageError, match=r"tokenizer\.skipping\.mask_threshold"):
        SkippingConfig(mask_threshold=1.0)


def test_the_mask_threshold_is_read_under_its_old_name():
    read = from_mapping(SkippingConfig, {"inference_threshold": 0.3, "noise": False})
    assert read.mask_threshold == 0.3
    assert "inference_threshold" not in to_mapping(read)
    with pytest.raises(DataError, match="inference_threshold"):
        from_mapping(SkippingConfig, {"inference_threshold": 0.3, "mask_threshold": 0.2})


def test_empty_columns_are_never_in_a_mask_whatever_the_noise():
    logits = torch.full((1, 4, 2, 2, 2, 3), 9.0)
    empty = torch.tensor([[[True], [False]]])  # 2 x 1 columns of 2 x 2 map cells
    free = without_columns(logits, empty)
    assert (free[:, :2] == NEVER).all()
    assert torch.equal(free[:, 2:], logits[:, 2:])
    loud = SkippingConfig(pool=4, mask_threshold=0.01)
    for seed in range(20):
        mask = ray_mask(free, loud, torch.Generator().manual_seed(seed))
        assert not mask[:, :1].any()
        assert mask[:, 1:].all()

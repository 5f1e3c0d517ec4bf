from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d.presets import tiny
from copilot4d.tokenizer.bev import PatchEmbedding, PillarPooling
from copilot4d.tokenizer.encoder import Encoder
from copilot4d.tokenizer.voxels import PointBatch, voxelise
from tests.tokenizer.clouds import SMALL, random_sweep, sweep_of


def test_pillars_sum_over_z_with_a_height_embedding():
    voxels = voxelise(PointBatch.of([random_sweep(200, seed=4), random_sweep(30, seed=5)]), SMALL)
    torch.manual_seed(0)
    pooling, features = PillarPooling(8, 4), torch.randn(len(voxels.flat), 8)
    found, positions = pooling(features, voxels)
    sums: dict[tuple[int, ...], torch.Tensor] = {}
    for cell, feature in zip(voxels.cells.tolist(), features, strict=True):
        row = pooling.linear(feature) + pooling.height_embedding[cell[3]]
        key = tuple(cell[:3])
        sums[key] = sums.get(key, torch.zeros(8)) + row
    where = {(p // (16 * 8), p // 8 % 16, p % 8): i for i, p in enumerate(positions.tolist())}
    assert set(where) == set(sums)
    for key, value in sums.items():
        torch.testing.assert_close(found[where[key]], pooling.norm(value), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("empty", ["zero", "learned"])
def test_sparse_patches_equal_a_strided_convolution_over_the_dense_map(empty):
    torch.manual_seed(1)
    patches = PatchEmbedding(3, 5, 4, empty)
    if patches.empty is not None:
        torch.nn.init.normal_(patches.empty)
    positions = torch.randperm(2 * 16 * 8)[:20].sort().values
    pillars = torch.randn(20, 3)
    blank = torch.zeros(3) if patches.empty is None else patches.empty
    dense = blank.expand(2 * 16 * 8, 3).index_copy(0, positions, pillars).view(2, 16, 8, 3)
    kernel = patches.linear.weight.view(5, 4, 4, 3).permute(0, 3, 1, 2)
    expected = torch.nn.functional.conv2d(dense.permute(0, 3, 1, 2), kernel, stride=4).permute(0, 2, 3, 1)
    found = patches(pillars, positions, 2, (16, 8))
    assert found.shape == (2, 4, 2, 5)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("x", "y"), [(-15.9, 3.0), (10.3, -12.1), (0.0, 15.99)])
def test_one_point_lights_the_cell_of_its_x_and_y(x, y):
    """x runs along the first axis of the map, y along the second: nothing here is symmetric."""
    config = tiny().tokenizer
    torch.manual_seed(0)
    encoder = Encoder(config)
    map_cell_m = 4 * config.grid.cell_size[0]
    lit = encoder.bev(voxelise(PointBatch.of([sweep_of([(x, y, -1.0)])]), config.grid))[0].abs().sum(dim=-1) > 0
    expected = [int(np.floor((x + 16) / map_cell_m)), int(np.floor((y + 16) / map_cell_m))]
    assert lit.nonzero().tolist() == [expected]


def test_a_higher_point_gives_another_feature():
    config = tiny().tokenizer
    torch.manual_seed(0)
    encoder = Encoder(config)
    maps = [
        encoder.bev(voxelise(PointBatch.of([sweep_of([(1.0, 2.0, z)])]), config.grid)) for z in (-1.25, -0.75)
    ]  # both in the middle of a voxel
    assert not torch.allclose(maps[0], maps[1], atol=1e-3)

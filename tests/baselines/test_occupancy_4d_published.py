"""4D-Occ as published: its sum of two paths, its sizes, its convolution over voxels, its forecasts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional

from copilot4d.baselines.occupancy_4d import (
    Occupancy4dForecaster,
    PublishedOccupancy4d,
    past_voxels,
    published_preset,
)
from copilot4d.baselines.occupancy_4d.published import SparseConv
from copilot4d.errors import UsageError
from copilot4d.geometry import VoxelGrid
from tests.support.scenes import make_drive

TINY = published_preset("tiny")


def a_past():
    drive = make_drive(4, rings=16, azimuths=90)
    return past_voxels([drive[0], drive[2]], TINY)


def dense(past) -> torch.Tensor:
    """(1, P Z, X, Y) the binary voxels."""
    map_ = torch.zeros(64 * 64, 2 * 12)
    map_[past.cells, past.channels] = 1.0
    return map_.view(1, 64, 64, 24).permute(0, 3, 1, 2)


def network(config=TINY) -> PublishedOccupancy4d:
    torch.manual_seed(0)
    return PublishedOccupancy4d(config).eval()


def kernel(conv: SparseConv) -> torch.Tensor:
    """(C, P Z, 3, 3) as a dense convolution has it."""
    return conv.weight.view(3, 3, *conv.weight.shape[1:]).permute(3, 2, 0, 1)


def test_the_convolution_over_voxels_is_the_dense_one():
    past = a_past()
    conv = SparseConv(24, 5, (64, 64), bias=True)
    expected = functional.conv2d(dense(past), kernel(conv), conv.bias, padding=1)
    torch.testing.assert_close(conv(past), expected, rtol=1e-4, atol=1e-5)
    ours = torch.autograd.grad(conv(past).square().sum(), conv.weight)[0]
    theirs = torch.autograd.grad(
        functional.conv2d(dense(past), kernel(conv), conv.bias, padding=1).square().sum(), conv.weight
    )[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_densities_are_the_relu_of_the_linear_path_plus_the_decoder():
    model, past = network(), a_past()
    linear = functional.conv2d(dense(past), kernel(model.linear), model.linear.bias, padding=1)  # (1, T Z, X, Y)
    torch.nn.init.zeros_(model.decoder[-1].weight)
    torch.nn.init.constant_(model.decoder[-1].bias, 0.05)
    found = model(past)
    assert found.shape == (1, 64, 64, 1, 1, 2, 12)
    expected = functional.relu(linear + 0.05).permute(0, 2, 3, 1).reshape(found.shape)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert (found == 0).any()
    assert (found > 0.05).any()


def test_the_published_size():
    """By the authors' widths: a linear path of 225 to 225 channels, blocks of 2, 2, 3, 6 and 5 layers."""
    layers, widths = (2, 2, 3, 6, 5), (32, 64, 128, 256, 256)
    expected = 9 * 225 * 225 + 225
    inputs = 225
    for block, (count, width) in enumerate(zip(layers, widths, strict=True)):
        inputs = sum(widths[:4]) if block == 4 else inputs
        for _ in range(count):
            expected += 9 * inputs * width + 2 * width
            inputs = width
    for a, b in ((256, 128), (128, 64)):
        expected += 9 * a * b + 2 * b + 9 * b * b + 2 * b
    expected += 9 * 64 * 225 + 225
    with torch.device("meta"):
        model = PublishedOccupancy4d(published_preset("paper"))
    assert sum(p.numel() for p in model.parameters()) == expected
    assert model.config.grid.shape == (700, 700, 45)
    assert model.config.grid.cell_size == pytest.approx((0.2, 0.2, 0.2))


def test_forecasts_answer_rays_by_expected_depth_or_median():
    model = network()
    drive = make_drive(6, rings=16, azimuths=90)
    asked = ([drive[0], drive[2]], np.stack([drive[4].world_from_lidar]), [drive[4].rays()[0]])
    expected = Occupancy4dForecaster(model, name="4d_occ").forecast(*asked)
    median = Occupancy4dForecaster(model, name="4d_occ", depth="median")
    assert median.name == "4d_occ_median"
    assert np.isfinite(expected.depths[0]).all()
    assert not np.allclose(expected.depths[0], median.forecast(*asked).depths[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"grid": VoxelGrid.from_bounds((-3, -3, -3), (3, 3, 3), shape=(6, 8, 8))}, "must divide by 4"),
        ({"depth": "mode"}, "occupancy_4d.depth"),
        ({"min_opacity": 0.0}, "min_opacity"),
        ({"filters": (0, 1, 1, 1, 1)}, "filters"),
    ],
)
def test_impossible_sizes_are_refused(change, words):
    with pytest.raises(UsageError, match=words):
        dataclasses.replace(TINY, **change)
    with pytest.raises(UsageError, match="preset"):
        published_preset("huge")

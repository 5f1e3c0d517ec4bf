"""Scenes made by hand: a tokenizer whose feature grid is 1 in chosen cells and 0 elsewhere, opaque where it is 1."""

from __future__ import annotations

import torch
from torch import nn

from copilot4d.tokenizer import Scene, Tokenizer
from tests.tokenizer.clouds import tiny_tokenizer

SHARPNESS = 60.0


def oracle_tokenizer(config=None) -> Tokenizer:
    """The decoder map's channels are, one by one, the grid's values: (a, b, z) of the cell, channel 0 of the grid."""
    tokenizer = tiny_tokenizer(config)
    grid = tokenizer.feature_grid
    assert grid is not None
    outputs = grid.config.upsample**2 * grid.grid.shape[2]
    grid.norm = nn.Identity()
    grid.linear = nn.Linear(outputs, outputs * grid.config.channels, bias=False)
    with torch.no_grad():
        grid.linear.weight.zero_()
        grid.linear.weight[torch.arange(outputs) * grid.config.channels, torch.arange(outputs)] = 1.0
        for layer in (grid.hidden, grid.occupancy):
            layer.weight.zero_()
            layer.bias.zero_()
        grid.hidden.weight[0, 0] = 1.0
        grid.occupancy.weight[0, 0] = SHARPNESS
        grid.occupancy.bias.fill_(-SHARPNESS / 2)  # opaque where the interpolated value is above 1/2
    return tokenizer


def scene_with(tokenizer: Tokenizer, cells) -> Scene:
    """A scene whose feature grid is 1 in cells (x, y, z) of `tokenizer.feature_grid.grid`; the coarse branch agrees."""
    grid = tokenizer.feature_grid
    up, levels = grid.config.upsample, grid.grid.shape[2]
    height, width = grid.map_size
    values = torch.zeros(1, height, width, up, up, levels)
    for x, y, z in cells:
        values[0, x // up, y // up, x % up, y % up, z] = 1.0
    # A grid value reaches as far as the centres of the next cells: the coarse branch covers that.
    full = values.permute(0, 1, 3, 2, 4, 5).reshape(1, 1, height * up, width * up, levels)
    near = nn.functional.max_pool3d(full, 3, stride=1, padding=1)[0, 0]
    fine = tokenizer.config.grid.shape
    wide = near.repeat_interleave(fine[0] // near.shape[0], 0).repeat_interleave(fine[1] // near.shape[1], 1)
    patch = tokenizer.config.backbone.patch
    logits = wide.view(height, patch, width, patch, levels).permute(0, 2, 1, 3, 4)[None]
    return Scene(features=values.flatten(3), coarse_logits=torch.where(logits > 0, 20.0, -20.0).contiguous())

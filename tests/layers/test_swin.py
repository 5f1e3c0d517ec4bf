"""Window attention against a slow version written from Swin's equations."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from copilot4d.layers.init import init_fan_in
from copilot4d.layers.swin import SwinBlock, SwinStage, WindowAttention
from copilot4d.layers.windows import WindowGrid, reorder


def slow_attention(layer, x):
    """(H, W, C) -> (H, W, C), token by token, without windows: who is near enough, with which bias."""
    grid, heads = layer.grid, layer.heads
    height, width, dim = x.shape
    q, k, v = layer.qkv(x).view(height, width, 3, heads, dim // heads).unbind(2)
    table = layer.relative_position_bias.view(2 * grid.window - 1, 2 * grid.window - 1, heads)

    def window_of(row, column):
        """Which window, and which part of the map before the roll: rolled rows are row - shift."""
        return (row - grid.shift) // grid.window, (column - grid.shift) // grid.window

    out = torch.zeros(height, width, heads, dim // heads)
    cells = [(r, c) for r in range(height) for c in range(width)]
    for row, column in cells:
        friends = [cell for cell in cells if window_of(*cell) == window_of(row, column)]
        scores = torch.stack(
            [
                (q[row, column] * k[r, c]).sum(-1) * (dim // heads) ** -0.5
                + table[row - r + grid.window - 1, column - c + grid.window - 1]
                for r, c in friends
            ]
        ).softmax(0)  # (friends, heads)
        out[row, column] = sum(s[:, None] * v[r, c] for s, (r, c) in zip(scores, friends, strict=True))
    return layer.project(out.reshape(height, width, dim))


def attention(shift, size=(8, 8), window=4):
    torch.manual_seed(0)
    layer = WindowAttention(8, 2, WindowGrid(height=size[0], width=size[1], window=window, shift=shift))
    init_fan_in(layer)
    torch.nn.init.normal_(layer.relative_position_bias)
    torch.nn.init.normal_(layer.qkv.bias)
    return layer


@pytest.mark.parametrize("shift", [0, 2])
@pytest.mark.parametrize("size", [(8, 8), (4, 8)])
@pytest.mark.parametrize("grad", [False, True])
def test_window_attention_is_swins(shift, size, grad):
    layer = attention(shift, size)
    x = torch.randn(2, *size, 8)
    with torch.set_grad_enabled(grad):
        fast = reorder(layer(reorder(x.flatten(1, 2), None, layer.grid)), layer.grid, None).view_as(x)
        slow = torch.stack([slow_attention(layer, one) for one in x])
    torch.testing.assert_close(fast, slow, atol=1e-5, rtol=1e-5)


def test_the_bias_kept_for_inference_follows_every_change_of_the_table():
    layer = attention(2)
    x = torch.randn(3, 64, 8)
    for change in (
        lambda table: None,
        lambda table: table.data.add_(torch.randn_like(table)),
        lambda table: table.data.copy_(torch.randn_like(table)),
    ):
        change(layer.relative_position_bias)
        with torch.no_grad():
            kept = layer(x)
        torch.testing.assert_close(kept, layer(x).detach(), atol=1e-5, rtol=1e-5)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.5, fused=True)
    layer(x).square().sum().backward()
    optimizer.step()
    with torch.no_grad():
        torch.testing.assert_close(layer(x), copy.deepcopy(layer)(x))
    torch.testing.assert_close(layer(x).detach(), torch.no_grad()(layer)(x), atol=1e-5, rtol=1e-5)


def test_a_block_is_the_sum_of_its_input_and_two_residuals():
    torch.manual_seed(0)
    block = SwinBlock(8, 2, WindowGrid(height=4, width=4, window=2))
    x = torch.randn(1, 16, 8)
    for layer in block.residual_outputs():
        torch.nn.init.zeros_(layer.weight)
    assert torch.equal(block(x), x)


def test_a_stage_spreads_over_window_borders_only_by_shifting():
    torch.manual_seed(0)
    one, two = (SwinStage(dim=8, heads=2, depth=depth, size=(8, 8), window=4) for depth in (1, 2))
    x = torch.randn(1, 8, 8, 8)
    moved = x.clone()
    moved[0, 0, 0] += torch.randn(8)  # a constant would vanish in the LayerNorm
    reach_one = (one(x) != one(moved)).any(-1)[0]
    assert set(np.flatnonzero(reach_one.any(1))) == {0, 1, 2, 3}
    assert set(np.flatnonzero(reach_one.any(0))) == {0, 1, 2, 3}
    reach_two = (two(x) != two(moved)).any(-1)[0]
    # The shifted windows are 0-1, 2-5, 6-7: tokens 2 and 3 carry it on to 4 and 5, and the edge is no neighbour.
    assert set(np.flatnonzero(reach_two.any(1))) == {0, 1, 2, 3, 4, 5}

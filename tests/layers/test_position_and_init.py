from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from copilot4d.errors import UsageError
from copilot4d.layers.init import init_fan_in, scale_residuals
from copilot4d.layers.position import SpatialPosition, sincos_positions
from copilot4d.layers.swin import WindowAttention
from copilot4d.layers.windows import WindowGrid


def test_rows_are_in_the_first_half_and_columns_in_the_second():
    table = sincos_positions(4, 6, 8)
    assert table[0, 0].tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert torch.equal(table[2, 0, :4], table[2, 5, :4])
    assert torch.equal(table[0, 3, 4:], table[3, 3, 4:])
    expected = [math.sin(3), math.sin(0.03), math.cos(3), math.cos(0.03)]
    torch.testing.assert_close(table[3, 1, :4], torch.tensor(expected))
    assert len({tuple(row) for row in table.flatten(0, 1).tolist()}) == 24
    with pytest.raises(UsageError, match="4 divides"):
        sincos_positions(2, 2, 6)


def test_factorised_positions_add_a_row_and_a_column_and_are_not_decayed():
    position = SpatialPosition((4, 6), 8, "factorised")
    added = position(torch.zeros(2, 4, 6, 8))
    torch.testing.assert_close(added[1, 3, 5], position.rows[3, 0] + position.columns[0, 5])
    assert sum(p.numel() for p in position.parameters()) == (4 + 6) * 8
    assert position.undecayed_parameters == ("rows", "columns")
    fixed = SpatialPosition((4, 6), 8)
    assert not list(fixed.parameters())
    assert not fixed.state_dict()
    with pytest.raises(UsageError, match="sincos, factorised"):
        SpatialPosition((4, 6), 8, "learned")


def test_weights_are_fan_in_normal_and_biases_zero():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 200), nn.Embedding(200, 300), nn.LayerNorm(300))
    init_fan_in(model)
    assert float(model[0].weight.detach().std()) == pytest.approx((1 / 900) ** 0.5, rel=0.02)
    assert float(model[1].weight.detach().std()) == pytest.approx((1 / 900) ** 0.5, rel=0.02)
    assert (model[0].bias == 0).all()
    assert (model[2].weight == 1).all()
    attention = WindowAttention(32, 4, WindowGrid(height=16, width=16, window=16))
    init_fan_in(attention)
    assert float(attention.relative_position_bias.detach().std()) == pytest.approx(0.02, rel=0.1)


def test_residual_layers_are_scaled_once():
    layer = nn.Linear(3, 3, bias=False)
    before = layer.weight.detach().clone()
    scale_residuals([layer], 24)
    torch.testing.assert_close(layer.weight.detach(), before / 24**0.5)

"""The moving average, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from copilot4d.training.ema import Ema


def one_weight(value: float) -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, value)
    return model


def put(model: nn.Linear, value: float) -> None:
    with torch.no_grad():
        model.weight.fill_(value)


def test_the_first_updates_forget_the_start_and_later_ones_use_the_decay():
    model = one_weight(0.0)
    ema = Ema(model, decay=0.9)
    put(model, 10.0)
    ema.update(model, 1)  # decay 1 / 10
    assert float(ema.shadow["weight"]) == pytest.approx(9.0)
    put(model, 20.0)
    ema.update(model, 3)  # decay 3 / 12
    assert float(ema.shadow["weight"]) == pytest.approx(0.25 * 9 + 0.75 * 20)
    put(model, 0.0)
    before = float(ema.shadow["weight"])
    ema.update(model, 1000)  # decay 0.9
    assert float(ema.shadow["weight"]) == pytest.approx(0.9 * before)


def test_the_models_own_weights_come_back_even_after_an_error():
    model = one_weight(1.0)
    ema = Ema(model, decay=0.5)
    put(model, 7.0)
    seen = []

    def look() -> None:
        with ema.applied(model):
            seen.append(model.weight.item())
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="middle"):
        look()
    assert seen == [1.0]
    assert model.weight.item() == 7.0
    assert float(ema.shadow["weight"]) == 1.0

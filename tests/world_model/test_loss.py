"""The loss that never keeps its logits is torch's cross entropy, with its gradients."""

from __future__ import annotations

import pytest
import torch

from copilot4d.world_model import loss as module
from copilot4d.world_model.loss import linear_cross_entropy, plain_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("at_once", [1, 23 * 4, 1 << 20])  # row by row, 4 rows, all
def test_loss_accuracy_and_gradients_are_those_of_cross_entropy(smoothing, at_once, monkeypatch):
    monkeypatch.setattr(module, "LOGITS_AT_ONCE", at_once)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(10, 7, generator=generator) * 3
    table = torch.randn(23, 7, generator=generator)
    targets = torch.randint(23, (10,), generator=generator)
    targets[:3] = (features[:3] @ table.t()).argmax(-1)  # some are right
    weight = torch.rand(10, generator=generator)
    found, expected = [], []
    for function, results in ((linear_cross_entropy, found), (plain_cross_entropy, expected)):
        x, t = features.clone().requires_grad_(), table.clone().requires_grad_()
        loss, right = function(x, t, targets, weight, smoothing)
        (2.5 * loss).backward()
        results += [loss.detach(), right, x.grad, t.grad]
    assert found[1] > 0
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_large_logits_do_not_overflow():
    table = torch.tensor([[200.0], [-200.0]])
    loss, right = linear_cross_entropy(torch.tensor([[1.0], [1.0]]), table, torch.tensor([0, 1]), torch.ones(2))
    assert float(loss) == 400.0
    assert float(right) == 1.0

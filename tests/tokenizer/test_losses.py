from __future__ import annotations

import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.tokenizer.losses import (
    LossConfig,
    concentration_loss,
    depth_loss,
    occupancy_loss,
    scene_mean,
    termination_loss,
)

WEIGHTS = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.2]])
DEPTHS = torch.tensor([[9.0, 10.0, 11.0], [4.7, 5.0, 5.3]])
TRUE = torch.tensor([10.0, 5.0])


def test_concentration_by_hand():
    surface = torch.tensor([True, True])
    squared = concentration_loss(WEIGHTS, DEPTHS, TRUE, surface, 0.4, "squared")
    torch.testing.assert_close(squared, torch.tensor([0.5**2 + 0.2**2, 0.0]))
    absolute = concentration_loss(WEIGHTS, DEPTHS, TRUE, surface, 0.4, "absolute")
    torch.testing.assert_close(absolute, torch.tensor([0.7, 0.0]))


def test_a_ray_that_leaves_the_volume_must_see_nothing():
    free = torch.tensor([False, False])
    found = concentration_loss(WEIGHTS, DEPTHS, TRUE, free, 0.4, "absolute")
    torch.testing.assert_close(found, WEIGHTS.sum(dim=-1))
    assert depth_loss(torch.tensor([3.0, 4.0]), TRUE, torch.tensor([True, False])).tolist() == [7.0, 0.0]


def test_scenes_count_alike_whatever_their_rays():
    values = torch.tensor([1.0, 3.0, 10.0])
    assert float(scene_mean(values, torch.tensor([0, 0, 1]), 2)) == pytest.approx((2 + 10) / 2)
    assert float(scene_mean(values, torch.tensor([0, 0, 1]), 3)) == pytest.approx((2 + 10 + 0) / 3)


@pytest.mark.parametrize("weight", [1.0, 20.0])
def test_occupancy_loss_is_binary_cross_entropy(weight):
    logits = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float()
    occupied = torch.tensor([3, 17, 42, 69])
    target = torch.zeros(70).index_fill(0, occupied, 1.0)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        logits.flatten(), target, pos_weight=torch.tensor(weight)
    )
    torch.testing.assert_close(occupancy_loss(logits, occupied, weight), expected)


def test_termination_by_hand():
    """alpha = 0.2, 0.5, 0.9, and no sample behind: the first is passed, the second stops, the third is not seen."""
    alpha = torch.tensor([[0.2, 0.5, 0.9, 0.0]] * 3)
    depths = torch.tensor([[9.9, 10.0, 10.1, 0.0]] * 3)
    true = torch.tensor([10.02, 10.02, 10.5])
    surface = torch.tensor([True, False, True])
    found = termination_loss(torch.logit(alpha), depths, true, surface, 0.1)
    passed_all = -torch.tensor([0.8 * 0.5 * 0.1]).log().item()
    stopped = -torch.tensor([0.8 * 0.5]).log().item()
    # The third ray's surface lies where no sample is: it may pass everything before.
    assert found.tolist() == pytest.approx([stopped, passed_all, passed_all], rel=1e-5)


def test_termination_is_least_where_the_ray_stops_at_its_surface():
    logits = torch.zeros(1, 5, requires_grad=True)
    depths, true = 0.1 * torch.arange(1, 6)[None].float(), torch.tensor([0.3])
    termination_loss(logits, depths, true, torch.tensor([True]), 0.1).sum().backward()
    assert logits.grad.sign().tolist() == [[1, 1, -1, 0, 0]]


def test_gradients_by_finite_differences():
    weights = WEIGHTS.double().requires_grad_()
    surface = torch.tensor([True, True])
    for norm in ("squared", "absolute"):
        assert torch.autograd.gradcheck(
            lambda w, norm=norm: concentration_loss(w, DEPTHS.double(), TRUE.double(), surface, 0.4, norm), weights
        )


def test_unknown_norms_and_negative_weights_are_refused():
    with pytest.raises(UsageError, match="squared, absolute"):
        LossConfig(concentration_norm="cubed")
    with pytest.raises(UsageError, match=r"tokenizer\.losses\.depth"):
        LossConfig(depth=-1.0)

"""A residual is a sum."""

from __future__ import annotations

import torch

from copilot4d.layers.feed_forward import add_residual


def test_a_residual_is_a_sum_that_leaves_its_input_alone():
    x, branch = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3)
    before, given = branch.clone(), x.detach().clone()
    added = add_residual(x, branch)
    assert torch.equal(added, x + before)
    assert torch.equal(x, given)
    added.square().sum().backward()
    torch.testing.assert_close(x.grad, 2 * (given + before))


def test_a_narrower_branch_does_not_narrow_the_main_one():
    x, branch = torch.randn(4, 3), torch.randn(4, 3, dtype=torch.bfloat16)
    assert torch.equal(add_residual(x, branch), x + branch)
    assert add_residual(x, branch).dtype == torch.float32

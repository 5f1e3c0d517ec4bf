from __future__ import annotations

import torch

from copilot4d.rendering.weighted_rows import weighted_rows, weighted_rows_plain


def case(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(6, 3, dtype=dtype, generator=generator)
    rows = torch.randint(0, 6, (9, 8), generator=generator)
    weights = torch.rand(9, 8, dtype=dtype, generator=generator)
    weights[0] = 0
    return table, rows, weights


def test_sums_by_hand():
    table = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    rows, weights = torch.tensor([[0, 2], [1, 1]]), torch.tensor([[0.5, 0.25], [1.0, 2.0]])
    assert weighted_rows(table, rows, weights).tolist() == [[1.5, 15.0], [6.0, 60.0]]


def test_gradients_by_finite_differences_and_sums_and_gradients_as_indexing_gives_them():
    table, rows, weights = case()
    assert torch.autograd.gradcheck(lambda t: weighted_rows(t, rows, weights), table.requires_grad_())
    upstream = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    sums, plain = weighted_rows(table, rows, weights), weighted_rows_plain(table, rows, weights)
    torch.testing.assert_close(sums, plain)
    torch.testing.assert_close(weighted_rows(table.detach(), rows, weights), plain)  # without gradients: another way
    (found,) = torch.autograd.grad((sums * upstream).sum(), table)
    (expected,) = torch.autograd.grad((plain * upstream).sum(), table)
    torch.testing.assert_close(found, expected)


def test_no_samples():
    table, _, _ = case(torch.float32)
    out = weighted_rows(table.requires_grad_(), torch.zeros(0, 8, dtype=torch.int64), torch.zeros(0, 8))
    out.sum().backward()
    assert table.grad.abs().sum() == 0

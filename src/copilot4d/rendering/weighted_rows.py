"""Weighted sums of a table's rows: what interpolation is, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from copilot4d.compiled import compiled


def weighted_rows(table: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """(N, C) table, (S, K) rows and weights -> (S, C) weighted sums. The weights get no gradient.

    On the CPU `embedding_bag` is four times as fast as indexing. Its own backward pass sorts all rows first, which
    takes longer than everything else together; here it is one loop.
    """
    weights = weights.detach().to(table.dtype)
    if table.device.type == "cpu" and table.requires_grad and torch.is_grad_enabled():
        summed: Tensor = _WeightedRows.apply(table, rows, weights)  # type: ignore[no-untyped-call]
        return summed
    return functional.embedding_bag(rows, table, per_sample_weights=weights, mode="sum")


def weighted_rows_plain(table: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """What `weighted_rows` computes, by indexing."""
    return (table[rows] * weights.detach().to(table.dtype)[..., None]).sum(dim=1)


class _WeightedRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weights)
        ctx.table_shape = table.shape
        return functional.embedding_bag(rows, table, per_sample_weights=weights, mode="sum")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        rows, weights = ctx.saved_tensors
        out = grad.new_zeros(ctx.table_shape)
        _scatter(grad.contiguous().numpy(), rows.contiguous().numpy(), weights.contiguous().numpy(), out.numpy())
        return out, None, None


@compiled
def _scatter(grad: Any, rows: Any, weights: Any, out: Any) -> None:
    """out[rows[s, k]] += weights[s, k] * grad[s], in the order of s."""
    for s in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            weight = weights[s, k]
            if weight != np.float32(0):
                row = rows[s, k]
                for c in range(grad.shape[1]):
                    out[row, c] += weight * grad[s, c]

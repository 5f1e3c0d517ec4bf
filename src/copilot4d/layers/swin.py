"""Swin Transformer blocks, pre-norm, on token lists in window order.

Axes: F feature maps (batch and time together), N tokens of a map, C channels.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from copilot4d.layers.feed_forward import FeedForward
from copilot4d.layers.windows import WindowGrid, relative_position_index, reorder, shift_mask


class WindowAttention(nn.Module):
    """Multi-head attention within windows, with a learned bias for each head and each offset of two tokens.

    The query, key and value layer is the only linear layer with a bias.
    """

    def __init__(self, dim: int, heads: int, grid: WindowGrid) -> None:
        super().__init__()
        self.heads = heads
        self.grid = grid
        self.qkv = nn.Linear(dim, 3 * dim, bias=True)
        self.project = nn.Linear(dim, dim, bias=False)
        self.relative_position_bias = nn.Parameter(torch.zeros((2 * grid.window - 1) ** 2, heads))
        self._prepared: tuple[Tensor, Tensor] | None = None  # a copy of the table, and the bias made from it

    def forward(self, x: Tensor) -> Tensor:
        """(F, N, C) in window order -> (F, N, C)."""
        maps, tokens, dim = x.shape
        area = self.grid.window**2
        qkv = self.qkv(x).view(maps * self.grid.windows, area, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (F windows, heads, area, C / heads), views
        mixed = self._attend(q, k, v, maps)
        result: Tensor = self.project(mixed.transpose(1, 2).reshape(maps, tokens, dim))
        return result

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, maps: int) -> Tensor:
        """(F windows, heads, area, C / heads) three times -> the same shape."""
        bias = self.attention_bias()
        if bias.requires_grad:  # there is no fused kernel with a gradient for the bias
            scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
            biased = scores.view(maps, self.grid.windows, *scores.shape[1:]) + bias
            return torch.matmul(biased.softmax(-1).view_as(scores), v)
        if bias.shape[0] == 1 or maps == 1:
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        # Each window has a bias of its own, the same for every map: map by map, so that it need not be copied.
        per_map = zip(*(torch.split(t, self.grid.windows) for t in (q, k, v)), strict=True)
        each = [functional.scaled_dot_product_attention(a, b, c, attn_mask=bias) for a, b, c in per_map]
        return torch.cat([mixed.transpose(1, 2) for mixed in each]).transpose(1, 2)

    def attention_bias(self) -> Tensor:
        """(1 or windows, heads, area, area): relative position bias, and -inf between parts of a shifted map."""
        table = self.relative_position_bias
        # On CPU the masked bias of a large map costs as much as the attention; comparing tables costs nothing.
        keep = not torch.is_grad_enabled() and table.device.type == "cpu"
        if keep and self._prepared is not None and torch.equal(self._prepared[0], table):
            return self._prepared[1]
        area = self.grid.window**2
        bias = table[relative_position_index(self.grid.window, table.device)].view(1, area, area, self.heads)
        bias = bias.permute(0, 3, 1, 2)
        mask = shift_mask(self.grid, table.device)
        bias = bias.contiguous() if mask is None else bias + mask.to(bias.dtype)
        if keep:
            bias = bias.contiguous()  # as the fused kernels read it; in training the copy would cost more than it saves
        self._prepared = (table.detach().clone(), bias) if keep else None
        return bias


class SwinBlock(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x)), on one window grid."""

    def __init__(self, dim: int, heads: int, grid: WindowGrid, mlp_ratio: float = 4.0) -> None:
        super().__init__()
        self.grid = grid
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = WindowAttention(dim, heads, grid)
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = FeedForward(dim, mlp_ratio)

    def forward(self, x: Tensor) -> Tensor:
        """(F, N, C) in the order of `self.grid` -> (F, N, C) in that order."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))  # type: ignore[no-any-return]

    def residual_outputs(self) -> Iterable[nn.Linear]:
        """The linear layers whose outputs are added to the main branch."""
        return (self.attention.project, self.mlp.project)


class SwinStage(nn.Module):
    """Blocks at one resolution, alternating plain and shifted windows. (F, H, W, C) -> (F, H, W, C)."""

    def __init__(
        self, *, dim: int, heads: int, depth: int, size: tuple[int, int], window: int, mlp_ratio: float = 4.0
    ) -> None:
        super().__init__()
        grids = [WindowGrid.fitted(*size, window, shifted=bool(i % 2)) for i in range(depth)]
        self.blocks = nn.ModuleList(SwinBlock(dim, heads, grid, mlp_ratio) for grid in grids)

    def forward(self, x: Tensor, *, checkpointing: bool = False) -> Tensor:
        """(F, H, W, C) -> (F, H, W, C). checkpointing: the backward pass computes each block anew, one at a time."""
        shape = x.shape
        x = x.flatten(1, 2)
        order: WindowGrid | None = None
        for block in self.blocks:
            assert isinstance(block, SwinBlock)
            x = reorder(x, order, block.grid)
            x = checkpoint(block, x, use_reentrant=False) if checkpointing else block(x)
            order = block.grid
        return reorder(x, order, None).view(shape)

    def residual_outputs(self) -> Iterable[nn.Linear]:
        """The linear layers whose outputs are added to the main branch."""
        return [layer for block in self.blocks for layer in block.residual_outputs()]  # type: ignore[operator]

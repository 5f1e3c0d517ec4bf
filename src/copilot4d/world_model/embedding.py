"""What enters the network: tokens and actions, each through Linear, LayerNorm, Linear."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from copilot4d.layers.feed_forward import Conditioning
from copilot4d.world_model.actions import Actions


class TokenEmbedding(nn.Module):
    """Tokens to features, and features back to logits with the same table; the last row is MASK, which is no output."""

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.table = nn.Embedding(vocabulary + 1, dim)
        self.conditioning = Conditioning(dim, dim)

    @property
    def mask_token(self) -> int:
        """The index of MASK on the input side."""
        return self.vocabulary

    def forward(self, tokens: Tensor) -> Tensor:
        """(...,) int -> (..., C). The conditioning treats tokens one by one, so it acts on the table itself."""
        return functional.embedding(tokens, self.conditioning(self.table.weight))

    @property
    def output_table(self) -> Tensor:
        """(V, C) weight tying: no bias, and no row for MASK."""
        return self.table.weight[: self.vocabulary]

    def logits(self, features: Tensor) -> Tensor:
        """(..., C) -> (..., V)."""
        return functional.linear(features, self.output_table)


class ActionEmbedding(nn.Module):
    """Actions to one vector per frame for each feature level; a learned null action where none is known."""

    undecayed_parameters = ("null",)

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self.null = nn.Parameter(torch.randn(16) * (3 * 16) ** -0.5)
        self.levels = nn.ModuleList(Conditioning(16, dim) for dim in dims)

    def forward(self, actions: Actions) -> list[Tensor]:
        """(B, T) actions -> one (B, T, 1, 1, C) per level, to be added at all locations."""
        flat = actions.motion.flatten(-2).to(self.null.dtype)  # (B, T, 16), row-major
        flat = torch.where(actions.known[..., None], flat, self.null)
        return [level(flat)[:, :, None, None] for level in self.levels]

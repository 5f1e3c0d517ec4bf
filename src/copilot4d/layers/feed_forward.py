"""The two small networks that everything is made of besides attention."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class FeedForward(nn.Module):
    """Linear, GELU, Linear, without biases: the MLP of a Transformer block. (..., C) -> (..., C)."""

    def __init__(self, dim: int, ratio: float = 4.0) -> None:
        super().__init__()
        hidden = round(dim * ratio)
        self.expand = nn.Linear(dim, hidden, bias=False)
        self.project = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C). The exact GELU: on CPU its tanh approximation is four times slower."""
        result: Tensor = self.project(functional.gelu(self.expand(x)))
        return result


class Conditioning(nn.Module):
    """Linear, LayerNorm, Linear: what every input passes through before it is added to the features."""

    def __init__(self, inputs: int, dim: int) -> None:
        super().__init__()
        self.enter = nn.Linear(inputs, dim, bias=False)
        self.norm = nn.LayerNorm(dim)
        self.leave = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., C)."""
        result: Tensor = self.leave(self.norm(self.enter(x)))
        return result

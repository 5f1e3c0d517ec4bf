"""The paper's initialisation: fan-in normal, and residual scaling as in GPT-2."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from copilot4d.layers.swin import WindowAttention

RELATIVE_BIAS_STD = 0.02  # Swin's


def init_fan_in(model: nn.Module) -> None:
    """Every weight from N(0, 1 / (3 H)), H the layer's input dimension; biases zero; LayerNorm as it is.

    An embedding table counts as the un-embedding it is tied to: H is its width. Relative position biases are Swin's.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=(3 * module.in_features) ** -0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=(3 * module.embedding_dim) ** -0.5)
        elif isinstance(module, WindowAttention):
            nn.init.trunc_normal_(module.relative_position_bias, std=RELATIVE_BIAS_STD)


@torch.no_grad()
def scale_residuals(layers: Iterable[nn.Linear], residuals: int) -> None:
    """Multiply the weights of layers before a residual connection by sqrt(1 / residuals)."""
    for layer in layers:
        layer.weight.mul_(residuals**-0.5)

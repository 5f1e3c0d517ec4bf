"""A moving average of the weights, for evaluation and for the weights that are shipped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn


class Ema:
    """shadow = decay * shadow + (1 - decay) * weights after every update; the first updates use a smaller decay.

    The decay of update n is min(decay, n / (n + 9)), so that the random start is forgotten soon.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, updates_done: int) -> None:
        """Take in the weights after update number `updates_done` (from 1)."""
        decay = min(self.decay, updates_done / (updates_done + 9))
        parameters = dict(model.named_parameters())
        shadows = list(self.shadow.values())
        torch._foreach_lerp_(shadows, [parameters[n].detach() for n in self.shadow], 1 - decay)

    @torch.no_grad()
    def restart(self, model: nn.Module, parameter: nn.Parameter) -> None:
        """Forget the past of a parameter that was made anew: its average with what it was means nothing."""
        for name, own in model.named_parameters():
            if own is parameter:
                self.shadow[name].copy_(own)

    @contextlib.contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """The model with the averaged weights inside the block, its own again after it."""
        own = {name: p.detach().clone() for name, p in model.named_parameters()}
        self._put(model, self.shadow)
        try:
            yield
        finally:
            self._put(model, own)

    @staticmethod
    @torch.no_grad()
    def _put(model: nn.Module, values: dict[str, torch.Tensor]) -> None:
        for name, parameter in model.named_parameters():
            parameter.copy_(values[name])

"""What follows from weights alone: computed once while a model is used, and again when they have changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor, nn


class KeptResults:
    """Results of one module by name, for as long as its weights and buffers are equal to what they were.

    They are compared with a copy, number by number: the fused optimizers write without a trace that autograd could
    show, and so do others. Nothing is kept, and each result is computed, with gradients, in mixed precision, under a
    compiler, and for weights that are no plain tensors on the CPU (a GPU would have to wait for the comparison).
    """

    def __init__(self) -> None:
        self._kept: tuple[Sequence[Tensor], dict[Hashable, Tensor]] = ((), {})

    def get(self, name: Hashable, module: nn.Module, make: Callable[[], Tensor]) -> Tensor:
        """The result of this name, made from the weights of `module` alone."""
        if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
            return make()
        tensors = list(itertools.chain(module.parameters(), module.buffers()))
        if any(type(t) not in (nn.Parameter, Tensor) or t.device.type != "cpu" for t in tensors):
            return make()
        copies, results = self._kept
        if not _equal(copies, tensors):
            copies, results = [tensor.detach().clone() for tensor in tensors], {}
            self._kept = copies, results  # at once: others may be reading the former pair
        if name not in results:
            with torch.inference_mode(False), torch.no_grad():  # an inference tensor could not be used elsewhere
                results[name] = make()
        return results[name]

    def __deepcopy__(self, memo: object) -> KeptResults:
        return KeptResults()  # a copy has weights of its own


def _equal(these: Sequence[Tensor], those: Sequence[Tensor]) -> bool:
    return len(these) == len(those) and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(these, those, strict=True)
    )

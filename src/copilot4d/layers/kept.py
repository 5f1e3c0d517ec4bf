"""What follows from weights alone: computed once while a model is used, and again when they have changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable

import torch
from torch import Tensor, nn


class KeptResults:
    """Results by name, each for as long as the weights and buffers of its module stay what they were.

    Nothing is kept, and each result is computed, with gradients, in mixed precision, under a compiler, and for weights
    that are not plain tensors. A change is noticed as autograd notices it: writing through `.data` is not.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[_Weights, Tensor]] = {}

    def get(self, name: Hashable, module: nn.Module, make: Callable[[], Tensor]) -> Tensor:
        """The result of this name, made from the weights of `module` alone."""
        weights = _Weights.of(module)
        if weights is None:
            return make()
        kept = self._kept.get(name)
        if kept is not None and kept[0].same_as(weights):
            return kept[1]
        with torch.inference_mode(False), torch.no_grad():  # an inference tensor could not be used elsewhere
            result = make()
        self._kept[name] = weights, result
        return result

    def __deepcopy__(self, memo: object) -> KeptResults:
        return KeptResults()  # a copy has weights of its own


class _Weights:
    """A module's tensors and how often each was written to. Holding them keeps others from getting their memory."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = [tensor.detach() for tensor in tensors]
        self.state = [(tensor.data_ptr(), tensor._version) for tensor in tensors]

    @classmethod
    def of(cls, module: nn.Module) -> _Weights | None:
        """None where they cannot be told from changed ones, or results would not be those of plain fp32."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return None
        tensors = list(itertools.chain(module.parameters(), module.buffers()))
        if any(type(tensor) not in (nn.Parameter, Tensor) or tensor.is_inference() for tensor in tensors):
            return None
        if any(torch.is_autocast_enabled(kind) for kind in {tensor.device.type for tensor in tensors}):
            return None
        return cls(tensors)

    def same_as(self, other: _Weights) -> bool:
        """Whether nothing was written or replaced between the two."""
        return self.state == other.state

"""Tensors of a module by name: whole, checked, and put in place. One process; training spreads them over its ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.distributed.tensor import DTensor


def named_state(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and persistent buffers by name, in a fixed order, shared ones once."""
    seen: set[int] = set()
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A sharded tensor made whole (all ranks must call it), or the tensor itself; detached, on the CPU."""
    whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole.detach().cpu()

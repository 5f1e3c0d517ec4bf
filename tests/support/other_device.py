"""A GPU that is not there: tensors that say they are on another device than the CPU, and are computed on the CPU.

An operation that mixes devices fails, as on a GPU; so does whoever takes such a tensor for numpy or a compiled loop.
What would make the host wait for the GPU is counted. Values are real: shapes that depend on data work, so do gradients,
and results can be compared with the CPU's. The device's name is "meta", because a torch that was built
without CUDA cannot index tensors named "cuda"; the few lines that ask for "cuda" by name are not reached.

    with OtherDevice() as gpu:
        model.to(gpu.device)
        ...
    gpu.waits            # Counter of what the host waited for: item, to_cpu, nonzero, ...
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
WAITS = {  # operations whose result's shape, or value, the host needs before it can go on
    "_local_scalar_dense": "item", "nonzero": "nonzero", "masked_select": "nonzero", "_unique2": "unique",
    "unique_consecutive": "unique", "unique_dim": "unique", "equal": "item", "is_nonzero": "item",
    "bincount": "nonzero",
}  # fmt: skip
MAY_MIX = {"copy_", "_to_copy", "index", "index_put_", "index_put", "_index_put_impl_"}


class OnGpu(torch.Tensor):
    """A tensor whose values are those of `inner`, and whose device is the pretended one."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> OnGpu:
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device=DEVICE, requires_grad=False,
        )  # fmt: skip
        made.inner = inner
        return made

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def new_tensor(self, values: Any, *, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype or self.dtype, device=DEVICE)

    def __repr__(self) -> str:
        return f"OnGpu({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} outside of OtherDevice")


class OtherDevice(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.device = DEVICE
        self.waits: Counter[str] = Counter()
        self.places: Counter[str] = Counter()  # the lines of ours that waited
        self.operations: Counter[str] = Counter()

    def __enter__(self) -> OtherDevice:
        self._tensor = torch.tensor
        torch.tensor = self._made_and_moved  # torch itself makes tensors of values on "meta" without their values
        self._autocast = torch.autocast
        torch.autocast = self._autocast_here  # which knows no "meta"
        _forget_tensors()
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        torch.tensor, torch.autocast = self._tensor, self._autocast
        _forget_tensors()

    def _autocast_here(self, device_type: str, **options: Any) -> Any:
        return self._autocast("cpu" if device_type == DEVICE.type else device_type, **options)

    def _made_and_moved(self, values: Any, *, device: Any = None, **options: Any) -> torch.Tensor:
        made = self._tensor(values, **options)
        return made if device is None else made.to(device)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> Any:
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        here = any(isinstance(tensor, OnGpu) for tensor in tensors)
        wanted = kwargs.get("device")
        there = torch.device(wanted).type == DEVICE.type if wanted is not None else here
        if here or there:
            self._check(name, tensors, args)
            self._count(name, args, wanted)
        result = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))  # the mode is off in here
        if name == "copy_" or (func._schema.is_mutable and here):
            return args[0] if isinstance(result, torch.Tensor) else result
        if not there:
            return result
        return tree_map(lambda leaf: OnGpu(leaf) if isinstance(leaf, torch.Tensor) else leaf, result)

    def _check(self, name: str, tensors: list[torch.Tensor], args: tuple[Any, ...]) -> None:
        if name in MAY_MIX:
            return
        strangers = [t for t in tensors if not isinstance(t, OnGpu) and t.dim() > 0]
        if strangers and len(strangers) < len(tensors):
            raise RuntimeError(f"{name}: expected all tensors on {DEVICE}, one is on {strangers[0].device}")

    def _count(self, name: str, args: tuple[Any, ...], wanted: Any) -> None:
        self.operations[name] += 1
        before = self.waits.total()
        if name in WAITS:
            self.waits[WAITS[name]] += 1
        elif name == "_to_copy" and wanted is not None:
            self.waits["to_cpu"] += torch.device(wanted).type == "cpu"
        elif name == "copy_" and not isinstance(args[0], OnGpu):
            self.waits["to_cpu"] += 1
        elif name in ("index", "index_put_", "_index_put_impl_"):
            self.waits["nonzero"] += any(t is not None and t.dtype == torch.bool for t in args[1])
        elif name == "repeat_interleave" and len(args) == 1:
            self.waits["nonzero"] += 1
        self.waits = +self.waits
        if self.waits.total() > before:
            ours = [f for f in traceback.extract_stack(limit=40) if "/copilot4d/" in f.filename]
            self.places["/".join(Path(ours[-1].filename).parts[-2:]) + f":{ours[-1].lineno}" if ours else "test"] += 1


def _forget_tensors() -> None:
    """Tables that functions keep by device: those of the real "meta" have no values, and ours are for here alone."""
    for module in [m for name, m in sys.modules.items() if name.startswith("copilot4d.")]:
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def _inner(leaf: Any) -> Any:
    if isinstance(leaf, OnGpu):
        return leaf.inner
    if isinstance(leaf, torch.device):
        return torch.device("cpu")
    return leaf

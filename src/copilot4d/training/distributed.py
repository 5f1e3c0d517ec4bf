"""The ranks of one run: PyTorch's own process groups under torchrun, or a single process with the same interface.

`World` is what the rest of training sees. State that must be equal on every rank (codebooks, usage counters) is made
from `all_gather_rows` with counter-based randomness, which gives every rank the same result; `broadcast_module_state`
and `check_ranks_agree` are the belt and the braces.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor

from copilot4d.checkpoints.tensors import full_tensor, named_state
from copilot4d.errors import TrainingError, UsageError


@dataclass(frozen=True, kw_only=True)
class World:
    """This process among the processes of the run."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files and reports."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            dist.barrier()

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over ranks of a small tensor; float64 on the CPU."""
        values = values.detach().to(self.device, torch.float64)
        if self.size > 1:
            dist.all_reduce(values)
        return values.cpu()

    def mean(self, values: Mapping[str, float]) -> dict[str, float]:
        """The mean over ranks of named numbers; every rank must give the same names."""
        if self.size == 1:
            return dict(values)
        total = self.sum(torch.tensor([float(v) for v in values.values()], dtype=torch.float64)) / self.size
        return dict(zip(values, total.tolist(), strict=True))

    def any(self, flag: bool) -> bool:
        """Whether any rank raises the flag."""
        return flag if self.size == 1 else bool(self.sum(torch.tensor([float(flag)]))[0] > 0)

    def broadcast_json(self, value: Any) -> Any:
        """The first rank's plain value, on all ranks."""
        if self.size == 1:
            return value
        payload = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(self.device)
        length = self.sum(torch.tensor([len(payload) if self.is_first else 0]))
        if not self.is_first:
            payload = torch.empty(int(length[0]), dtype=torch.uint8, device=self.device)
        dist.broadcast(payload, src=0)
        return json.loads(bytes(payload.cpu().numpy()))

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Overwrite a tensor by the first rank's, in place."""
        if self.size > 1:
            moved = tensor.detach().to(self.device).contiguous()
            dist.broadcast(moved, src=0)
            tensor.detach().copy_(moved)

    def all_gather_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """(N_rank, ...) -> (sum of N_rank, ...): the rows of all ranks in rank order, the same on every rank."""
        if self.size == 1:
            return rows
        rows = rows.detach().contiguous()
        lengths = torch.zeros(self.size, dtype=torch.float64)
        lengths[self.rank] = len(rows)
        counts = [int(n) for n in self.sum(lengths)]
        padded = rows.new_zeros((max(counts), *rows.shape[1:]))
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded)
        return torch.cat([part[:n] for part, n in zip(gathered, counts, strict=True)])


def choose_device(name: str = "auto") -> torch.device:
    """ "auto" takes the local rank's GPU where there is one; else a torch device name."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UsageError(f"`device` must be auto, cpu, cuda or cuda:N, got {name!r}")
    device = torch.device(name)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise UsageError("`device` cuda was asked for, but torch sees no GPU; use cpu")
        if ":" not in name:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    return device


@contextlib.contextmanager
def open_world(device: str = "auto", *, patience: timedelta | None = None) -> Iterator[World]:
    """Join the ranks that torchrun started (RANK, WORLD_SIZE), or be alone. Leaves the group again if it joined it.

    patience: how long a rank waits for the others before it gives up; None is PyTorch's own half hour or less.
    """
    chosen = choose_device(device)
    if dist.is_initialized():
        yield World(device=chosen, rank=dist.get_rank(), size=dist.get_world_size())
        return
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(device=chosen)
        return
    store, rank, size = next(iter(rendezvous("env://")))
    # torchrun keeps one store over restarts: without a prefix of its own, a restarted rank would find dead addresses.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    backend = "nccl" if chosen.type == "cuda" else "gloo"
    prefixed = PrefixStore(f"attempt_{attempt}", store)
    dist.init_process_group(backend, store=prefixed, rank=rank, world_size=size, timeout=patience)
    try:
        yield World(device=chosen, rank=dist.get_rank(), size=size)
    finally:
        dist.destroy_process_group()


def gather_to_first(tensors: Mapping[str, torch.Tensor], world: World) -> dict[str, torch.Tensor]:
    """Whole tensors on the CPU of the first rank, none on the others; all ranks must call it with the same names."""
    gathered = {}
    for name, tensor in tensors.items():
        if world.is_first:
            gathered[name] = full_tensor(tensor)
        elif isinstance(tensor, DTensor):
            tensor.full_tensor()  # takes part, keeps nothing
    return gathered


def load_full_tensor(target: torch.Tensor, value: torch.Tensor | None, world: World) -> None:
    """Fill a (possibly sharded) tensor on all ranks from the first rank's whole value, in place."""
    if isinstance(target, DTensor):
        whole = torch.empty(target.shape, dtype=target.dtype, device=world.device)
        if value is not None:
            whole.copy_(value)
        world.broadcast(whole)
        shard = _local_part(whole, target)
        target.to_local().detach().copy_(shard)
        return
    if value is not None:
        target.detach().copy_(value)
    world.broadcast(target)


def _local_part(whole: torch.Tensor, like: DTensor) -> torch.Tensor:
    from torch.distributed.tensor import Replicate, distribute_tensor

    replicated = distribute_tensor(whole, like.device_mesh, [Replicate()] * like.device_mesh.ndim)
    return replicated.redistribute(placements=like.placements).to_local()


def broadcast_module_state(module: nn.Module, world: World) -> None:
    """Overwrite all parameters and persistent buffers by the first rank's."""
    if world.size > 1:
        for _, tensor in named_state(module):
            if not isinstance(tensor, DTensor):
                world.broadcast(tensor)


def module_fingerprint(module: nn.Module) -> str:
    """sha256 over the bytes of all whole (not sharded) parameters and persistent buffers."""
    digest = hashlib.sha256()
    for name, tensor in named_state(module):
        if not isinstance(tensor, DTensor):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_ranks_agree(module: nn.Module, world: World) -> None:
    """Raise TrainingError on all ranks unless they hold the same parameters and buffers."""
    if world.size == 1:
        return
    mine = module_fingerprint(module)
    if world.any(mine != world.broadcast_json(mine)):
        raise TrainingError(
            "the ranks hold different weights or buffers: some state was changed on one rank only. State that changes "
            "outside the optimizer must be made from World.all_gather_rows and the step's counter; see docs/training.md"
        )

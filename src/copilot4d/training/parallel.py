"""The model as the ranks share it: alone, under DDP, or sharded by `fully_shard`."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from copilot4d.counter import StepCounter
from copilot4d.errors import UsageError
from copilot4d.training.distributed import World
from copilot4d.training.settings import TrainingConfig
from copilot4d.training.task import TrainingTask

# DDP's name for copying the first rank's buffers at each forward pass, by torch version
_BUFFER_SYNC = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel.__init__).parameters
    else "broadcast_buffers"
)


class _LossModule(nn.Module):
    """The loss as a module's forward pass: what DDP and fully_shard wrap, so that tasks may call any model method."""

    def __init__(self, task: TrainingTask, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._task = task

    def forward(self, batch: Any, counter: StepCounter) -> dict[str, torch.Tensor]:
        losses = dict(self._task.loss(self.model, batch, counter))
        total = losses.get("total")
        if not isinstance(total, torch.Tensor) or total.numel() != 1:
            raise UsageError(f"{self._task.name}: loss() must give a scalar 'total', got {sorted(losses)}")
        # Only the total carries a graph out: DDP waits for every output that could be differentiated.
        return {name: value if name == "total" else value.detach() for name, value in losses.items()}


class Parallel:
    """Wraps a model for training on `world`. The model's own parameter names stay as they are."""

    def __init__(self, task: TrainingTask, model: nn.Module, config: TrainingConfig, world: World) -> None:
        self.model, self.world = model, world
        if config.compile:
            for module in task.compile_targets(model):
                module.compile()
        self._wrapped: nn.Module = _LossModule(task, model)
        if config.parallel == "fully_shard":
            if world.size == 1:
                raise UsageError(
                    "training.parallel fully_shard needs several ranks; start it with torchrun, or use ddp"
                )
            for unit in task.shard_units(model):
                fully_shard(unit)
            fully_shard(self._wrapped)
        elif world.size > 1:
            self._wrapped = DistributedDataParallel(
                self._wrapped,
                device_ids=[world.device.index] if world.device.type == "cuda" else None,
                **cast(dict[str, Any], {_BUFFER_SYNC: False}),  # buffers change in `after_step`, on all ranks alike
                find_unused_parameters=task.may_skip_parameters,
                gradient_as_bucket_view=True,
            )

    def close(self) -> None:
        """Let go of the ranks; the process group can then be left safely.

        DDP's C++ part keeps the group alive. If it were the last to hold it, Python would wait, with its global lock
        taken, for the group's threads, which wait for the lock; an error's traceback can keep DDP alive that long.
        """
        if isinstance(self._wrapped, DistributedDataParallel):
            del self._wrapped.reducer, self._wrapped.logger
        self._wrapped = nn.Identity()

    def loss(self, batch: Any, counter: StepCounter) -> Mapping[str, torch.Tensor]:
        """The task's losses on this rank's micro-batch."""
        return self._wrapped(batch, counter)  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def gradients(self, *, synchronised: bool) -> Iterator[None]:
        """Inside, backward passes reduce gradients over ranks only if `synchronised` (the last of an update)."""
        if isinstance(self._wrapped, FSDPModule):
            self._wrapped.set_requires_gradient_sync(synchronised)
            yield
        elif isinstance(self._wrapped, DistributedDataParallel) and not synchronised:
            with self._wrapped.no_sync():
                yield
        else:
            yield

    def gradient_norm(self) -> torch.Tensor:
        """The common norm of all gradients, over all shards."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def clip_gradients(self, max_norm: float, norm: torch.Tensor) -> None:
        """Scale all gradients, whose common norm is `norm`, so that it is at most `max_norm`."""
        nn.utils.clip_grads_with_norm_(self.model.parameters(), max_norm, norm)

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Inside, the model can be called directly, sharded or not; all ranks must enter together."""
        if isinstance(self._wrapped, FSDPModule):
            self._wrapped.unshard()
            try:
                yield
            finally:
                self._wrapped.reshard()
        else:
            yield

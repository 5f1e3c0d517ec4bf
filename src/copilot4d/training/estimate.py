"""What a run will cost, before it starts: memory, time and disk, from one measured pass over the first batch."""

from __future__ import annotations

import math
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from copilot4d.counter import SampleKey, StepCounter, slots_of
from copilot4d.progress import duration
from copilot4d.training.data import to_device
from copilot4d.training.distributed import World
from copilot4d.training.precision import Precision
from copilot4d.training.settings import TrainingConfig
from copilot4d.training.task import TrainingTask


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Per rank, where it says nothing else. Bytes and seconds."""

    parameters: int
    state_bytes: int  # weights, gradients, moments, moving average
    activation_bytes: int  # kept for the backward pass of one micro-batch
    step_s: float
    load_s: float  # to make the samples of one step in one process
    steps: int  # that are left
    checkpoint_bytes: int
    disk_bytes: int  # all checkpoints that will be kept, and the one being written
    free_bytes: int
    batch_per_pass: int

    @property
    def memory_bytes(self) -> int:
        """What one rank holds at its peak, about."""
        return self.state_bytes + self.activation_bytes

    def text(self) -> str:
        """For a person."""
        starved = self.load_s / self.step_s if self.step_s else 0.0
        lines = [
            f"{self.parameters / 1e6:.2f} M parameters; memory about {size(self.memory_bytes)} per rank "
            f"({size(self.state_bytes)} weights, gradients and moments; {size(self.activation_bytes)} activations of "
            f"{self.batch_per_pass} samples)",
            f"time about {duration(self.step_s * self.steps)} for {self.steps} steps of {self.step_s:.3g} s, plus "
            f"evaluation; data needs {starved:.1f} loader workers to keep up",
            f"disk about {size(self.disk_bytes)} for checkpoints of {size(self.checkpoint_bytes)}; "
            f"{size(self.free_bytes)} are free",
        ]
        if self.disk_bytes > self.free_bytes:
            lines.append("the disk is too small: make room or lower training.keep_last")
        return "\n".join(lines)


def size(count: float) -> str:
    """1536 -> '1.5 kB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def estimate(
    task: TrainingTask,
    model: nn.Module,
    config: TrainingConfig,
    world: World,
    precision: Precision,
    first_step: int = 0,
) -> Estimate:
    """Run the first micro-batch forward and backward twice; weights, buffers and gradients are as before afterwards.

    A model that is to be sharded may not fit a single rank: its state is divided, time and activations stay unknown.
    """
    sharded = config.parallel == "fully_shard"
    activations, step_s, load_s = (
        (0, math.nan, math.nan) if sharded else _measure(task, model, config, world, precision, first_step)
    )
    trainable = _bytes(p for p in model.parameters() if p.requires_grad)
    weights = _bytes(model.parameters()) + _bytes(model.buffers())
    average = _bytes(model.parameters()) if config.recipe.ema_decay is not None else 0
    checkpoint = weights + 2 * trainable + average
    return Estimate(
        parameters=sum(p.numel() for p in model.parameters()),
        state_bytes=(checkpoint + trainable) // (world.size if sharded else 1),  # gradients are not saved
        activation_bytes=activations,
        step_s=step_s,
        load_s=load_s,
        steps=max(0, config.steps - first_step),
        checkpoint_bytes=checkpoint,
        disk_bytes=checkpoint * (config.keep_last + 2),
        free_bytes=shutil.disk_usage(_existing(config.run)).free,
        batch_per_pass=config.batch_per_pass(world.size),
    )


def _measure(
    task: TrainingTask, model: nn.Module, config: TrainingConfig, world: World, precision: Precision, first_step: int
) -> tuple[int, float, float]:
    """Bytes of activations of one pass, seconds of one step, seconds to make its samples in one process."""
    indices = slots_of(config.recipe.batch, world.size, world.rank, config.accumulation)[0]
    keys = [SampleKey(seed=config.seed, step=first_step, index=i, batch=config.recipe.batch) for i in indices]
    start = time.perf_counter()
    batch = to_device(task.collate([task.sample(key) for key in keys]), world.device)
    load_s = (time.perf_counter() - start) * config.accumulation
    buffers = [(b, b.detach().clone()) for b in model.buffers()]
    counter = StepCounter(seed=config.seed, step=first_step, indices=indices)
    activations = _Activations(model)
    with activations.counted():
        _pass(task, model, batch, counter, precision, world)
    start = time.perf_counter()
    _pass(task, model, batch, counter, precision, world)
    step_s = (time.perf_counter() - start) * config.accumulation
    with torch.no_grad():
        for buffer, value in buffers:
            buffer.copy_(value)
    return activations.bytes, step_s, load_s


class _Activations:
    """Counts the storages that autograd keeps for the backward pass, each once, without the weights."""

    def __init__(self, model: nn.Module) -> None:
        self._known = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
        self._kept: list[torch.Tensor] = []  # alive, so that no address is used twice
        self.bytes = 0

    def counted(self) -> Any:
        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self._known:
                self._known.add(storage.data_ptr())
                self._kept.append(tensor.detach())
                self.bytes += storage.nbytes()
            return tensor

        return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)


def _pass(
    task: TrainingTask, model: nn.Module, batch: Any, counter: StepCounter, precision: Precision, world: World
) -> None:
    with precision.autocast(world.device):
        total = task.loss(model, batch, counter)["total"]
    total.backward()  # type: ignore[no-untyped-call]
    if world.device.type == "cuda":
        torch.cuda.synchronize()
    model.zero_grad(set_to_none=True)


def _bytes(tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path

"""What can go wrong in a long run, and how it ends: signals, numbers that are not finite, no memory."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from copilot4d.counter import SampleKey
from copilot4d.errors import TrainingError
from copilot4d.training.distributed import World
from copilot4d.training.task import TrainingTask

STOP_SIGNALS = (int(signal.SIGTERM), int(signal.SIGINT))


class StopSignals:
    """While entered, SIGTERM and SIGINT ask for a stop after the current step; a second SIGINT interrupts at once.

    Outside the main thread, where Python cannot handle signals, it does nothing.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number


@dataclass(frozen=True, kw_only=True)
class BadStep:
    """A step whose loss or gradient is not finite, on this rank."""

    step: int
    seed: int
    batch: int
    indices: tuple[int, ...]
    losses: Mapping[str, float]
    gradient_norm: float
    bad_gradients: Sequence[str]

    def write(self, run: Path, task: TrainingTask, world: World) -> Path:
        """Save the batch's identity in the run's folder: enough to make the same batch again."""
        keys = [SampleKey(seed=self.seed, step=self.step, index=i, batch=self.batch) for i in self.indices]
        report = {
            "step": self.step,
            "seed": self.seed,
            "batch": self.batch,
            "rank": world.rank,
            "ranks": world.size,
            "indices": list(self.indices),
            "samples": [dict(task.describe(key)) for key in keys],
            "losses": {name: repr(value) for name, value in self.losses.items()},
            "gradient_norm": repr(self.gradient_norm),
            "parameters_with_bad_gradients": list(self.bad_gradients),
        }
        path = run / "faults" / f"step_{self.step:09d}_rank_{world.rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1), encoding="utf-8")
        return path

    def error(self, path: Path, last_checkpoint: str) -> TrainingError:
        """What to say."""
        shown = ", ".join(f"{name} {value:.6g}" for name, value in self.losses.items())
        return TrainingError(
            f"step {self.step}: the loss or its gradient is not finite ({shown}; gradient norm "
            f"{self.gradient_norm:.6g}). The weights were not updated; the batch's identity is in {path}; "
            f"{last_checkpoint}. Look at these samples; "
            "a lower training.recipe.learning_rate, a smaller training.recipe.clip_norm or fp32 as training.precision "
            "are the usual remedies"
        )


def bad_gradients(model: nn.Module, limit: int = 20) -> list[str]:
    """Names of parameters whose gradient is not finite, the first few."""
    bad = [n for n, p in model.named_parameters() if p.grad is not None and not bool(torch.isfinite(p.grad).all())]
    return bad[:limit]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on a GPU or in the main memory."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    words = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in words or "not enough memory" in words)


def out_of_memory(
    error: BaseException, step: int, per_pass: int, accumulation: int, precision: str, last_checkpoint: str
) -> TrainingError:
    """What to change."""
    advice = []
    if per_pass > 1:
        advice.append(f"double training.accumulation (now {accumulation}; {per_pass} samples are in memory at once)")
    if precision == "fp32":
        advice.append("set training.precision to bf16")
    advice += ["use more ranks with fully_shard as training.parallel", "or a smaller preset"]
    return TrainingError(
        f"step {step}: out of memory ({str(error).splitlines()[0] if str(error) else type(error).__name__}). To fit: "
        f"{', '.join(advice)}. The result of training does not depend on the accumulation; {last_checkpoint}"
    )

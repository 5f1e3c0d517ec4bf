"""What can go wrong in a long run, and how it ends: numbers that are not finite, no memory, no disk, dead workers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from copilot4d.checkpoints.sealed_folder import no_space_left
from copilot4d.counter import SampleKey
from copilot4d.errors import Copilot4dError, TrainingError
from copilot4d.training.data import dead_worker, worker_died
from copilot4d.training.distributed import World
from copilot4d.training.settings import TrainingConfig
from copilot4d.training.task import TrainingTask


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


@contextlib.contextmanager
def faults_explained(
    config: TrainingConfig, world: World, precision: str, *, step: Callable[[], int], last_checkpoint: Callable[[], str]
) -> Iterator[None]:
    """Turn what the system throws at a run into errors that say what happened and what to do."""
    try:
        yield
    except Copilot4dError:
        raise
    except (RuntimeError, MemoryError, OSError) as error:
        if worker_died(error):
            raise dead_worker(error, config.workers) from error
        if is_out_of_memory(error):
            raise out_of_memory(
                error, step(), config.batch_per_pass(world.size), config.accumulation, precision, last_checkpoint()
            ) from error
        if no_space_left(error):
            raise TrainingError(
                f"{config.run}: the disk is full ({error}); {last_checkpoint()}. Make room and start the "
                "same command again to go on from there"
            ) from error
        raise

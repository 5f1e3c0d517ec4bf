"""Batches by counter: worker processes make the samples of (step, slot), whoever they are and whenever they start."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from copilot4d.counter import SampleKey, slots_of
from copilot4d.errors import Copilot4dError, TrainingError
from copilot4d.training.distributed import World
from copilot4d.training.task import TrainingTask


@dataclass(frozen=True, kw_only=True)
class LoadedBatch:
    """One micro-batch: the slots of the global batch that it holds, and the task's data."""

    step: int
    indices: tuple[int, ...]
    data: Any


@dataclass(frozen=True, kw_only=True)
class _Failure:
    """An error of ours, carried out of a worker as it is: the loader would turn it into text."""

    error: Copilot4dError


class _Samples(Dataset[Any]):
    def __init__(self, task: TrainingTask, seed: int, batch: int) -> None:
        self.task, self.seed, self.batch = task, seed, batch

    def __getitems__(self, slots: Sequence[tuple[int, int]]) -> LoadedBatch | _Failure:
        keys = [SampleKey(seed=self.seed, step=step, index=index, batch=self.batch) for step, index in slots]
        try:
            data = self.task.collate([self.task.sample(key) for key in keys])
        except Copilot4dError as error:
            return _Failure(error=error)
        return LoadedBatch(step=keys[0].step, indices=tuple(k.index for k in keys), data=data)

    def __getitem__(self, slot: tuple[int, int]) -> Any:
        return self.__getitems__([slot])


class _Slots(Sampler[list[tuple[int, int]]]):
    """The slots of this rank's micro-batches, from a step on."""

    def __init__(self, first_step: int, last_step: int, slots: Sequence[tuple[int, ...]]) -> None:
        self.first_step, self.last_step, self.slots = first_step, last_step, slots

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for step in range(self.first_step, self.last_step):
            for indices in self.slots:
                yield [(step, index) for index in indices]


class Batches:
    """An iterator over a rank's micro-batches of steps [first_step, last_step), which measures how long it waits."""

    def __init__(
        self, task: TrainingTask, world: World, *, seed: int, batch: int, accumulation: int, first_step: int,
        last_step: int, workers: int, prefetch: int,
    ) -> None:  # fmt: skip
        slots = slots_of(batch, world.size, world.rank, accumulation)
        self.waited_s = 0.0
        self.world = world
        self.workers = workers
        self._loader: DataLoader[Any] = DataLoader(
            _Samples(task, seed, batch),
            batch_sampler=_Slots(first_step, last_step, slots),
            collate_fn=_as_is,
            num_workers=workers,
            prefetch_factor=prefetch if workers else None,
            pin_memory=world.device.type == "cuda",
            worker_init_fn=_ignore_signals if workers else None,
        )
        self._iterator: Iterator[Any] | None = None

    def __enter__(self) -> Batches:
        self._iterator = iter(self._loader)
        return self

    def __exit__(self, *exception: object) -> None:
        # An error's traceback may keep the iterator alive, and with it the workers: end them now.
        shutdown = getattr(self._iterator, "_shutdown_workers", None)
        self._iterator = None
        if shutdown is None:
            return
        try:
            shutdown()
        except RuntimeError as error:  # torch's signal handler tells of a dead worker, and may do so only now:
            if not worker_died(error):  # whoever needed its batch has been told already
                raise

    def __next__(self) -> LoadedBatch:
        assert self._iterator is not None, "use `with Batches(...) as batches`"
        start = time.perf_counter()
        try:
            loaded: LoadedBatch | _Failure = next(self._iterator)
        except (RuntimeError, OSError, EOFError) as error:
            if worker_died(error) or (self.workers and lost_connection(error)):
                raise dead_worker(error, self.workers) from error
            raise
        finally:
            self.waited_s += time.perf_counter() - start
        if isinstance(loaded, _Failure):
            raise loaded.error
        return dataclasses.replace(loaded, data=to_device(loaded.data, self.world.device))


def worker_died(error: BaseException) -> bool:
    """Whether an error says that a loader worker is gone. torch may raise it anywhere, from a signal handler."""
    return isinstance(error, RuntimeError) and "DataLoader worker (pid" in str(error)


def lost_connection(error: BaseException) -> bool:
    """Whether fetching a batch failed because the worker that holds its memory is gone.

    Errors of a sample itself carry the loader's "Caught ... in DataLoader worker process" and are not meant.
    """
    gone = isinstance(error, (ConnectionError, EOFError, FileNotFoundError))
    return gone and "in DataLoader worker process" not in str(error)


def dead_worker(error: BaseException, workers: int) -> TrainingError:
    """What to say then."""
    return TrainingError(
        f"a data loader worker died ({error}). Most often the system killed it for want of memory: start the same "
        f"command again with fewer training.workers (now {workers}); 0 loads in the training process and shows the "
        "cause. The last checkpoint is intact"
    )


def to_device(data: Any, device: torch.device) -> Any:
    """Move all tensors in lists, tuples, mappings and dataclasses."""
    if device.type == "cpu":
        return data
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, dict):
        return {k: to_device(v, device) for k, v in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(to_device(v, device) for v in data))
    if isinstance(data, (list, tuple)):
        return type(data)(to_device(v, device) for v in data)
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        names = [f.name for f in dataclasses.fields(data) if f.init]
        return dataclasses.replace(data, **{n: to_device(getattr(data, n), device) for n in names})
    return data


def _as_is(batch: Any) -> Any:
    return batch


def _ignore_signals(worker: int) -> None:
    """Ctrl-C and a scheduler's SIGTERM reach all processes; only the training process answers them.

    A second SIGTERM ends the worker: Python sends one at exit to a worker that is still there, and waits for its end.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _mortal_from_now_on)


def _mortal_from_now_on(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

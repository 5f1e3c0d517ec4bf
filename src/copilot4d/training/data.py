"""Batches by counter: worker processes make the samples of (step, slot), whoever they are and whenever they start."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info
from torch.utils.data._utils import signal_handling

from copilot4d.counter import SampleKey, slots_of
from copilot4d.errors import Copilot4dError, TrainingError
from copilot4d.training.distributed import World
from copilot4d.training.loader_watch import LoaderWatch, Watchdog
from copilot4d.training.stop_signals import StopNow
from copilot4d.training.task import TrainingTask

PATIENCE_S = 600.0  # for one batch


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
    def __init__(self, task: TrainingTask, seed: int, batch: int, watch: LoaderWatch) -> None:
        self.task, self.seed, self.batch, self.watch = task, seed, batch, watch

    def __getitems__(self, slots: Sequence[tuple[int, int]]) -> LoadedBatch | _Failure:
        keys = [SampleKey(seed=self.seed, step=step, index=index, batch=self.batch) for step, index in slots]
        worker = get_worker_info()
        at_work = contextlib.nullcontext() if worker is None else self.watch.at_work(worker.id, keys[0].step)
        try:
            with at_work:
                data = self.task.collate([self.task.sample(key) for key in keys])
                if worker is not None:
                    _share(data)
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
    """An iterator over a rank's micro-batches of steps [first_step, last_step), which measures how long it waits.

    `asked_to_stop` ends a wait with `StopNow`; a worker that takes longer than `patience_s` is named in a
    StalledLoaderError. `report` gets remarks before that.
    """

    def __init__(
        self, task: TrainingTask, world: World, *, seed: int, batch: int, accumulation: int, first_step: int,
        last_step: int, workers: int, prefetch: int, patience_s: float = PATIENCE_S,
        asked_to_stop: Callable[[], bool] = lambda: False, report: Callable[[str], None] = lambda message: None,
    ) -> None:  # fmt: skip
        slots = slots_of(batch, world.size, world.rank, accumulation)
        self.waited_s = 0.0
        self.gave_up = False  # on a worker that does not answer
        self.world = world
        self.workers = workers
        self._step = first_step
        watch = LoaderWatch(workers, patience_s)
        self._dog = Watchdog(watch, kill=self._kill_workers, asked_to_stop=asked_to_stop, report=report)
        self._loader: DataLoader[Any] = DataLoader(
            _Samples(task, seed, batch, watch),
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
        if self.workers:  # only now: a fork leaves threads behind
            self._dog.start()
        return self

    def __exit__(self, *exception: object) -> None:
        # An error's traceback may keep the iterator alive, and with it the workers: end them now.
        shutdown = getattr(self._iterator, "_shutdown_workers", None)
        if shutdown is None:
            self._iterator = None
            return
        if self.gave_up:  # torch's own way asks the workers, and waits for locks that they may have held
            setattr(self._iterator, "_shutdown", True)  # noqa: B010 -- it is torch's own
        for end in (self._dog.end, shutdown, self._kill_workers, self._join_workers):
            for _ in range(1 + self.workers):  # again where it was cut short: each worker's death may be told once
                try:
                    end()
                    break
                except RuntimeError as error:  # torch's signal handler tells of a dead worker, and may do so only now:
                    if not worker_died(error):  # whoever needed its batch has been told already
                        raise
        self._iterator = None

    def __next__(self) -> LoadedBatch:
        return self.fetch()

    def fetch(self, *, stop_after_s: float = 0.0) -> LoadedBatch:
        """The next micro-batch. stop_after_s: how long it may still take once a stop was asked for."""
        assert self._iterator is not None, "use `with Batches(...) as batches`"
        start = time.perf_counter()
        try:
            with self._dog.waiting(self._step, stop_after_s):
                loaded: LoadedBatch | _Failure = next(self._iterator)
        except (RuntimeError, OSError, EOFError) as error:
            if self._dog.reason is not None:
                self.gave_up = True
                raise self._dog.reason from error
            if worker_died(error) or (self.workers and lost_connection(error)):
                raise dead_worker(error, self.workers) from error
            raise
        except StopNow:
            self.gave_up = True
            raise
        finally:
            self.waited_s += time.perf_counter() - start
        if isinstance(loaded, _Failure):
            raise loaded.error
        self._step = loaded.step
        return dataclasses.replace(loaded, data=to_device(loaded.data, self.world.device))

    def _kill_workers(self) -> None:
        """A process that is stopped reacts to SIGKILL alone; at the end, Python would wait for it for ever."""
        if getattr(self._iterator, "_worker_pids_set", False):
            # The wait ends with an error of its own: torch's signal handler would raise a second one, at any point.
            getattr(signal_handling, "_remove_worker_pids")(id(self._iterator))  # noqa: B009 -- it is torch's own
            setattr(self._iterator, "_worker_pids_set", False)  # noqa: B010 -- it is torch's own
        for worker in getattr(self._iterator, "_workers", ()):
            worker.kill()

    def _join_workers(self) -> None:
        for worker in getattr(self._iterator, "_workers", ()):
            worker.join()


def _share(data: Any) -> None:
    """Move a batch into shared memory here and now: torch would do it in a thread, whose errors get lost."""
    try:
        _each_tensor(data, torch.Tensor.share_memory_)
    except (RuntimeError, OSError) as error:
        raise TrainingError(
            f"a loader worker found no room for its batch in shared memory ({str(error).splitlines()[0]}). Make "
            "/dev/shm larger (a container's shm-size), raise the limit on file sizes (ulimit -f), or use fewer "
            "training.workers; 0 needs none"
        ) from error


def _each_tensor(data: Any, act: Callable[[torch.Tensor], object]) -> None:
    if isinstance(data, torch.Tensor):
        act(data)
    elif isinstance(data, dict):
        for value in data.values():
            _each_tensor(value, act)
    elif isinstance(data, (list, tuple)):
        for value in data:
            _each_tensor(value, act)
    elif dataclasses.is_dataclass(data) and not isinstance(data, type):
        for each in dataclasses.fields(data):
            _each_tensor(getattr(data, each.name), act)


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

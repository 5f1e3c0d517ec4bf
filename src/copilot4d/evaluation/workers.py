"""Windows through a forecaster, one after another or in processes side by side: the same numbers in the same order.

Each process opens the data and loads the model by itself, from the same files, and takes a few windows at a time: those
beside each other share most of their sweeps. While one reads, another forecasts and a third scores.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from copilot4d.datasets.windows import Window, read_clip
from copilot4d.errors import Copilot4dError, ForecastError, UsageError
from copilot4d.evaluation.moving_rays import moving_points
from copilot4d.evaluation.protocol import Protocol
from copilot4d.evaluation.scores import SkippedSweep
from copilot4d.evaluation.sweep_cache import CachedDrives
from copilot4d.evaluation.window_score import Sampling, WindowScore, score_window
from copilot4d.forecaster import Forecaster
from copilot4d.geometry import Drive

AT_ONCE = 4  # windows that a process takes at most


@dataclass(frozen=True)
class Workers:
    """How many processes; and what each calls, once, for its forecaster and drives. It is sent to them by its name: a
    function of a module, with arguments by `functools.partial`.
    """

    count: int
    make: Callable[[], tuple[Forecaster, Mapping[str, Drive]]]

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UsageError(f"`workers` must be at least 1, got {self.count}")


@dataclass(frozen=True)
class Job:
    """What is done with every window."""

    protocol: Protocol
    sampling: Sampling
    skips: bool  # windows with a sweep that cannot be read; else that is an error
    span: int  # sweeps that windows beside each other share


@dataclass(frozen=True)
class Outcome:
    """Of one window: its scores, or the sweeps that could not be read."""

    scored: WindowScore | None
    unreadable: list[SkippedSweep]


Outcomes = Generator[Outcome, None, None]


def one_by_one(job: Job, forecaster: Forecaster, drives: CachedDrives, windows: Sequence[Window]) -> Outcomes:
    """The outcomes of windows, in this process."""
    for window in windows:
        unreadable = drives.unreadable(window) if job.skips else []
        if unreadable:
            yield Outcome(None, unreadable)
        else:
            drive = drives[window.drive]
            moving = [moving_points(drive, frame) for frame in window.future]
            clip = read_clip(drive, window)
            yield Outcome(score_window(job.protocol, forecaster, clip, job.sampling, moving), [])


def outcomes(job: Job, windows: Sequence[Window], workers: Workers) -> Outcomes:
    """The same from several processes, in the windows' order. An error is raised where its window's turn is."""
    size = max(1, min(AT_ONCE, -(-len(windows) // workers.count)))
    parts = deque(windows[i : i + size] for i in range(0, len(windows), size))
    waiting: deque[Future[tuple[list[Outcome], Exception | None]]] = deque()
    with _few_threads(workers.count):
        pool = ProcessPoolExecutor(
            workers.count, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(job, workers.make)
        )
        try:
            while parts or waiting:
                while parts and len(waiting) < workers.count + 1:  # one more than are at work: nobody waits
                    waiting.append(pool.submit(_work, parts.popleft()))
                made, error = waiting.popleft().result()
                yield from made
                if error is not None:
                    raise error
        except BrokenProcessPool as gone:
            raise ForecastError(
                f"one of {workers.count} worker processes has ended: it was killed, or the memory was not enough. What "
                "was scored before is kept where the run can be resumed; use fewer workers"
            ) from gone
        finally:
            processes = list((getattr(pool, "_processes", None) or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:  # at an interrupt they may be in the middle of a forecast, or stopped
                process.kill()


@contextlib.contextmanager
def _few_threads(processes: int) -> Iterator[None]:
    """While it lasts, processes that are started share the cores between them."""
    before = os.environ.get("OMP_NUM_THREADS")
    share = max(1, (os.cpu_count() or 1) // processes)
    os.environ["OMP_NUM_THREADS"] = str(min(share, int(before)) if before and before.isdigit() else share)
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


_at_work: dict[str, Callable[[Sequence[Window]], Iterator[Outcome]]] = {}


def _begin(job: Job, make: Callable[[], tuple[Forecaster, Mapping[str, Drive]]]) -> None:
    """In a new process."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach all: the first process answers, and ends the others
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    forecaster, drives = make()
    cached = CachedDrives(drives, capacity=job.span)
    _at_work["windows"] = lambda windows: one_by_one(job, forecaster, cached, windows)


def _end_with_the_parent() -> None:
    """A parent that was killed cannot end its processes: each of them watches it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # at once: the result has no receiver


def _work(windows: Sequence[Window]) -> tuple[list[Outcome], Exception | None]:
    """In that process: the outcomes up to the first error, and that error."""
    made: list[Outcome] = []
    try:
        made.extend(_at_work["windows"](windows))
    except Copilot4dError as error:
        return made, error
    return made, None

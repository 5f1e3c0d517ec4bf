"""`LoaderWatch`: what each loader worker is doing. `Watchdog`: ends a wait for a worker that does nothing.

Workers write into memory that they share with the training process; nothing is sent, so nothing can be lost.
"""

from __future__ import annotations

import contextlib
import multiprocessing.sharedctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from copilot4d.errors import TrainingError
from copilot4d.training.stop_signals import StopNow

POLL_S = 1.0
FIRST_REMARK_S = 30.0
_FIELDS = 3  # process, step at work, since when; the step is -1 where a worker waits for work
_STATES = {"T": "stopped", "t": "stopped by a debugger", "D": "waiting for a disk", "Z": "dead"}  # Linux's letters


class StalledLoaderError(TrainingError):
    """No batch came for longer than anybody wants to wait."""


class LoaderWatch:
    """Kept by the training process, filled by its workers; `remarks` and `stalled` put it into words.

    patience_s: how long a batch may take before `stalled`; 0 is for ever.
    """

    def __init__(self, workers: int, patience_s: float) -> None:
        self.workers, self.patience_s = workers, patience_s
        self._state = multiprocessing.sharedctypes.RawArray("d", _FIELDS * max(1, workers))
        self._state[:] = [0.0, -1.0, 0.0] * max(1, workers)
        self._next_remark_s = FIRST_REMARK_S

    @contextlib.contextmanager
    def at_work(self, worker: int, step: int) -> Iterator[None]:
        """In a worker: it makes a batch of this step."""
        at = _FIELDS * worker
        self._state[at : at + _FIELDS] = [float(os.getpid()), float(step), time.monotonic()]
        try:
            yield
        finally:
            self._state[at + 1] = -1.0

    def arrived(self) -> None:
        """The batch that was waited for is there."""
        self._next_remark_s = FIRST_REMARK_S

    def remark(self, waited_s: float, step: int) -> str | None:
        """Something to say after so long a wait for a batch: after half a minute, and each time that it doubles."""
        if waited_s < self._next_remark_s:
            return None
        self._next_remark_s = 2 * max(waited_s, FIRST_REMARK_S)
        return f"step {step}: waiting for data for {waited_s:.0f} s: {self.doing()}"

    def is_stalled(self, waited_s: float) -> bool:
        """Whether that is longer than anybody wants to wait."""
        return 0 < self.patience_s <= waited_s

    def stalled(self, waited_s: float, step: int) -> StalledLoaderError:
        """What to say then."""
        return StalledLoaderError(
            f"step {step}: no batch came from the loader for {waited_s:.0f} s: {self.doing()}. Look at that process "
            "(a file system that hangs, a full /dev/shm, a debugger). training.workers of 0 loads in the training "
            f"process and shows the cause; a larger training.loader_timeout_s (now {self.patience_s:g}) waits longer"
        )

    def doing(self) -> str:
        """Each worker in words."""
        return "; ".join(self._doing(worker) for worker in range(self.workers)) or "there are no workers"

    def _doing(self, worker: int) -> str:
        process, step, since = self._state[_FIELDS * worker : _FIELDS * (worker + 1)]
        if process == 0:
            return f"loader worker {worker} has not begun"
        name = f"loader worker {worker} (process {int(process)}{_process_state(int(process))})"
        if step < 0:
            return f"{name} has handed over its last batch"
        return f"{name} has been making a batch of step {int(step)} for {time.monotonic() - since:.0f} s"


class Watchdog:
    """A thread that looks at the clock while the training process waits for a batch.

    A process can wait for a worker where no signal and no timeout wakes it (it fetches memory from one that was
    stopped). What wakes it is the worker's end: so `kill` is called when the wait was long enough, and `reason` then
    says why, as the error to raise: `StalledLoaderError`, or `StopNow` where a stop was asked for.
    """

    def __init__(
        self, watch: LoaderWatch, *, kill: Callable[[], None], asked_to_stop: Callable[[], bool],
        report: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.reason: StalledLoaderError | StopNow | None = None
        self._watch, self._kill, self._asked_to_stop, self._report = watch, kill, asked_to_stop, report
        self._waiting: tuple[float, int, float] | None = None  # since when, for which step, patience with a stop
        self._asked_at: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loader watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    @contextlib.contextmanager
    def waiting(self, step: int, stop_after_s: float) -> Iterator[None]:
        """While the training process waits. stop_after_s: how long it may go on after a stop was asked for."""
        self._waiting = time.monotonic(), step, stop_after_s
        try:
            yield
        finally:
            self._waiting = None
            self._watch.arrived()

    def _run(self) -> None:
        while not self._over.wait(POLL_S) and self.reason is None:
            if self._waiting is not None:
                self._look(*self._waiting)
        if self.reason is not None:
            self._kill()

    def _look(self, since: float, step: int, stop_after_s: float) -> None:
        now = time.monotonic()
        waited_s = now - since
        if self._asked_to_stop():
            self._asked_at = now if self._asked_at is None else self._asked_at
            if now - self._asked_at >= stop_after_s:
                self.reason = StopNow()
                return
        if self._watch.is_stalled(waited_s):
            self.reason = self._watch.stalled(waited_s, step)
        elif remark := self._watch.remark(waited_s, step):
            self._report(remark)


def _process_state(process: int) -> str:
    """Whether the system says why a process does not move; nothing where it does not say."""
    try:
        letter = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except FileNotFoundError:
        return ", gone" if Path("/proc/self").exists() else ""
    except OSError:
        return ""
    state = _STATES.get(letter[0]) if letter else None
    return f", {state}" if state else ""

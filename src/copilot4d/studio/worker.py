"""One thread that imagines, for all windows of the studio: newest wishes win, and any of them can be taken back.

A wish is an iterator of work: the worker draws one item after the other (each is a frame) and looks in between whether
the wish still stands. Within an item a network's modules ask too, so that a frame of many diffusion steps ends early.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from copilot4d.errors import Copilot4dError

SETTLE_S = 0.15  # a slider that is still moving asks again within this time: only the last wish is begun
_log = logging.getLogger(__name__)


class CancelledError(Copilot4dError):
    """The wish was taken back while it was worked on."""


@dataclass
class Wish:
    """Work that somebody wants done. `work` is begun in the worker's thread; what it raises ends it."""

    owner: Hashable  # a newer wish of the same owner replaces this one
    work: Callable[[], Iterator[None]]
    failed: Callable[[Exception], None]
    due: float = 0.0  # on the monotonic clock
    cancelled: threading.Event = field(default_factory=threading.Event)


class Worker:
    """Works on one wish at a time, in the order in which owners asked."""

    def __init__(self, *, settle_s: float = SETTLE_S) -> None:
        self._settle_s = settle_s
        self._changed = threading.Condition()
        self._waiting: dict[Hashable, Wish] = {}
        self._running: Wish | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="copilot4d-studio-worker", daemon=True)
        self._thread.start()

    def ask(self, owner: Hashable, work: Callable[[], Iterator[None]], failed: Callable[[Exception], None]) -> Wish:
        """Put a wish in line. What the owner asked before is taken back, running or not."""
        wish = Wish(owner=owner, work=work, failed=failed, due=time.monotonic() + self._settle_s)
        with self._changed:
            self._take_back(owner)
            self._waiting[owner] = wish
            self._changed.notify_all()
        return wish

    def cancel(self, owner: Hashable) -> bool:
        """Take back what the owner asked; whether there was anything."""
        with self._changed:
            return self._take_back(owner)

    def is_busy_with_others(self, owner: Hashable) -> bool:
        """Whether somebody else's wish is being worked on."""
        with self._changed:
            return self._running is not None and self._running.owner != owner

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until nothing waits and nothing runs; whether that came true in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and self._running is None, timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        """Take everything back and end the thread."""
        with self._changed:
            self._closed = True
            for owner in [*self._waiting]:
                self._take_back(owner)
            if self._running is not None:
                self._running.cancelled.set()
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def _take_back(self, owner: Hashable) -> bool:
        waiting = self._waiting.pop(owner, None)
        running = self._running if self._running is not None and self._running.owner == owner else None
        was_running = running is not None and not running.cancelled.is_set()
        for wish in (waiting, running):
            if wish is not None:
                wish.cancelled.set()
        return waiting is not None or was_running

    def _run(self) -> None:
        while (wish := self._next()) is not None:
            try:
                self._fulfil(wish)
            finally:
                with self._changed:
                    self._running = None
                    self._changed.notify_all()

    def _next(self) -> Wish | None:
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                wish = next((w for w in self._waiting.values() if w.due <= now), None)
                if wish is not None:
                    del self._waiting[wish.owner]
                    self._running = wish
                    return wish
                soonest = min((w.due for w in self._waiting.values()), default=None)
                self._changed.wait(None if soonest is None else max(soonest - now, 0.001))
            return None

    def _fulfil(self, wish: Wish) -> None:
        try:
            with _interruptible(wish):
                for _ in wish.work():
                    if wish.cancelled.is_set():
                        return
        except CancelledError:
            return
        except Exception as error:  # whatever a model raises is told to whoever asked; the thread serves the others on
            if not isinstance(error, Copilot4dError):
                _log.exception("a forecast failed")
            if not wish.cancelled.is_set():
                wish.failed(error)


@contextmanager
def _interruptible(wish: Wish) -> Iterator[None]:
    """While inside, every call of a torch module in this thread first looks whether the wish still stands."""
    if "torch" not in sys.modules:  # nothing that could call a module; importing torch takes seconds
        yield
        return
    from torch.nn.modules.module import register_module_forward_pre_hook

    mine = threading.get_ident()

    def look(module: object, arguments: object) -> None:
        if wish.cancelled.is_set() and threading.get_ident() == mine:
            raise CancelledError("the forecast was cancelled")

    hook = register_module_forward_pre_hook(look)
    try:
        yield
    finally:
        hook.remove()

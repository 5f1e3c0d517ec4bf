"""SIGTERM and SIGINT while training: a stop after the current step, or at once where nothing is half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

STOP_SIGNALS = (int(signal.SIGTERM), int(signal.SIGINT))


class StopNow(BaseException):
    """A stop was asked for where nothing is half done: leave, save, end. No `except Exception` may hold it up."""


class StopSignals:
    """While entered, SIGTERM and SIGINT ask for a stop after the current step; a second SIGINT interrupts at once.

    Within `interrupting`, a stop is a `StopNow` at once. Outside the main thread, where Python cannot handle signals,
    it does nothing.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}
        self._interrupting = False

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def interrupting(self, wanted: bool = True) -> Iterator[None]:
        """Within it, a stop signal raises `StopNow`: for work that may be left at any point."""
        self._interrupting = wanted
        try:
            if wanted and self.received is not None:
                raise StopNow
            yield
        finally:
            self._interrupting = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
        if self._interrupting:
            raise StopNow

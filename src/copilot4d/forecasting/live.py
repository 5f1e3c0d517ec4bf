"""Forecasts while a log is being recorded or played: the newest sweep counts, and the machine's speed sets the rate.

Sweeps come from any generator (a ROS callback's queue, a player, a socket). A thread takes them in as they come; the
caller's loop forecasts from the newest. Sweeps that arrive while a forecast is made are past for the next one; those
that are older than one already seen are dropped. Both are counted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from copilot4d.errors import UsageError
from copilot4d.forecaster import Forecast, Forecaster
from copilot4d.geometry import Drive, Sweep
from copilot4d.geometry.motion import continue_motion
from copilot4d.geometry.se3 import FloatArray

_TOLERANCE = 0.3  # of the spacing: how far from its place a past sweep may lie


@dataclass(frozen=True, kw_only=True)
class LiveForecast:
    """One forecast, and how the loop keeps up."""

    forecast: Forecast
    reference: Sweep  # the newest sweep that it saw
    future_poses: FloatArray  # (F, 4, 4) that it was made for
    past: int  # sweeps that it saw
    received: int  # sweeps so far
    skipped: int  # of these, that arrived while a forecast was made and were never the newest of one
    dropped: int  # of these, that were older than one already seen
    seconds: float  # this forecast took


def live_forecasts(
    sweeps: Iterable[Sweep], forecaster: Forecaster, *, spacing_s: float = 0.2, past: int = 5, future: int = 5,
    plan: Callable[[FloatArray, int], FloatArray] = continue_motion, **sampling: float,
) -> Iterator[LiveForecast]:  # fmt: skip
    """Forecast from the newest sweep, as often as the machine can; ends after the last sweep.

    The past are the sweeps nearest to `spacing_s` apart before the newest; a forecast waits for two of them. `plan`
    turns their poses (N, 4, 4) into the ego's future ones; by default it goes on as it drives. What the generator
    raises reaches the caller.
    """
    if not spacing_s > 0 or past < 2 or future < 1:
        raise UsageError("`spacing_s` must be positive, `past` at least 2 and `future` at least 1")
    inbox = _Inbox(keep_s=spacing_s * (past + 1))
    threading.Thread(target=inbox.fill, args=(sweeps,), daemon=True).start()
    forecasts = 0
    while (seen := inbox.newest()) is not None:
        chosen = evenly_spaced(seen, spacing_s, past)
        if len(chosen) < 2:
            continue
        started = time.monotonic()
        poses = plan(np.stack([sweep.world_from_lidar for sweep in chosen]), future)
        made = forecaster.forecast(chosen, poses, **sampling)  # type: ignore[arg-type]
        forecasts += 1
        received, dropped, unused = inbox.counts()
        yield LiveForecast(
            forecast=made, reference=chosen[-1], future_poses=poses, past=len(chosen), received=received,
            skipped=unused, dropped=dropped, seconds=time.monotonic() - started,
        )  # fmt: skip


def evenly_spaced(sweeps: list[Sweep], spacing_s: float, count: int) -> list[Sweep]:
    """The newest sweep and those nearest to 1, 2, ... spacings before it, oldest first; up to the first missing one."""
    stamps = np.array([sweep.timestamp_ns for sweep in sweeps], dtype=np.int64)
    chosen = [len(sweeps) - 1]
    for k in range(1, count):
        off = np.abs((stamps - stamps[-1]) * 1e-9 + k * spacing_s)
        nearest = int(np.argmin(off))
        if off[nearest] > _TOLERANCE * spacing_s or nearest in chosen:
            break
        chosen.append(nearest)
    return [sweeps[i] for i in reversed(chosen)]


def played(
    drive: Drive, *, speed: float = 1.0, sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Sweep]:  # fmt: skip
    """A drive's sweeps at the times at which they were recorded, `speed` times as fast; infinite: without waiting.

    A sweep whose time has passed before it could be read comes late, and nothing waits for it.
    """
    if not speed > 0:
        raise UsageError(f"`speed` must be positive, got {speed}")
    started = clock()
    for i in range(len(drive)):
        due = started + float(drive.timestamps_ns[i] - drive.timestamps_ns[0]) * 1e-9 / speed
        if (wait := due - clock()) > 0:
            sleep(wait)
        sweep: Sweep = drive[i]
        yield sweep.without_box(drive.ego_box)


class _Inbox:
    """What has arrived and may still be needed; filled by one thread, looked into by another."""

    def __init__(self, keep_s: float) -> None:
        self._keep_ns = round(keep_s * 1e9)
        self._sweeps: deque[Sweep] = deque()
        self._changed = threading.Condition()
        self._received = self._dropped = self._used = 0
        self._last_ns: int | None = None  # the newest that was given out
        self._done = False
        self._error: BaseException | None = None

    def fill(self, sweeps: Iterable[Sweep]) -> None:
        """Take sweeps in until there are no more."""
        try:
            for sweep in sweeps:
                self._add(sweep)
        except BaseException as error:  # told to the caller, whose loop it ends
            self._error = error
        with self._changed:
            self._done = True
            self._changed.notify_all()

    def newest(self) -> list[Sweep] | None:
        """All sweeps that are kept, oldest first, once there is one that was not given out; None after the last."""
        with self._changed:
            self._changed.wait_for(lambda: self._done or self._is_new())
            if not self._is_new():
                if self._error is not None:
                    raise self._error
                return None
            self._last_ns = self._sweeps[-1].timestamp_ns
            self._used += 1
            return list(self._sweeps)

    def counts(self) -> tuple[int, int, int]:
        """Received, dropped, and never the newest of a forecast although a newer one was."""
        with self._changed:
            waiting = sum(sweep.timestamp_ns > (self._last_ns or 0) for sweep in self._sweeps)
            return self._received, self._dropped, self._received - self._dropped - self._used - waiting

    def _add(self, sweep: Sweep) -> None:
        with self._changed:
            self._received += 1
            if self._sweeps and sweep.timestamp_ns <= self._sweeps[-1].timestamp_ns:
                self._dropped += 1
                return
            self._sweeps.append(sweep)
            while self._sweeps[0].timestamp_ns < sweep.timestamp_ns - self._keep_ns:
                self._sweeps.popleft()
            self._changed.notify_all()

    def _is_new(self) -> bool:
        return bool(self._sweeps) and self._sweeps[-1].timestamp_ns != self._last_ns

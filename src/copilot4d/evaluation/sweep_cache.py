"""Drives that remember their newest reads: consecutive windows share most of their sweeps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from copilot4d.datasets.windows import Window
from copilot4d.errors import DataError
from copilot4d.evaluation.scores import SkippedSweep
from copilot4d.geometry import Drive, Sweep

MAX_SWEEPS = 96  # about 150 MB of a 64-beam lidar


class CachedDrives:
    """The drives of a data set, each read through one shared cache of the `capacity` sweeps used last."""

    def __init__(self, dataset: Mapping[str, Drive], capacity: int) -> None:
        self._dataset = dataset
        self._capacity = min(max(capacity, 1), MAX_SWEEPS)
        self._drives: dict[str, Drive] = {}
        self._sweeps: OrderedDict[tuple[str, int], Sweep] = OrderedDict()
        self._bad: dict[tuple[str, int], DataError] = {}
        self._skipped: dict[tuple[str, int], SkippedSweep] = {}

    def __getitem__(self, name: str) -> Drive:
        if name not in self._drives:
            drive = self._dataset[name]
            self._drives[name] = replace(drive, read=self._cached(name, drive.read))
        return self._drives[name]

    def _cached(self, name: str, read: Callable[[int], Sweep]) -> Callable[[int], Sweep]:
        def cached_read(frame: int) -> Sweep:
            key = (name, frame)
            if key in self._bad:
                raise self._bad[key]
            if key not in self._sweeps:
                try:
                    self._sweeps[key] = read(frame)
                except DataError as error:
                    self._bad[key] = error
                    raise
                while len(self._sweeps) > self._capacity:
                    self._sweeps.popitem(last=False)
            self._sweeps.move_to_end(key)
            return self._sweeps[key]

        return cached_read

    def unreadable(self, window: Window) -> list[SkippedSweep]:
        """The sweeps of a window that cannot be read."""
        drive, found = self[window.drive], []
        for index in (*window.past, *window.future):
            try:
                drive[index]
            except DataError as error:
                frame = index if drive.frames is None else int(drive.frames[index])
                found.append(
                    SkippedSweep(drive=window.drive, frame=frame, message=str(error), references=[window.reference])
                )
        return found

    def note(self, unreadable: Sequence[SkippedSweep]) -> None:
        """Sweeps of a window that was left out for them."""
        for sweep in unreadable:
            known = self._skipped.get((sweep.drive, sweep.frame))
            if known is None:
                self._skipped[sweep.drive, sweep.frame] = sweep
            else:
                known.references.extend(sweep.references)

    def skipped(self) -> list[SkippedSweep]:
        """The sweeps that could not be read, in order, each with the windows that were left out for it."""
        return [sweep for _, sweep in sorted(self._skipped.items())]

    def restore(self, skipped: Sequence[Mapping[str, Any]]) -> None:
        """Take up what an earlier, interrupted run had noted."""
        for entry in skipped:
            sweep = SkippedSweep(**entry)
            self._skipped[sweep.drive, sweep.frame] = sweep

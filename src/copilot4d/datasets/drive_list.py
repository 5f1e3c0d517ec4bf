"""Many drives in order, opened when they are asked for: what a verb trains on, without holding it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.dataset import Dataset
from copilot4d.geometry import Drive


class DriveList(Sequence[Drive]):
    """Drives of one or several data sets. To know their lengths, none is opened where the data set has an index."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = tuple(dataset for dataset in datasets if len(dataset))
        self._ends = np.cumsum([len(dataset) for dataset in self.datasets], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @overload
    def __getitem__(self, index: int) -> Drive: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Drive]: ...
    def __getitem__(self, index: int | slice) -> Drive | Sequence[Drive]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        at = range(len(self))[index]  # negative indices, IndexError
        part = int(np.searchsorted(self._ends, at, side="right"))
        dataset = self.datasets[part]
        return dataset[dataset.names[at - int(self._ends[part]) + len(dataset)]]

    def __iter__(self) -> Iterator[Drive]:
        return (dataset[name] for dataset in self.datasets for name in dataset.names)

    @property
    def names(self) -> list[str]:
        """Of all drives."""
        return [name for dataset in self.datasets for name in dataset.names]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) sweeps of each drive."""
        lengths = [dataset.length(name) for dataset in self.datasets for name in dataset.names]
        return np.array(lengths, dtype=np.int64)


def lengths_of(drives: Sequence[Drive]) -> NDArray[np.int64]:
    """(N,) sweeps of each drive."""
    return drives.lengths if isinstance(drives, DriveList) else np.array([len(d) for d in drives], dtype=np.int64)


class SweepItems(Sequence[tuple[int, int]]):
    """All sweeps of some drives as (drive, frame), by their number, without a list of them.

    >>> SweepItems([2, 0, 3])[3]
    (2, 1)
    """

    def __init__(self, lengths: Sequence[int] | NDArray[np.int64]) -> None:
        self._ends = np.cumsum(np.asarray(lengths, dtype=np.int64))

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[int, int]]: ...
    def __getitem__(self, index: int | slice) -> tuple[int, int] | Sequence[tuple[int, int]]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        at = range(len(self))[index]  # negative indices, IndexError
        drive = int(np.searchsorted(self._ends, at, side="right"))
        return drive, at - (int(self._ends[drive - 1]) if drive else 0)

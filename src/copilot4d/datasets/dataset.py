"""`Dataset`: named, lazy drives with splits. Opening one reads no points; a drive reads its poses when asked for."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from copilot4d.datasets.indexing import Indexed, IndexedDrives
from copilot4d.errors import DataError, UsageError, did_you_mean
from copilot4d.geometry import Drive
from copilot4d.progress import Track, silent

KEPT_DRIVES = 64  # opened drives that stay in memory; the others are opened again when they are asked for
FEW_DRIVES = 32  # so many are opened without an index


class DriveNotFoundError(UsageError, KeyError):
    """A drive's name that a data set does not have. A KeyError too, as of any mapping."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would put the sentence in quotes


class Opener:
    """Opens drives by name, from an index where the format has one, and keeps the last few."""

    def __init__(self, open_drive: Callable[[str], Drive], drives: IndexedDrives | None) -> None:
        self.drives = drives
        self._open = drives or open_drive
        self._kept: OrderedDict[str, Drive] = OrderedDict()

    def __call__(self, name: str) -> Drive:
        """The drive of a name, which must be one of the data set's."""
        if name not in self._kept:
            self._kept[name] = self._open(name)
            if len(self._kept) > KEPT_DRIVES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(name)
        return self._kept[name]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": OrderedDict()}


@dataclass(frozen=True, kw_only=True)
class Origin:
    """How a data set was opened, and what was chosen of it: all that another process needs to open it again."""

    path: str
    options: Mapping[str, Any]  # of `open_dataset`
    split: str | None = None
    names: tuple[str, ...] | None = None  # chosen one by one

    def open(self) -> Dataset:
        """The same data set, opened here."""
        opened: Dataset = importlib.import_module("copilot4d.datasets.open").open_dataset(self.path, **self.options)
        if self.names is not None:
            return opened.select(self.names)
        return opened if self.split is None else opened.split(self.split)


@dataclass(frozen=True, kw_only=True)
class Dataset(Mapping[str, Drive]):
    """Drives by name. `dataset["08"]`, `dataset.split("val")`, `for name in dataset`."""

    format: str  # "kitti_odometry", "kitti_raw", "nuscenes", "argoverse2", "folder", ...
    root: Path
    names: tuple[str, ...]
    open_drive: Callable[[str], Drive] = field(repr=False)  # raises DataError where the drive's files are bad
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # only names that are on disk
    names_without_poses: tuple[str, ...] = ()  # drives that have no poses on disk: errors when opened, or identities
    indexed: Indexed | None = field(default=None, repr=False)  # how its drives go into an index, where they do
    origin: Origin | None = field(default=None, repr=False)  # set by `open_dataset`

    def __post_init__(self) -> None:
        if isinstance(self.open_drive, Opener):
            return  # a selection shares the opened drives and the index of the whole
        drives = None
        if self.indexed is not None:
            drives = IndexedDrives(self.format, self.root, self.names, self.open_drive, self.indexed)
        object.__setattr__(self, "open_drive", Opener(self.open_drive, drives))

    def __reduce__(self) -> Any:
        """A data set that was opened from a path is sent to another process as that path, not as its drives."""
        if self.origin is not None:
            return self.origin.open, ()
        return partial(Dataset, **{part.name: getattr(self, part.name) for part in fields(self)}), ()

    def __getitem__(self, name: str) -> Drive:
        if name not in self._members:
            raise DriveNotFoundError(self._unknown([name]))
        try:
            return self.open_drive(name)
        except OSError as error:  # a folder that may not be looked into
            raise refused(self.root, error) from error

    def __repr__(self) -> str:
        shown = ", ".join(self.names[:6]) + (", ..." if len(self.names) > 6 else "")
        return f"Dataset({self.format}, {str(self.root)!r}, {len(self)} drive{'s' * (len(self) != 1)}: {shown})"

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def split(self, name: str) -> Dataset:
        """Only the drives of a split, e.g. "train", "val", "test"."""
        if name not in self.splits:
            known = ", ".join(self.splits) or "none"
            raise UsageError(
                f"{self.root} ({self.format}) has no split {name!r}{did_you_mean(name, list(self.splits))}; "
                f"its splits: {known}"
            )
        chosen = self.select(self.splits[name])
        if self.origin is None or self.origin.split is not None or self.origin.names is not None:
            return chosen
        return replace(chosen, origin=replace(self.origin, split=name))

    def select(self, names: Sequence[str]) -> Dataset:
        """Only these drives, in this order; a name given twice counts once."""
        missing = [name for name in names if name not in self._members]
        if missing:
            raise DriveNotFoundError(self._unknown(missing))
        chosen = tuple(dict.fromkeys(names))
        origin = None if self.origin is None else replace(self.origin, names=chosen, split=None)
        return replace(self, names=chosen, splits=_restricted(self.splits, set(names)), origin=origin)

    def prepare(self, track: Track = silent) -> None:
        """Make the index of many drives now, by one process, where the format has one; else each reads its files.

        The first time every drive's tables are read; from then on only those of drives that have changed.
        """
        drives = self._drives
        if drives is not None and len(self.names) > FEW_DRIVES:
            drives.prepare(self.names, track=track, description=f"indexing {len(self.names)} drives of {self.root}")

    def length(self, name: str) -> int:
        """How many sweeps a drive has; after `prepare` without opening it."""
        drives = self._drives
        return len(self[name]) if drives is None or len(self.names) <= FEW_DRIVES else drives.length(name)

    @property
    def _drives(self) -> IndexedDrives | None:
        assert isinstance(self.open_drive, Opener)
        return self.open_drive.drives

    @cached_property
    def _members(self) -> frozenset[str]:
        return frozenset(self.names)

    def has_poses(self, name: str) -> bool:
        """Whether the drive has poses on disk. Without, it opens only with `require_poses=False`, with identities."""
        return name not in self.names_without_poses

    def _unknown(self, missing: Sequence[str]) -> str:
        shown = ", ".join(self.names[:12]) + (", ..." if len(self.names) > 12 else "")
        near = did_you_mean(missing[0], self.names)
        return f"{self.root} has no drive {', '.join(missing)}{near}; its drives: {shown}"


def refused(path: Path, error: OSError) -> DataError:
    """The DataError for what the operating system would not let us see."""
    where = f" ({error.filename})" if error.filename else ""
    found = f"{(error.strerror or type(error).__name__).lower()}{where}"
    return DataError(
        path, "data set", expected="folders that can be read", found=found, remedy="check the path and its permissions"
    )


def _restricted(splits: Mapping[str, tuple[str, ...]], names: set[str]) -> dict[str, tuple[str, ...]]:
    kept = {split: tuple(n for n in members if n in names) for split, members in splits.items()}
    return {split: members for split, members in kept.items() if members}

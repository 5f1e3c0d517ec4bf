"""`Dataset`: named, lazy drives with splits. Opening one reads no points; a drive reads its poses when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import Drive


class DriveNotFoundError(UsageError, KeyError):
    """A drive's name that a data set does not have. A KeyError too, as of any mapping."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would put the sentence in quotes


@dataclass(frozen=True, kw_only=True)
class Dataset(Mapping[str, Drive]):
    """Drives by name. `dataset["08"]`, `dataset.split("val")`, `for name in dataset`."""

    format: str  # "kitti_odometry", "kitti_raw", "nuscenes", "argoverse2", "folder", ...
    root: Path
    names: tuple[str, ...]
    open_drive: Callable[[str], Drive] = field(repr=False)  # raises DataError where the drive's files are bad
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # only names that are on disk
    names_without_poses: tuple[str, ...] = ()  # drives that have no poses on disk: errors when opened, or identities

    def __post_init__(self) -> None:
        object.__setattr__(self, "open_drive", cache(self.open_drive))

    def __getitem__(self, name: str) -> Drive:
        if name not in self.names:
            raise DriveNotFoundError(self._unknown([name]))
        try:
            return self.open_drive(name)
        except OSError as error:  # a folder that may not be looked into
            raise refused(self.root, error) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def split(self, name: str) -> Dataset:
        """Only the drives of a split, e.g. "train", "val", "test"."""
        if name not in self.splits:
            known = ", ".join(self.splits) or "none"
            raise UsageError(f"{self.root} ({self.format}) has no split {name!r}; its splits: {known}")
        return self.select(self.splits[name])

    def select(self, names: Sequence[str]) -> Dataset:
        """Only these drives, in this order; a name given twice counts once."""
        missing = [name for name in names if name not in self.names]
        if missing:
            raise DriveNotFoundError(self._unknown(missing))
        return replace(self, names=tuple(dict.fromkeys(names)), splits=_restricted(self.splits, names))

    def has_poses(self, name: str) -> bool:
        """Whether the drive has poses on disk. Without, it opens only with `require_poses=False`, with identities."""
        return name not in self.names_without_poses

    def _unknown(self, missing: Sequence[str]) -> str:
        shown = ", ".join(self.names[:12]) + (", ..." if len(self.names) > 12 else "")
        return f"{self.root} has no drive {', '.join(missing)}; its drives: {shown}"


def refused(path: Path, error: OSError) -> DataError:
    """The DataError for what the operating system would not let us see."""
    where = f" ({error.filename})" if error.filename else ""
    found = f"{(error.strerror or type(error).__name__).lower()}{where}"
    return DataError(
        path, "data set", expected="folders that can be read", found=found, remedy="check the path and its permissions"
    )


def _restricted(splits: Mapping[str, tuple[str, ...]], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    kept = {split: tuple(n for n in members if n in names) for split, members in splits.items()}
    return {split: members for split, members in kept.items() if members}

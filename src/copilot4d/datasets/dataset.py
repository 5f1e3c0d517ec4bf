"""`Dataset`: named, lazy drives with splits. Opening one reads no points; a drive reads its poses when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from copilot4d.errors import UsageError
from copilot4d.geometry import Drive


@dataclass(frozen=True, kw_only=True)
class Dataset(Mapping[str, Drive]):
    """Drives by name. `dataset["08"]`, `dataset.split("val")`, `for name in dataset`."""

    format: str  # "kitti_odometry", "kitti_raw", "nuscenes", "argoverse2", "folder", ...
    root: Path
    names: tuple[str, ...]
    open_drive: Callable[[str], Drive] = field(repr=False)  # raises DataError where the drive's files are bad
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # only names that are on disk

    def __post_init__(self) -> None:
        object.__setattr__(self, "open_drive", cache(self.open_drive))

    def __getitem__(self, name: str) -> Drive:
        if name not in self.names:
            raise KeyError(name)
        return self.open_drive(name)

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
        """Only these drives, in this order."""
        missing = [name for name in names if name not in self.names]
        if missing:
            shown = ", ".join(self.names[:12]) + (", ..." if len(self.names) > 12 else "")
            raise UsageError(f"{self.root} has no drive {', '.join(missing)}; its drives: {shown}")
        return replace(self, names=tuple(names), splits=_restricted(self.splits, names))


def _restricted(splits: Mapping[str, tuple[str, ...]], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    kept = {split: tuple(n for n in members if n in names) for split, members in splits.items()}
    return {split: members for split, members in kept.items() if members}

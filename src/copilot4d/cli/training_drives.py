"""Which drives a verb trains on, and which it scores on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from copilot4d.cli.console import track
from copilot4d.datasets import Dataset, open_dataset
from copilot4d.datasets.drive_list import DriveList
from copilot4d.errors import UsageError
from copilot4d.geometry import Drive


def choose_drives(
    data: Sequence[Path], *, drives: Sequence[str] = (), split: str | None = None, held_out: Sequence[str] = ()
) -> tuple[DriveList, list[Drive]]:
    """Drives to train on, opened one by one when they are asked for, and drives to score on; no drive is both."""
    parts: list[Dataset] = []
    kept_back: list[Drive] = []
    known: set[str] = set()
    wanted, left_out = set(drives), set(held_out)
    for path in data:
        dataset = open_dataset(path)
        known |= set(dataset.names)
        kept_back += [dataset[name] for name in dataset.names if name in left_out]
        members = set(dataset.names if split is None else dataset.splits.get(split, ())) - left_out
        chosen = [name for name in dataset.names if name in members and (not wanted or name in wanted)]
        if chosen:
            parts.append(dataset.select(chosen))
            parts[-1].prepare(track)
    for flag, names in (("--held-out", held_out), ("--drives", drives)):
        missing = [name for name in names if name not in known]
        if missing:
            raise UsageError(f"{flag} {' '.join(missing)}: no such drive; there are {', '.join(sorted(known)[:12])}")
    if not parts:
        where = "" if split is None else f" in a split {split!r}"
        raise UsageError(f"no drive is left to train on{where}; look at --drives, --split and --held-out")
    return DriveList(parts), kept_back

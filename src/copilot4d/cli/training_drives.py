"""Which drives a verb trains on, and which it scores on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from copilot4d.datasets import open_dataset
from copilot4d.errors import UsageError
from copilot4d.geometry import Drive


def choose_drives(
    data: Sequence[Path], *, drives: Sequence[str] = (), split: str | None = None, held_out: Sequence[str] = ()
) -> tuple[list[Drive], list[Drive]]:
    """Drives to train on, and drives to score on; no drive is both."""
    train_on: list[Drive] = []
    kept_back: list[Drive] = []
    known: set[str] = set()
    for path in data:
        dataset = open_dataset(path)
        known |= set(dataset.names)
        members = set(dataset.names if split is None else dataset.splits.get(split, ()))
        for name in dataset.names:
            if name in held_out:
                kept_back.append(dataset[name])
            elif name in members and (not drives or name in drives):
                train_on.append(dataset[name])
    for flag, names in (("--held-out", held_out), ("--drives", drives)):
        missing = [name for name in names if name not in known]
        if missing:
            raise UsageError(f"{flag} {' '.join(missing)}: no such drive; there are {', '.join(sorted(known)[:12])}")
    if not train_on:
        where = "" if split is None else f" in a split {split!r}"
        raise UsageError(f"no drive is left to train on{where}; look at --drives, --split and --held-out")
    return train_on, kept_back

"""`UnfinishedRun`: an evaluation that is interrupted goes on where it was."""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from copilot4d.evaluation.sweep_cache import CachedDrives
from copilot4d.evaluation.tally import Tally

SAVE_EVERY_S = 60.0


class UnfinishedRun:
    """Keeps a tally beside the score file to be, every minute and when asked.

    `key` is all that decides the scores; a file with another key, or a damaged one, is started over. Without a path
    nothing is kept.
    """

    def __init__(self, path: Path | None, key: Mapping[str, Any]) -> None:
        self._path = path
        self._key = json.loads(json.dumps(key))
        self._saved_at = time.monotonic()

    def load(self, tally: Tally, drives: CachedDrives) -> tuple[int, float]:
        """Fill an empty tally with what was kept; returns how many windows that is, and the seconds they took."""
        if self._path is None or not self._path.is_file():
            return 0, 0.0
        try:
            with np.load(self._path, allow_pickle=False) as arrays:
                state = json.loads(str(arrays["state"]))
                if state["key"] != self._key:
                    return 0, 0.0
                drives.restore(state["skipped"])
                tally.restore(state["tally"], arrays["l1_counts"], arrays["absrel_counts"])
        except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return 0, 0.0  # what was kept is of no use; nothing is lost but time
        return int(state["windows_done"]), float(state["seconds"])

    def save_when_due(self, tally: Tally, drives: CachedDrives, windows_done: int, seconds: float) -> None:
        """Keep the tally where a minute has passed since the last time."""
        if time.monotonic() - self._saved_at > SAVE_EVERY_S:
            self.save(tally, drives, windows_done, seconds)

    def save(self, tally: Tally, drives: CachedDrives, windows_done: int, seconds: float) -> None:
        """Keep the tally now: written beside, then renamed."""
        if self._path is None or windows_done == 0:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        state, l1_counts, absrel_counts = tally.state()
        content = {
            "key": self._key, "windows_done": windows_done, "seconds": seconds, "tally": state,
            "skipped": [vars(sweep) for sweep in drives.skipped()],
        }  # fmt: skip
        temporary = self._path.with_name(f".{self._path.name}.new")
        with temporary.open("wb") as file:
            np.savez_compressed(
                file, state=np.array(json.dumps(content)), l1_counts=l1_counts, absrel_counts=absrel_counts
            )
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        self._saved_at = time.monotonic()

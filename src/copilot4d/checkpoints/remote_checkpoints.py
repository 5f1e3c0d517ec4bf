"""Copies of a run's checkpoints at a URL: an object store, or whatever else fsspec reaches.

There a folder cannot be written beside and renamed. So a checkpoint's files are written one by one, the manifest last:
one without a manifest does not count, and one whose bytes are not those of its manifest is not used.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copilot4d.checkpoints.checkpoint import STEP_FOLDER, CheckpointStore, RunIdentity, Tensors, open_checkpoint
from copilot4d.checkpoints.sealed_folder import MANIFEST, DamagedError, new_folder
from copilot4d.errors import DataError, TrainingError, UsageError

_URL = re.compile(r"[a-z][a-z0-9+.-]*://.+", re.IGNORECASE)
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*", re.IGNORECASE)


class RemoteCheckpoints:
    """The checkpoints at a URL. `report` is told of what did not work and may work later."""

    def __init__(self, url: str, report: Callable[[str], None] = lambda message: None) -> None:
        self.url, self.report = url.rstrip("/"), report
        self._files, self._root = _file_system(self.url)
        self.behind = ""  # why the last copy was not made; empty where nothing is missing

    def steps(self) -> list[int]:
        """Steps that have a manifest, oldest first."""
        return self._told(self._steps)

    def bring(self, store: CheckpointStore) -> None:
        """Fetch what a run needs to go on: the newest whole checkpoint, where it is newer than the run's own, and where
        the run has none, the best one, too.
        """
        own = store.steps()
        newer = [step for step in self.steps() if step > max(own, default=0)]
        newest = next((step for step in reversed(newer) if self._fetched(store, step)), None)
        best = None if own or newest is None else self._told(lambda: self._best([s for s in newer if s < newest]))
        if best is not None and best[0] < self._told(lambda: self._score(newest)):
            self._fetched(store, best[1])

    def content(self, step: int) -> dict[str, Any]:
        """What the manifest of a step says of its run."""
        told = json.loads(self._told(lambda: self._files.cat_file(self._path(step, MANIFEST))))
        return dict(told.get("content") or {})

    def copy(self, store: CheckpointStore) -> None:
        """Copy the run's checkpoints that are not there yet, and delete those that the run has deleted. An error is
        reported and kept in `behind`: training goes on, and the next checkpoint tries again.
        """
        try:
            there, own = self._steps(), store.steps()
            for step in own:
                if step not in there or self._manifest(step) != (store.path(step) / MANIFEST).read_bytes():
                    self._publish(store.path(step), step)
            self._delete(step for step in there if step not in own and step < max(own, default=0))
        except Exception as error:  # each store has its own kinds
            self.behind = f"{type(error).__name__}: {' '.join(str(error).split())}"
            self.report(f"the checkpoints could not be copied to {self.url} ({self.behind}); the next one tries again")
        else:
            self.behind = ""

    def _publish(self, folder: Path, step: int) -> None:
        if self._files.exists(self._path(step, MANIFEST)):
            self._files.rm_file(self._path(step, MANIFEST))  # from here on it does not count
        self._files.makedirs(self._path(step), exist_ok=True)
        for file in sorted(folder.iterdir(), key=lambda file: (file.name == MANIFEST, file.name)):
            self._files.put_file(str(file), self._path(step, file.name))

    def _delete(self, steps: Iterable[int]) -> None:
        for step in steps:
            self._files.rm_file(self._path(step, MANIFEST))
            self._files.rm(self._path(step), recursive=True)

    def _fetched(self, store: CheckpointStore, step: int) -> bool:
        """Whether a checkpoint came whole; one that did not is reported and passed over."""
        self.report(f"fetching the checkpoint of step {step} from {self.url}")
        try:
            with new_folder(store.path(step)) as folder:
                for name in self._told(lambda: self._names(self._path(step))):
                    if Path(name).name == name:
                        self._told(lambda name=name: self._files.get_file(self._path(step, name), str(folder / name)))
                open_checkpoint(folder)
        except DamagedError as error:
            self.report(f"the checkpoint of step {step} at {self.url} is damaged, trying the one before: {error}")
            return False
        return True

    def _steps(self) -> list[int]:
        self._files.invalidate_cache()  # another process may have written
        if not self._files.exists(self._root):
            return []
        found = [int(match[1]) for name in self._names(self._root) if (match := STEP_FOLDER.fullmatch(name))]
        return sorted(step for step in found if self._files.exists(self._path(step, MANIFEST)))

    def _names(self, path: str) -> list[str]:
        return sorted(posixpath.basename(str(entry).rstrip("/")) for entry in self._files.ls(path, detail=False))

    def _best(self, steps: Iterable[int]) -> tuple[float, int] | None:
        return min(((self._score(step), step) for step in steps), default=None)

    def _score(self, step: int) -> float:
        """Of a checkpoint, lower is better; infinity where it was not scored."""
        score = json.loads(self._files.cat_file(self._path(step, "state.json"))).get("score")
        return float("inf") if score is None else float(score)

    def _manifest(self, step: int) -> bytes:
        return bytes(self._files.cat_file(self._path(step, MANIFEST)))

    def _path(self, step: int, name: str = "") -> str:
        return posixpath.join(self._root, f"step_{step:09d}", name).rstrip("/")

    def _told(self, ask: Callable[[], Any]) -> Any:
        """The answer of the store; its errors as a DataError that names the URL."""
        try:
            return ask()
        except Exception as error:  # each store has its own kinds
            raise DataError(
                self.url, "checkpoints", expected="a place that can be read",
                found=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
                remedy="check the address and the credentials of the store",
            ) from error  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CopiedStore(CheckpointStore):
    """The checkpoints of a run, each copied to a URL once it is whole here."""

    remote: RemoteCheckpoints

    def save(self, identity: RunIdentity, state: Mapping[str, Any], tensors: Mapping[str, Tensors]) -> Path:
        """Write a checkpoint, delete those that are not kept, and do the same at the URL."""
        path = super().save(identity, state, tensors)
        self.remote.copy(self)
        return path

    def finish(self) -> None:
        """Copy what an error left out; TrainingError where that fails again."""
        self.remote.copy(self)
        if self.remote.behind:
            raise TrainingError(
                f"the last checkpoint is on this machine alone: copying it to {self.remote.url} failed "
                f"({self.remote.behind}). The same command tries again"
            )


def _file_system(url: str) -> tuple[Any, str]:
    """fsspec's file system of a URL, and the path in it."""
    if not _URL.fullmatch(url):
        raise UsageError(
            f"training.checkpoints_to must be a URL such as s3://bucket/runs/a, got {url!r}; a folder on this machine "
            f"is file://{Path(url).absolute()}"
        )
    try:
        from fsspec.core import url_to_fs

        files, root = url_to_fs(url)
    except ImportError as error:  # fsspec says which package a protocol needs
        raise UsageError(f"training.checkpoints_to {url}: {error}; install that package") from error
    except ValueError as error:
        scheme = _SCHEME.match(url)
        raise UsageError(
            f"training.checkpoints_to {url}: fsspec knows no {scheme[0] if scheme else ''}:// ({error})"
        ) from error
    return files, str(root).rstrip("/")

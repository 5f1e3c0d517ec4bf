"""Which index belongs to a data set, whether it still holds, and how it is made: beside, then renamed, by one process.

A drive in the index has a stamp of the files that it was read from (size, time, inode), which is compared whenever
the drive is opened: one that has changed is read from its files again. The sweeps' own files are not looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from copilot4d.datasets.cache_folder import cache_folder
from copilot4d.datasets.drive_index import STAMP_BYTES, DriveIndex, DriveRecord, IndexWriter
from copilot4d.datasets.point_files import PointFile
from copilot4d.datasets.sweep_files import SweepFiles, SweepReader
from copilot4d.errors import Copilot4dWarning, DataError
from copilot4d.geometry import Drive
from copilot4d.geometry.se3 import FloatArray
from copilot4d.progress import Track, silent

try:
    import fcntl
except ImportError:  # Windows: nothing is held there
    fcntl = None  # type: ignore[assignment]

SETTLED_S = 2.0  # files younger than this may change again within the clock's resolution, unseen
_UNSETTLED = bytes(STAMP_BYTES)  # never matches
_NO_NUMBERS = np.zeros(0)


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """What a format says about its drives, so that they can be put into an index."""

    files: Callable[[str], Iterable[Path]]  # drive -> the files and folders that it is read from, beside its sweeps
    read_file: Callable[[FloatArray], Callable[[Path], PointFile]]  # a drive's numbers -> its reader of files
    numbers: Callable[[Drive], FloatArray] = lambda drive: _NO_NUMBERS  # what `read_file` needs, of a drive
    options: str = ""  # what else decides what a drive is
    together: bool = False  # opening one drive reads the tables of all: the first one makes the index
    forget: Callable[[], None] = lambda: None  # drops the tables, once the index has what they say


class IndexedDrives:
    """The drives of one data set: from its index where that holds, else from their files."""

    def __init__(
        self, format: str, root: Path, names: tuple[str, ...], open_drive: Callable[[str], Drive], indexed: Indexed
    ) -> None:
        self.format, self.root, self.names = format, root.absolute(), names
        self.open_drive, self.indexed = open_drive, indexed
        self._index: DriveIndex | None = None
        self._fresh: set[str] = set()  # just read from their files
        self._made = False

    def __call__(self, name: str) -> Drive:
        """A drive, with the stamp of its files looked at."""
        if self._index is None:
            self._index = self._load()
        stamp, settled = self._stamp(name)
        known = self._known(name, stamp)
        if known is not None:
            return known
        drive = self.open_drive(name)
        if self.indexed.together and settled and not self._made:
            self._made = True
            self.prepare(self.names, leave_out_bad=True)
            self.indexed.forget()
        return self._known(name, stamp) or drive

    def prepare(
        self, names: Sequence[str], *, leave_out_bad: bool = False, track: Track = silent, description: str = ""
    ) -> None:
        """Make sure that these drives are in the index; those that are not, or have changed, are read.

        leave_out_bad: a drive whose files are bad does not get in, instead of raising its DataError.
        """
        self._index = self._load()
        if not self._missing(names):
            return
        with self._only_process():
            self._index = self._load()  # another process may have made it meanwhile
            missing = self._missing(names)
            if missing:
                shown = description or f"indexing {self.root.name}"
                self._index = self._write(track(missing, shown, total=len(missing)), set(missing), leave_out_bad)
                self._fresh |= {name for name in missing if name in self._index}

    def length(self, name: str) -> int:
        """How many sweeps a drive has; of the index, where it is in there, without opening it."""
        known = self._index is not None and (name in self._fresh or self._index.stamp(name) is not None)
        return self._index.length(name) if known and self._index is not None else len(self(name))

    @property
    def path(self) -> Path:
        """The index's file."""
        key = f"{self.format}\0{self.root}\0{self.indexed.options}"
        return cache_folder() / "index" / f"{self.format}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.index"

    def _load(self) -> DriveIndex | None:
        try:
            return DriveIndex(self.path)
        except (OSError, ValueError, KeyError):
            return None

    def _missing(self, names: Sequence[str]) -> list[str]:
        index = self._index
        if index is None:
            return list(names)
        return [n for n in names if n not in self._fresh and index.stamp(n) != self._stamp(n)[0]]

    def _known(self, name: str, stamp: bytes) -> Drive | None:
        index = self._index
        if index is None or name not in index or (name not in self._fresh and index.stamp(name) != stamp):
            return None
        try:
            return self._drive(index.record(name))
        except ValueError:  # a damaged record: as if it were not there
            return None

    def _drive(self, record: DriveRecord) -> Drive:
        folder = self.root / record.source
        reader = SweepReader(
            paths=SweepFiles(folder, record.files),
            world_from_lidar=record.world_from_lidar,
            timestamps_ns=record.timestamps_ns,
            read_file=self.indexed.read_file(record.numbers),
        )
        return Drive(
            name=record.name, world_from_lidar=record.world_from_lidar, timestamps_ns=record.timestamps_ns,
            read=reader, split=record.split, format=self.format, source=str(folder), ego_box=record.ego_box,
        )  # fmt: skip

    def _stamp(self, name: str) -> tuple[bytes, bool]:
        """A digest of what a drive's files look like, and whether the last change is long enough ago to trust it."""
        digest, newest = hashlib.blake2b(digest_size=STAMP_BYTES), 0
        for path in self.indexed.files(name):
            try:
                found = path.stat()
            except OSError:
                digest.update(b"none")
                continue
            digest.update(f"{path.name} {found.st_size} {found.st_mtime_ns} {found.st_ino}\n".encode())
            newest = max(newest, found.st_mtime_ns)
        return digest.digest(), newest * 1e-9 < time.time() - SETTLED_S

    def _write(self, missing: Iterable[str], all_missing: set[str], leave_out_bad: bool) -> DriveIndex:
        """A new index: what the old one has, and what is missing; in a temporary file where no other can be kept."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, writing = tempfile.mkstemp(prefix=f".{self.path.name}-", dir=self.path.parent)
        except OSError as error:
            warnings.warn(
                f"{self.path.parent}: the index of {self.root} cannot be kept there ({error.strerror}), so every "
                "process makes its own; set COPILOT4D_CACHE to a folder that can be written",
                Copilot4dWarning, stacklevel=4,
            )  # fmt: skip
            descriptor, writing = tempfile.mkstemp(prefix="copilot4d-index-")
        kept = Path(writing).parent == self.path.parent
        try:
            with os.fdopen(descriptor, "wb") as file:
                writer = IndexWriter(file)
                if self._index is not None:
                    for name in self._index.names:
                        stamp = self._index.stamp(name)
                        if name not in all_missing and stamp is not None:
                            writer.copy(self._index, name, stamp)
                for name in missing:
                    stamp, settled = self._stamp(name)
                    try:
                        writer.add(self._record(self.open_drive(name)), stamp if settled else _UNSETTLED)
                    except DataError:
                        if not leave_out_bad:
                            raise
                writer.close()
                file.flush()
                os.fsync(file.fileno())
            index = DriveIndex(Path(writing))
            if kept:
                Path(writing).replace(self.path)  # whoever has the old file mapped keeps it
            return index
        finally:
            Path(writing).unlink(missing_ok=True)

    def _record(self, drive: Drive) -> DriveRecord:
        reader = drive.read
        assert isinstance(reader, SweepReader)
        folder = Path(drive.source)
        return DriveRecord(
            name=drive.name,
            source=os.path.relpath(folder, self.root),
            split=drive.split,
            files=[str(path).removeprefix(f"{folder}{os.sep}") for path in reader.paths],
            timestamps_ns=drive.timestamps_ns,
            world_from_lidar=drive.world_from_lidar,
            ego_box=drive.ego_box,
            numbers=self.indexed.numbers(drive),
        )

    @contextlib.contextmanager
    def _only_process(self) -> Iterator[None]:
        """Hold the index's lock where the file system has locks; without, several may make the same index."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context(self.path.with_suffix(".lock").open("w"))
                if fcntl is not None:
                    fcntl.flock(lock, fcntl.LOCK_EX)
            yield

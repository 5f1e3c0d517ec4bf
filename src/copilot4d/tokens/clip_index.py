"""Which frames of which drive each clip of a selection has: an index that is read clip by clip.

A row has, as int32: the clip's frames (T), its interval, its row among the cached clips (-1: none), the CRC of these.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import DataError
from copilot4d.tokens.index_file import IndexFile, IndexWriter, index_in_memory, kept_index
from copilot4d.tokens.token_cache import TokenCache

FEW_DRIVES = 32  # of so many each process makes the index for itself: nothing has to be kept
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class DriveClips:
    """The clips of one drive of one cache."""

    cache: int  # its number
    drive: str
    frames: NDArray[np.int32]  # (n, T) of the drive
    intervals: NDArray[np.int32]  # (n,)
    rows: NDArray[np.int32] | None  # (n,) which of the cached clips; None: tokens are read frame by frame


@dataclass(frozen=True, kw_only=True)
class IndexedClip:
    """One clip."""

    cache: int  # its number
    drive: str
    frames: NDArray[np.int32]  # (T,)
    interval: int
    row: int | None  # of the cached clips


class ClipIndex:
    """Clips by number. A process holds 8 bytes a drive, and nothing a clip."""

    def __init__(self, file: IndexFile) -> None:
        self._file = file
        self.fingerprint = str(file.header["fingerprint"])
        self._frames = int(file.header["frames"])
        self._ends = np.frombuffer(file.read("ends", 0, file.length("ends")), dtype=np.int64)

    def __getstate__(self) -> IndexFile:
        return self._file

    def __setstate__(self, file: IndexFile) -> None:
        self.__init__(file)  # type: ignore[misc]

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def clip(self, item: int) -> IndexedClip:
        """Clip number `item`, which must lie in range(len(self))."""
        size = 4 * (self._frames + 3)
        data = self._file.read("clips", item * size, size)
        values = np.frombuffer(data, dtype=np.int32)
        if zlib.crc32(data[:-4]) != values[-1].view(np.uint32):
            raise DataError(
                str(self._file.source), f"clip {item}", expected="the row that was written", found="a damaged one",
                remedy="delete the file and start the same command again: it makes a new one",
            )  # fmt: skip
        cache, drive = self._drive(int(np.searchsorted(self._ends, item, side="right")))
        interval, row = int(values[-3]), int(values[-2])
        return IndexedClip(
            cache=cache, drive=drive, frames=values[:-3], interval=interval, row=None if row < 0 else row
        )

    def drives(self) -> Iterator[str]:
        """Of each part, in order."""
        return (self._drive(part)[1] for part in range(len(self._ends)))

    def _drive(self, part: int) -> tuple[int, str]:
        """The number of its cache and its name."""
        start, end = np.frombuffer(self._file.read("name_starts", 8 * part, 16), dtype=np.int64).tolist()
        cache, name = json.loads(self._file.read("names", start, end - start))
        return int(cache), str(name)


def clip_index(
    caches: Sequence[TokenCache], selection: Any, parts: Callable[[], Iterator[DriveClips]], *, past_frames: int,
    frames: int,
) -> ClipIndex:  # fmt: skip
    """The index of a selection: of few drives in memory, of many on disk, made once. parts: makes the clips."""

    def write(writer: IndexWriter) -> Mapping[str, Any]:
        return _write(writer, caches, parts(), past_frames, frames)

    if sum(len(cache.drives) for cache in caches) <= FEW_DRIVES:
        return ClipIndex(index_in_memory(write))
    known = [[cache.manifest_sha256, cache.config.past_frames] for cache in caches]
    return ClipIndex(kept_index("clips", json.dumps([VERSION, known, selection]), write))


def _write(
    writer: IndexWriter, caches: Sequence[TokenCache], parts: Iterator[DriveClips], past_frames: int, frames: int
) -> Mapping[str, Any]:  # fmt: skip
    digest = hashlib.sha256(json.dumps([past_frames, caches[0].config.tokenizer_sha256]).encode())
    ends, names = [0], []
    for part in parts:
        count = len(part.frames)
        if not count:
            continue
        digest.update(json.dumps([part.drive, caches[part.cache].sha256[part.drive], part.frames.shape]).encode())
        digest.update(part.frames.tobytes())
        rows = np.empty((count, frames + 3), dtype=np.int32)
        rows[:, :frames], rows[:, frames] = part.frames, part.intervals
        rows[:, frames + 1] = -1 if part.rows is None else part.rows
        checks = [zlib.crc32(row.data) for row in rows[:, :-1].copy()]
        rows[:, -1] = np.array(checks, dtype=np.uint32).view(np.int32)
        writer.add("clips", rows.tobytes())
        ends.append(ends[-1] + count)
        names.append(json.dumps([part.cache, part.drive]).encode())
    writer.add("ends", np.array(ends[1:], dtype=np.int64).tobytes())
    starts = np.cumsum([0, *map(len, names)])
    writer.add("name_starts", starts.astype(np.int64).tobytes())
    writer.add("names", b"".join(names))
    return {"fingerprint": digest.hexdigest(), "frames": frames}

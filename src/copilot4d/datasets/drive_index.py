"""An index file: times, poses and file names of a data set's drives, so that no process reads their tables again.

One file, read through a memory map: a drive costs a rank only the pages that it looks at, which all processes of a
machine share. Records stand one after the other, the directory is at the end:

    magic | record of drive 0 | record of drive 1 | ... | directory | its offset, length and digest | magic

A record: 4 int64 (sweeps, numbers, bytes of names, 0), times int64, poses float64 (N, 4, 4), ego box float64 (6,),
the numbers of its reader float64, the start that its file names share and their ends with NUL between, zeros up to a
multiple of 8 bytes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, overload

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry.se3 import FloatArray

MAGIC = b"copilot4d index1"
STAMP_BYTES = 16
_TRAILER = struct.Struct("<QQ16s16s")
_LARGEST_DIRECTORY = 1 << 30


@dataclass(frozen=True, kw_only=True)
class DriveRecord:
    """One drive without its points."""

    name: str
    source: str  # the folder that its file names are relative to, relative to the data set's root
    split: str | None
    files: Sequence[str]
    timestamps_ns: NDArray[np.int64]  # (N,)
    world_from_lidar: FloatArray  # (N, 4, 4)
    ego_box: FloatArray | None  # (6,)
    numbers: FloatArray  # (K,) whatever its format's reader of files needs


class FileNames(Sequence[str]):
    """The names of a drive's files, which stay on disk until one is asked for."""

    def __init__(self, block: NDArray[np.uint8], count: int) -> None:
        self._block, self._count = block, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._names()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def _names(self) -> list[str]:
        prefix, *rest = self._block.tobytes().decode().split("\0")
        return [prefix + name for name in rest]


class DriveIndex:
    """An index file that is open for reading. Raises ValueError or OSError where the file is not a whole one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map = np.memmap(path, dtype=np.uint8, mode="r")
        if len(self._map) < len(MAGIC) + _TRAILER.size or bytes(self._map[: len(MAGIC)]) != MAGIC:
            raise ValueError("no index file")
        at, length, digest, magic = _TRAILER.unpack(bytes(self._map[-_TRAILER.size :]))
        if magic != MAGIC or length > _LARGEST_DIRECTORY or at + length + _TRAILER.size != len(self._map):
            raise ValueError("the index file is cut")
        directory = bytes(self._map[at : at + length])
        if _digest(directory) != digest:
            raise ValueError("the directory is damaged")
        words, offsets, checks, stamps = _read_directory(directory)
        self.names: tuple[str, ...] = tuple(words["names"])
        self._sources, self._splits = words["sources"], words["splits"]
        self._offsets, self._checks, self._stamps = offsets, checks, stamps
        self._lengths = np.array(words["lengths"], dtype=np.int64)
        self._rows = {name: row for row, name in enumerate(self.names)}

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def stamp(self, name: str) -> bytes | None:
        """What the drive's files looked like when they were read; None for a drive that is not here."""
        row = self._rows.get(name)
        return None if row is None else self._stamps[row].tobytes()

    def length(self, name: str) -> int:
        """How many sweeps a drive has."""
        return int(self._lengths[self._rows[name]])

    def record(self, name: str) -> DriveRecord:
        """A drive; its arrays are views of the file."""
        row = self._rows[name]
        block = self.block(name)
        if zlib.crc32(block.data) != self._checks[row]:
            raise ValueError(f"the record of drive {name} is damaged")
        sweeps, numbers, text, _ = (int(v) for v in block[:32].view(np.int64))
        ends = np.cumsum([32, 8 * sweeps, 128 * sweeps, 48, 8 * numbers, text])
        times, poses, box, extra, names = (block[a:b] for a, b in itertools.pairwise(ends))
        ego_box = np.array(box.view(np.float64))
        return DriveRecord(
            name=name,
            source=self._sources[row],
            split=self._splits[row],
            files=FileNames(names, sweeps),
            timestamps_ns=times.view(np.int64),
            world_from_lidar=poses.view(np.float64).reshape(sweeps, 4, 4),
            ego_box=None if np.isnan(ego_box).any() else ego_box,
            numbers=np.array(extra.view(np.float64)),
        )

    def block(self, name: str) -> NDArray[np.uint8]:
        """A drive's record as it stands in the file."""
        row = self._rows[name]
        return np.asarray(self._map[self._offsets[row] : self._offsets[row + 1]])

    def entry(self, name: str) -> tuple[str, str | None, int]:
        """A drive's source, split and number of sweeps."""
        row = self._rows[name]
        return self._sources[row], self._splits[row], int(self._lengths[row])


class IndexWriter:
    """Writes an index file drive by drive: whatever the number of drives, one record is in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._file.write(MAGIC)
        self._offsets = [len(MAGIC)]
        self._checks: list[int] = []
        self._stamps: list[bytes] = []
        self._words: dict[str, list[object]] = {"names": [], "sources": [], "splits": [], "lengths": []}

    def add(self, record: DriveRecord, stamp: bytes) -> None:
        """A drive that was read from its files."""
        prefix = _common_start(record.files)
        names = "\0".join([prefix, *(name[len(prefix) :] for name in record.files)]).encode()
        sweeps = len(record.timestamps_ns)
        box = np.full(6, np.nan) if record.ego_box is None else record.ego_box
        head = np.array([sweeps, len(record.numbers), len(names), 0], dtype=np.int64)
        arrays = (head, record.timestamps_ns.astype(np.int64), record.world_from_lidar, box, record.numbers)
        block = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays) + names
        block += bytes(-len(block) % 8)
        self._put(record.name, record.source, record.split, sweeps, block, stamp)

    def copy(self, index: DriveIndex, name: str, stamp: bytes) -> None:
        """A drive as another index has it."""
        source, split, sweeps = index.entry(name)
        self._put(name, source, split, sweeps, index.block(name).tobytes(), stamp)

    def close(self) -> None:
        """Write the directory; without it the file is no index."""
        words = json.dumps(self._words, separators=(",", ":")).encode()
        words += b" " * (-len(words) % 8)
        numbers = (
            np.array([len(words), len(self._checks)], dtype=np.int64),
            np.array(self._offsets, dtype=np.int64),
            np.array(self._checks, dtype=np.int64),
        )
        directory = b"".join([*(n.tobytes() for n in numbers), *self._stamps, words])
        self._file.write(directory)
        self._file.write(_TRAILER.pack(self._offsets[-1], len(directory), _digest(directory), MAGIC))

    def _put(self, name: str, source: str, split: str | None, sweeps: int, block: bytes, stamp: bytes) -> None:
        self._file.write(block)
        self._offsets.append(self._offsets[-1] + len(block))
        self._checks.append(zlib.crc32(block))
        self._stamps.append(stamp)
        for key, value in (("names", name), ("sources", source), ("splits", split), ("lengths", sweeps)):
            self._words[key].append(value)


def _read_directory(
    data: bytes,
) -> tuple[dict[str, list[str]], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    text, count = (int(v) for v in np.frombuffer(data, dtype=np.int64, count=2))
    numbers = np.frombuffer(data, dtype=np.int64, count=2 * count + 1, offset=16)
    at = 16 + 8 * (2 * count + 1)
    stamps = np.frombuffer(data, dtype=np.uint8, count=STAMP_BYTES * count, offset=at).reshape(count, STAMP_BYTES)
    words: dict[str, list[str]] = json.loads(data[at + STAMP_BYTES * count :][:text])
    return words, numbers[: count + 1].copy(), numbers[count + 1 :].copy(), stamps.copy()


def _common_start(names: Sequence[str]) -> str:
    first, last = min(names, default=""), max(names, default="")
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(a for a, _ in same)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()

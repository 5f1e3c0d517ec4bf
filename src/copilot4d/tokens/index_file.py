"""A file of rows that is read row by row, so that no process holds what it indexes.

Rows are asked of the operating system one at a time: what many processes of a machine read stands in its file cache
once, and in none of them. Blocks stand one after the other, the directory at the end:

    magic | block | block | ... | directory (JSON: header, where each block is) | its place, length and digest | magic
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import struct
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from copilot4d.datasets.cache_folder import cache_folder
from copilot4d.datasets.file_lock import held
from copilot4d.errors import Copilot4dWarning, DataError

MAGIC = b"copilot4d rows 1"
_TRAILER = struct.Struct("<QQ16s16s")
_LARGEST_DIRECTORY = 1 << 30


class IndexFile:
    """An index that is open for reading: a file, or its bytes where it is small or no file can be kept.

    Raises ValueError or OSError where the file is not a whole one.
    """

    def __init__(self, source: Path | bytes) -> None:
        self.source = source
        self._file: BinaryIO | None = None
        end = _TRAILER.size
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        if size < len(MAGIC) + end:
            raise ValueError(f"an index of {size} bytes")
        start, length, digest, magic = _TRAILER.unpack(self._bytes(size - end, end))
        if magic != MAGIC or length > _LARGEST_DIRECTORY or start + length + end != size:
            raise ValueError("no index, or not a whole one")
        directory = self._bytes(start, length)
        if _digest(directory) != digest:
            raise ValueError("a damaged index")
        told = json.loads(directory)
        self.header: Mapping[str, Any] = told["header"]
        self._blocks: Mapping[str, list[int]] = told["blocks"]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}  # another process opens the file for itself

    def length(self, block: str) -> int:
        """Bytes of a block."""
        return self._blocks[block][1]

    def read(self, block: str, start: int, length: int) -> bytes:
        """Some bytes of a block."""
        return self._bytes(self._blocks[block][0] + start, length)

    def _bytes(self, start: int, length: int) -> bytes:
        if isinstance(self.source, bytes):
            return self.source[start : start + length]
        try:
            if self._file is None:
                self._file = self.source.open("rb", buffering=0)
            found = _read_at(self._file, start, length)
        except OSError as error:
            raise DataError(
                self.source, "index", expected="the index that this run was started with",
                found=(error.strerror or "an error").lower(), remedy="start the same command again: it makes a new one",
            ) from error  # fmt: skip
        if len(found) != length:
            raise DataError(
                self.source, "index", expected=f"{length} bytes at {start}", found=f"{len(found)}",
                remedy="delete the file and start the same command again: it makes a new one",
            )  # fmt: skip
        return found


class IndexWriter:
    """Writes an index block by block; what is given is written at once and not kept."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._file.write(MAGIC)
        self._at = len(MAGIC)
        self._blocks: dict[str, list[int]] = {}

    def add(self, block: str, data: bytes) -> None:
        """More bytes of a block. A block is finished when another one begins."""
        if block not in self._blocks:
            self._blocks[block] = [self._at, 0]
        start, length = self._blocks[block]
        if start + length != self._at:
            raise ValueError(f"the block {block} was finished before")
        self._file.write(data)
        self._blocks[block][1] += len(data)
        self._at += len(data)

    def close(self, header: Mapping[str, Any]) -> None:
        """Write the directory; without it the file is no index."""
        directory = json.dumps({"header": header, "blocks": self._blocks}, separators=(",", ":")).encode()
        self._file.write(directory)
        self._file.write(_TRAILER.pack(self._at, len(directory), _digest(directory), MAGIC))


def kept_index(name: str, key: str, write: Callable[[IndexWriter], Mapping[str, Any]]) -> IndexFile:
    """The index of a key: the file that is there, or a new one, made by one process while the others wait.

    write: fills the blocks and returns the header. Where no file can be kept, every process has the bytes for itself.
    """
    path = cache_folder() / "index" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.index"
    if (found := _whole(path)) is not None:
        return found
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        waiting = held(path.with_suffix(".lock"))
        waiting.__enter__()
    except OSError as error:
        warnings.warn(
            f"{path.parent}: the index of {name} cannot be kept there ({error.strerror}), so every process makes and "
            "holds its own; set COPILOT4D_CACHE to a folder that can be written",
            Copilot4dWarning, stacklevel=3,
        )  # fmt: skip
        return index_in_memory(write)
    with contextlib.ExitStack() as stack:
        stack.push(waiting)
        if (found := _whole(path)) is not None:  # another process has made it meanwhile
            return found
        descriptor, writing = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                writer = IndexWriter(file)
                writer.close(write(writer))
                file.flush()
                os.fsync(file.fileno())
            Path(writing).replace(path)
        finally:
            Path(writing).unlink(missing_ok=True)
    return IndexFile(path)


def index_in_memory(write: Callable[[IndexWriter], Mapping[str, Any]]) -> IndexFile:
    """The same as bytes in this process."""
    file = io.BytesIO()
    writer = IndexWriter(file)
    writer.close(write(writer))
    return IndexFile(file.getvalue())


def _whole(path: Path) -> IndexFile | None:
    try:
        return IndexFile(path)
    except (OSError, ValueError, KeyError, DataError):
        return None


def _read_at(file: BinaryIO, start: int, length: int) -> bytes:
    """Without moving the file's place where the system can: forked processes share it."""
    if hasattr(os, "pread"):
        return os.pread(file.fileno(), length, start)
    file.seek(start)
    return file.read(length)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()

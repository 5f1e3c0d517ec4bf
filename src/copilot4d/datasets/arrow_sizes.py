"""What an Arrow file takes once it is unpacked, by the sizes that its messages state: known before it is allocated."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from copilot4d.datasets.sizes import check_decoded_size
from copilot4d.errors import DataError

_RECORD_BATCH, _DICTIONARY = 3, 2  # what an Arrow message holds


def check_feather_size(path: Path, source: pa.NativeFile, batches: int) -> None:
    """DataError where an Arrow file would unpack to more than a sweep may have; the source is left at its start.

    batches: how many the file's own index names. More or fewer on the way through it is damage, too.
    """
    source.seek(8)  # behind the magic word
    size = found = 0
    while True:
        try:
            message = pa.ipc.read_message(source)
        except (EOFError, pa.ArrowException):
            break  # the end mark, or what is no message: the reader itself complains about damage
        found += message.type == "record batch"
        size += _unpacked_size(message)
        check_decoded_size(path, size)
    source.seek(0)
    if found != batches:
        raise DataError(
            path, "points", expected=f"{batches} record batches, as its index says", found=f"{found}",
            remedy="write the file again, or leave this sweep out",
        )  # fmt: skip


def _unpacked_size(message: pa.Message) -> int:
    """Bytes of all buffers of a message once unpacked, and at least one per row."""
    data, body = message.metadata.to_pybytes(), message.body
    if body is None or data is None:
        return 0
    try:
        kind = _Table(data, *struct.unpack_from("<I", data))
        header = kind.table(2)
        holds = data[kind.field(1)] if kind.field(1) else 0
        if holds == _DICTIONARY:
            header = header.table(1)
        elif holds != _RECORD_BATCH:
            return 0
        rows = struct.unpack_from("<q", data, header.field(0))[0] if header.field(0) else 0
        packed = bool(header.field(3))
        return max(rows, sum(_buffer_size(body, start, length, packed) for start, length in header.buffers()))
    except (struct.error, IndexError, ValueError):
        return 0  # no message that the reader could read either


def _buffer_size(body: pa.Buffer, start: int, length: int, packed: bool) -> int:
    if not packed or length < 8 or start < 0 or start + 8 > body.size:
        return length
    stated = int(struct.unpack("<q", body[start : start + 8].to_pybytes())[0])
    return length if stated < 0 else stated  # -1: this one is not compressed


class _Table:
    """A table of a flatbuffer, as Arrow's metadata is one: just enough to find sizes."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.fields_at = at - struct.unpack_from("<i", data, at)[0]

    def field(self, number: int) -> int:
        """Where a field is; 0 where it is not stated."""
        (size,) = struct.unpack_from("<H", self.data, self.fields_at)
        place = 4 + 2 * number
        offset = struct.unpack_from("<H", self.data, self.fields_at + place)[0] if place < size else 0
        return self.at + offset if offset else 0

    def table(self, number: int) -> _Table:
        """A field that is a table."""
        at = self.field(number)
        return _Table(self.data, at + struct.unpack_from("<I", self.data, at)[0])

    def buffers(self) -> Iterator[tuple[int, int]]:
        """Start and length of a record batch's buffers, its third field."""
        field = self.field(2)
        at = field + struct.unpack_from("<I", self.data, field)[0]
        (count,) = struct.unpack_from("<I", self.data, at)
        if count > len(self.data):
            raise ValueError("more buffers than bytes")
        for k in range(count):
            yield struct.unpack_from("<qq", self.data, at + 4 + 16 * k)

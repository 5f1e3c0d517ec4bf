"""MCAP files, of ROS 2, of ROS 1, or from elsewhere: the summary at the file's end says where each message lies."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.bags.storage import Channel, MessageIndex, damaged, extra, short, type_name

_REMEDY = "copy the file again; `mcap recover FILE` keeps what a recording that was cut off holds"
_MESSAGE, _CHUNK, _MESSAGE_INDEX, _DATA_END, _FOOTER = 0x05, 0x06, 0x07, 0x0F, 0x02
_MESSAGE_HEADER = struct.Struct("<BQHIQQ")  # operation, length, channel, sequence, log time, publish time
_CHUNK_HEADER = 49  # bytes before a chunk's records, without the name of its compression
_ENTRY = np.dtype([("time", "<u8"), ("offset", "<u8")])
_MAGIC = 8


class McapFile:
    """A `Storage`. A place is (start of the chunk, offset in its decompressed records), or (-1, offset in the file)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with extra("mcap"):
            from mcap.exceptions import McapError
            from mcap.reader import make_reader
        self._file = path.open("rb")
        try:
            summary = make_reader(self._file).get_summary()
        except (McapError, ValueError, struct.error, EOFError, OSError, UnicodeDecodeError) as error:
            raise damaged(path, "a whole MCAP file with its summary", error or type(error).__name__, _REMEDY) from error
        if summary is None or not summary.channels:
            raise damaged(path, "a whole MCAP file with its summary", "no summary, or one without channels", _REMEDY)
        counts = summary.statistics.channel_message_counts if summary.statistics else {}
        self.channels = tuple(
            Channel(
                number=c.id, topic=c.topic,
                type=type_name(summary.schemas[c.schema_id].name) if c.schema_id in summary.schemas else "",
                encoding=c.message_encoding, count=counts.get(c.id, 0),
            )
            for c in summary.channels.values()
        )  # fmt: skip
        self._chunks: dict[int, Any] = {chunk.chunk_start_offset: chunk for chunk in summary.chunk_indexes}
        self._decompressed = lru_cache(maxsize=2)(self._decompress)

    def index(self, channels: Sequence[int]) -> MessageIndex:
        """Where the messages of these channels lie, by the index after each chunk; without one, by walking through."""
        wanted = frozenset(channels)
        if not self._chunks:
            return MessageIndex.of([(time, -1, at) for channel, time, at in self._walk_file() if channel in wanted])
        parts = []
        for start, chunk in self._chunks.items():
            if chunk.message_index_offsets and not wanted & chunk.message_index_offsets.keys():
                continue
            for channel, entries in self._entries(start, chunk):
                if channel in wanted:
                    rows = np.empty((len(entries), 3), dtype=np.int64)
                    rows[:, 0], rows[:, 1], rows[:, 2] = entries["time"], start, entries["offset"]
                    parts.append(rows)
        return MessageIndex.of(np.concatenate(parts) if parts else [])

    def read(self, place: NDArray[np.int64], most: int | None = None) -> bytes:
        """One message; of a chunk that is not compressed, no more than its own bytes are read."""
        start, offset = int(place[0]), int(place[1])
        fetch: Callable[[int, int], bytes]
        if start < 0:
            fetch = self._pread
        elif not self._chunks[start].compression:
            offset += start + _CHUNK_HEADER
            fetch = self._pread
        else:
            records = self._decompressed(start)

            def fetch(size: int, at: int) -> bytes:
                return records[at : at + size]

        header = _MESSAGE_HEADER.unpack(short(fetch(_MESSAGE_HEADER.size, offset), _MESSAGE_HEADER.size, self.path))
        size = header[1] - (_MESSAGE_HEADER.size - 9)
        wanted = size if most is None else min(size, most)
        return short(fetch(wanted, offset + _MESSAGE_HEADER.size), wanted, self.path)

    def _entries(self, start: int, chunk: Any) -> Iterator[tuple[int, NDArray[Any]]]:
        """(channel, its messages' times and offsets) of one chunk."""
        if not chunk.message_index_offsets:
            for channel, time, at in _walk(self._decompressed(start)):
                yield channel, np.array([(time, at)], dtype=_ENTRY)
            return
        at = min(chunk.message_index_offsets.values())
        data = short(self._pread(chunk.message_index_length, at), chunk.message_index_length, self.path)
        position = 0
        while position + 15 <= len(data) and data[position] == _MESSAGE_INDEX:
            length, channel, size = struct.unpack_from("<QHI", data, position + 1)
            yield channel, np.frombuffer(data, _ENTRY, size // _ENTRY.itemsize, position + 15)
            position += 9 + length

    def _walk_file(self) -> Iterator[tuple[int, int, int]]:
        """(channel, time, offset in the file) of messages outside chunks; the payload is skipped."""
        at = _MAGIC
        while len(head := self._pread(_MESSAGE_HEADER.size, at)) >= 9 and head[0] not in (_DATA_END, _FOOTER):
            if head[0] == _MESSAGE:
                _, _, channel, _, time, _ = _MESSAGE_HEADER.unpack(short(head, _MESSAGE_HEADER.size, self.path))
                yield channel, time, at
            at += 9 + int.from_bytes(head[1:9], "little")

    def _pread(self, size: int, at: int) -> bytes:
        return os.pread(self._file.fileno(), size, at)

    def _decompress(self, start: int) -> bytes:
        chunk = self._chunks[start]
        at = start + _CHUNK_HEADER + len(chunk.compression)
        data = short(self._pread(chunk.compressed_size, at), chunk.compressed_size, self.path)
        try:
            if chunk.compression == "zstd":
                import zstandard

                return zstandard.ZstdDecompressor().decompress(data, chunk.uncompressed_size)
            if chunk.compression == "lz4":
                import lz4.frame

                raw: bytes = lz4.frame.decompress(data)
                return raw
        except Exception as error:
            raise damaged(self.path, "a chunk that can be decompressed", error, _REMEDY) from error
        if chunk.compression:
            raise damaged(self.path, "chunks in lz4 or zstd", f"compression {chunk.compression}", "record it anew")
        return data


def _walk(records: bytes) -> Iterator[tuple[int, int, int]]:
    """(channel, time, offset) of the messages among decompressed records."""
    at = 0
    while at + 9 <= len(records):
        if records[at] == _MESSAGE:
            _, _, channel, _, time, _ = _MESSAGE_HEADER.unpack_from(records, at)
            yield channel, time, at
        at += 9 + int.from_bytes(records[at + 1 : at + 9], "little")

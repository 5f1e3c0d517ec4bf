"""ROS 1 bags (.bag): rosbags reads the index; single messages are read from where they lie."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.bags.storage import Channel, MessageIndex, damaged, extra, short

_REMEDY = "copy the file again; `rosbag reindex` repairs a bag whose recording was cut off"


class Rosbag1:
    """A `Storage`. A place is (position of the chunk, offset in its decompressed data)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with extra("rosbags"):
            from rosbags.rosbag1 import Reader, ReaderError
            from rosbags.rosbag1.reader import decompressors
        reader = Reader(path)
        try:
            reader.open()
        except (ReaderError, AssertionError, ValueError, struct.error) as error:
            raise damaged(path, "a whole ROS 1 bag with its index", error, _REMEDY) from error
        self._indexes = {number: list(entries) for number, entries in reader.indexes.items()}
        self._chunks: dict[int, Any] = dict(reader.chunks)
        self._plain = decompressors["none"]
        self.channels = tuple(
            Channel(number=c.id, topic=c.topic, type=c.msgtype, encoding="ros1", count=c.msgcount)
            for c in reader.connections
        )
        reader.close()
        self._file = path.open("rb")
        self._decompressed = lru_cache(maxsize=2)(self._decompress)

    def index(self, channels: Sequence[int]) -> MessageIndex:
        """Where the messages of these channels lie."""
        return MessageIndex.of([
            (entry.time, entry.chunk_pos, entry.offset) for number in channels for entry in self._indexes[number]
        ])  # fmt: skip

    def read(self, place: NDArray[np.int64], most: int | None = None) -> bytes:
        """One message; of a chunk that is not compressed, no more than its own bytes are read."""
        position, offset = int(place[0]), int(place[1])
        chunk = self._chunks[position]
        if chunk.decompressor is not self._plain:
            data = self._decompressed(position)
            header = struct.unpack_from("<I", data, offset)[0]
            size = struct.unpack_from("<I", data, offset + 4 + header)[0]
            start = offset + 8 + header
            return short(data[start : start + size], size, self.path)
        at = chunk.datapos + offset
        header = struct.unpack("<I", short(self._pread(4, at), 4, self.path))[0]
        size = struct.unpack("<I", short(self._pread(4, at + 4 + header), 4, self.path))[0]
        wanted = size if most is None else min(size, most)
        return short(self._pread(wanted, at + 8 + header), wanted, self.path)

    def _pread(self, size: int, at: int) -> bytes:
        return os.pread(self._file.fileno(), size, at)

    def _decompress(self, position: int) -> bytes:
        chunk = self._chunks[position]
        try:
            raw: bytes = chunk.decompressor(self._pread(chunk.datasize, chunk.datapos))
        except (RuntimeError, OSError, ValueError, EOFError) as error:
            raise damaged(self.path, "a chunk that can be decompressed", error, _REMEDY) from error
        return raw

"""ROS 2 bags in sqlite (.db3)."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.bags.storage import Channel, MessageIndex, damaged

_REMEDY = "copy the file again, or make it anew from its source with `ros2 bag convert`"
_TABLES = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('messages', 'topics')"
_CHANNELS = (
    "SELECT t.id, t.name, t.type, t.serialization_format, (SELECT count(*) FROM messages m WHERE m.topic_id = t.id) "
    "FROM topics t ORDER BY t.id"
)


class SqliteFile:
    """A `Storage`. A place is (row of the table of messages, 0)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connections: dict[int, sqlite3.Connection] = {}  # by process: one may not be used after a fork
        if self._rows(_TABLES) != [(2,)]:
            raise damaged(path, "a ROS 2 bag", "a database without the tables `messages` and `topics`", _REMEDY)
        self.channels = tuple(
            Channel(number=number, topic=topic, type=type, encoding=encoding, count=count)
            for number, topic, type, encoding, count in self._rows(_CHANNELS)
        )

    def index(self, channels: Sequence[int]) -> MessageIndex:
        """Where the messages of these channels lie."""
        marks = ",".join("?" * len(channels))
        rows = self._rows(f"SELECT timestamp, id, 0 FROM messages WHERE topic_id IN ({marks})", *channels)
        return MessageIndex.of(rows)

    def read(self, place: NDArray[np.int64], most: int | None = None) -> bytes:
        """One message, or its beginning."""
        column = "data" if most is None else f"substr(data, 1, {int(most)})"
        rows = self._rows(f"SELECT {column} FROM messages WHERE id = ?", int(place[0]))
        return bytes(rows[0][0])

    def _rows(self, query: str, *values: int) -> list[tuple]:  # type: ignore[type-arg]
        with self._lock:
            try:
                return self._connection().execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise damaged(self.path, "a whole ROS 2 bag in sqlite", error, _REMEDY) from error

    def _connection(self) -> sqlite3.Connection:
        if os.getpid() not in self._connections:
            address = f"file:{quote(str(self.path))}?mode=ro&immutable=1"  # never a journal beside a log
            self._connections[os.getpid()] = sqlite3.connect(address, uri=True, check_same_thread=False)
        return self._connections[os.getpid()]

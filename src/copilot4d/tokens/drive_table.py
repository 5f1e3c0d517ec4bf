"""The drives of a large token cache, read from an index when they are asked for: a rank holds 24 bytes a drive."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from copilot4d.tokens.index_file import IndexFile, IndexWriter

Row = TypeVar("Row")
_ROWS_AT_ONCE = 256


class DriveTable(Mapping[str, Row], Generic[Row]):
    """Rows by the name of a drive, in their order. `parse` makes a row of what `write_rows` was given."""

    def __init__(self, index: IndexFile, parse: Callable[[dict[str, object]], Row]) -> None:
        self._index, self._parse = index, parse
        self._starts = np.frombuffer(index.read("starts", 0, index.length("starts")), dtype=np.int64)
        self._digests = np.frombuffer(index.read("digests", 0, index.length("digests")), dtype=np.uint64)
        self._order = np.frombuffer(index.read("order", 0, index.length("order")), dtype=np.int64)  # by digest

    def __reduce__(self) -> tuple[Callable[..., DriveTable[Row]], tuple[object, ...]]:
        return partial(DriveTable, self._index, self._parse), ()

    def __len__(self) -> int:
        return len(self._digests)

    def __getitem__(self, name: str) -> Row:
        at = int(np.searchsorted(self._digests, _digest(name)))
        while at < len(self) and self._digests[at] == _digest(name):
            row = int(self._order[at])
            found = json.loads(self._rows(row, row + 1))
            if found["name"] == name:
                return self._parse(found)
            at += 1
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (str(row["name"]) for row in self._all())

    def rows(self) -> Iterator[Row]:
        """All rows in their order, a few at a time in memory."""
        return (self._parse(row) for row in self._all())

    def _all(self) -> Iterator[dict[str, object]]:
        for first in range(0, len(self), _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, len(self))
            yield from map(json.loads, self._rows(first, last).splitlines())

    def _rows(self, first: int, last: int) -> bytes:
        start, end = int(self._starts[first]), int(self._starts[last])
        return self._index.read("rows", start, end - start)


def write_rows(writer: IndexWriter, rows: Iterator[dict[str, object]]) -> None:
    """The blocks of a table. Each row has a "name" of its own."""
    starts, digests = [0], []
    for row in rows:
        line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        writer.add("rows", line)
        starts.append(starts[-1] + len(line))
        digests.append(_digest(str(row["name"])))
    order = np.argsort(np.array(digests, dtype=np.uint64), kind="stable")
    writer.add("starts", np.array(starts, dtype=np.int64).tobytes())
    writer.add("digests", np.array(digests, dtype=np.uint64)[order].tobytes())
    writer.add("order", order.astype(np.int64).tobytes())


def _digest(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))

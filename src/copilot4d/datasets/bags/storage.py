"""`Storage`: one file of recorded messages. Where each message lies is known; its bytes are read when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import DataError, UsageError

Encoding = Literal["cdr", "ros1"]

INSTALL = "pip install 'copilot4d[ros]'"


@dataclass(frozen=True, kw_only=True)
class Channel:
    """Messages of one topic and type in one file."""

    number: int
    topic: str
    type: str  # as ROS 2 writes it: sensor_msgs/msg/PointCloud2
    encoding: Encoding | str
    count: int


@dataclass(frozen=True, kw_only=True)
class MessageIndex:
    """The messages of some channels in order of their recording: (N,) times, and (N, 2) where each lies."""

    times_ns: NDArray[np.int64]
    places: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int]] | NDArray[np.int64]) -> MessageIndex:
        """From rows (time, place, place), which may be in any order."""
        table = np.asarray(rows, dtype=np.int64).reshape(-1, 3)
        order = np.argsort(table[:, 0], kind="stable")
        return cls(times_ns=table[order, 0], places=table[order, 1:])


class Storage(Protocol):
    """One file. `read` is safe from several threads and after a fork."""

    @property
    def path(self) -> Path:
        """The file."""
        ...

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Everything that was recorded, by topic and type."""
        ...

    def index(self, channels: Sequence[int]) -> MessageIndex:
        """Where the messages of these channels lie."""
        ...

    def read(self, place: NDArray[np.int64], most: int | None = None) -> bytes:
        """One message as it was recorded; with `most`, at least its first so many bytes, where that is cheaper."""
        ...


def type_name(name: str) -> str:
    """sensor_msgs/PointCloud2 (ROS 1) and sensor_msgs/msg/PointCloud2 (ROS 2) are one type."""
    parts = name.split("/")
    return f"{parts[0]}/msg/{parts[1]}" if len(parts) == 2 else name


def damaged(path: Path, what: str, error: BaseException | str, remedy: str) -> DataError:
    """The DataError for a bag whose container does not hold together."""
    found = " ".join(str(error).split())[:200] or type(error).__name__
    return DataError(path, "bag", expected=what, found=found, remedy=remedy)


def needs(package: str, error: ImportError) -> UsageError:
    """The one sentence where an extra is not installed."""
    return UsageError(f"reading bags needs {package}, which is not installed: {INSTALL}")


@contextmanager
def extra(package: str) -> Iterator[None]:
    """Imports inside become the one sentence where the extra is missing."""
    try:
        yield
    except ImportError as error:
        raise needs(package, error) from error


def short(data: Any, length: int, path: Path) -> bytes:
    """The bytes, if so many are there."""
    if len(data) < length:
        raise damaged(
            path,
            "a whole file",
            f"its end is missing: {len(data)} of {length} bytes of a message",
            "copy the file again",
        )
    return bytes(data)

"""`Bag`: all files of one recording as topics. Opening one reads indexes, never the messages themselves."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.bags.storage import Storage, damaged, extra
from copilot4d.datasets.text_files import read_text
from copilot4d.errors import DataError
from copilot4d.plain_yaml import parse_yaml

SUFFIXES = (".bag", ".mcap", ".db3")
METADATA = "metadata.yaml"  # of a ROS 2 bag's folder
_HEADER_BYTES = 400  # a message's header: its time and the name of its frame


@dataclass(frozen=True, kw_only=True)
class Topic:
    """What was recorded under one name."""

    name: str
    type: str
    encoding: str
    count: int


@dataclass(frozen=True, kw_only=True)
class Header:
    """A message's own time and frame."""

    stamp_ns: int
    frame: str


@dataclass(frozen=True, kw_only=True)
class TopicIndex:
    """The messages of a topic in order of recording: (N,) recorder's times, (N, 3) file and place in it."""

    times_ns: NDArray[np.int64]
    places: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.times_ns)


class Bag:
    """One recording: a .bag, .mcap or .db3 file, or the folder of a ROS 2 bag."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files, self._message_compression = _files(path)
        self.storages = tuple(_open(file) for file in files)
        found: dict[str, Topic] = {}
        for channel in (channel for storage in self.storages for channel in storage.channels):
            before = found.get(channel.topic)
            if before is not None and before.type != channel.type:
                raise DataError(
                    path, f"topic {channel.topic}", expected="messages of one type",
                    found=f"{before.type} and {channel.type}", remedy="record or filter the two into bags of their own",
                )  # fmt: skip
            count = channel.count + (before.count if before else 0)
            found[channel.topic] = Topic(
                name=channel.topic, type=channel.type, encoding=channel.encoding, count=count
            )  # fmt: skip
        self.topics = dict(sorted(found.items()))

    def of_type(self, *types: str) -> list[Topic]:
        """The topics of these types that hold messages, by name."""
        return [topic for topic in self.topics.values() if topic.type in types and topic.count]

    def index(self, topic: str) -> TopicIndex:
        """Where the messages of a topic lie."""
        times, places = [], []
        for number, storage in enumerate(self.storages):
            channels = [channel.number for channel in storage.channels if channel.topic == topic]
            if not channels:
                continue
            part = storage.index(channels)
            times.append(part.times_ns)
            places.append(np.column_stack([np.full(len(part.times_ns), number), part.places]))
        if not times:
            return TopicIndex(times_ns=np.zeros(0, np.int64), places=np.zeros((0, 3), np.int64))
        joined, order = np.concatenate(times), np.argsort(np.concatenate(times), kind="stable")
        return TopicIndex(times_ns=joined[order], places=np.concatenate(places)[order])

    def raw(self, place: NDArray[np.int64], most: int | None = None) -> bytes:
        """One message as it was recorded, or its beginning."""
        storage = self.storages[int(place[0])]
        if not self._message_compression:
            return storage.read(place[1:], most)
        import zstandard

        try:
            return zstandard.ZstdDecompressor().decompress(storage.read(place[1:]))
        except zstandard.ZstdError as error:
            raise damaged(storage.path, "messages compressed by zstd", error, "copy the file again") from error

    def message(self, topic: str, place: NDArray[np.int64], time_ns: int) -> Any:
        """One message, decoded."""
        found = self.topics[topic]
        data = self.raw(place)
        try:
            return decode(data, found.type, found.encoding)
        except DataError:
            raise
        except Exception as error:  # what a decoder stumbles over in damaged bytes is of any kind
            raise at_message(
                self.path, topic, time_ns, expected=f"a {found.type}",
                found=f"bytes that are none ({' '.join(str(error).split())[:120] or type(error).__name__})",
                remedy="copy the bag again; if it stays so, filter this message out",
            ) from error  # fmt: skip

    def messages(self, topic: str) -> Iterator[tuple[int, Any]]:
        """(recorder's time, message) of a whole topic, in order of recording."""
        index = self.index(topic)
        for time, place in zip(index.times_ns.tolist(), index.places, strict=True):
            yield time, self.message(topic, place, time)

    def headers(self, topic: str, index: TopicIndex) -> list[Header]:
        """The own time and frame of each message that begins with a header; reads a few bytes of each."""
        encoding = self.topics[topic].encoding
        found = []
        for time, place in zip(index.times_ns.tolist(), index.places, strict=True):
            try:
                found.append(_header(self.raw(place, _HEADER_BYTES), encoding))
            except (struct.error, UnicodeDecodeError, IndexError) as error:
                raise at_message(
                    self.path, topic, time, expected="a header with a time and a frame", found="bytes that are none",
                    remedy="copy the bag again; if it stays so, filter this message out",
                ) from error  # fmt: skip
        return found


def at_message(path: Path, topic: str, time_ns: int, *, expected: str, found: str, remedy: str) -> DataError:
    """A DataError that names the topic and the recorder's time of a message."""
    where = f"topic {topic}, message recorded at {time_ns // 10**9}.{time_ns % 10**9:09d} s"
    return DataError(path, where, expected=expected, found=found, remedy=remedy)


@lru_cache(maxsize=16)
def _opened(path: Path, size: int, modified_ns: int) -> Bag:
    return Bag(path)


def open_bag(path: Path) -> Bag:
    """The bag at a path; opened once in a process, and again where the file has changed."""
    found = path.stat()
    return _opened(path, found.st_size, found.st_mtime_ns)


def decode(data: bytes, type: str, encoding: str) -> Any:
    """A message of a standard type from its bytes."""
    if encoding == "cdr":
        return _typestore("ROS2_HUMBLE").deserialize_cdr(data, type)
    if encoding == "ros1":
        return _typestore("ROS1_NOETIC").deserialize_ros1(data, type)
    raise DataError(
        "message", "encoding", expected="cdr (ROS 2) or ros1", found=encoding or "none",
        remedy="record or convert the log as a ROS 1 or ROS 2 bag",
    )  # fmt: skip


@lru_cache(maxsize=2)
def _typestore(name: str) -> Any:
    with extra("rosbags"):
        from rosbags.typesys import Stores, get_types_from_msg, get_typestore
    store = get_typestore(Stores[name])
    for transforms in ("tf2_msgs/msg/TFMessage", "tf/msg/tfMessage"):  # of ROS 2 and ROS 1, and of old ROS 1
        if transforms not in store.fielddefs:
            store.register(get_types_from_msg("geometry_msgs/TransformStamped[] transforms", transforms))
    return store


def _header(data: bytes, encoding: str) -> Header:
    """std_msgs/Header at the beginning of a message. ROS 1 has a sequence number first, CDR four bytes about itself."""
    order = ">" if encoding == "cdr" and not data[1] & 1 else "<"
    seconds, nanoseconds, length = struct.unpack_from(f"{order}iII", data, 4)
    text = data[16 : 16 + length]
    return Header(stamp_ns=seconds * 10**9 + nanoseconds, frame=text.decode().rstrip("\0").lstrip("/"))


def _files(path: Path) -> tuple[list[Path], bool]:
    """The files of a recording, in order, and whether single messages are compressed."""
    if not path.is_dir():
        return [path], False
    keys = parse_yaml(read_text(path / METADATA, "YAML"), source=path / METADATA)
    try:
        about = keys["rosbag2_bagfile_information"]
        names = [str(name) for name in about["relative_file_paths"]]
        mode, kind = str(about.get("compression_mode") or "").lower(), str(about.get("compression_format") or "")
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(
            path / METADATA, "`rosbag2_bagfile_information` with `relative_file_paths`", f"no {error}",
            "copy the bag again; `ros2 bag reindex` writes this file anew",
        ) from error  # fmt: skip
    files = [path / Path(name).name for name in names]
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        raise damaged(path, "the files that metadata.yaml lists", f"no {', '.join(missing) or 'file'}", "copy them too")
    if mode == "file" or (mode == "message" and kind != "zstd"):
        raise damaged(
            path, "a bag without compression, or with messages in zstd", f"compression {kind} of each {mode}",
            "decompress it (`zstd -d FILE`, then `ros2 bag reindex`), or make it anew with `ros2 bag convert`",
        )  # fmt: skip
    return files, mode == "message"


def _open(path: Path) -> Storage:
    match path.suffix.lower():
        case ".bag":
            from copilot4d.datasets.bags.rosbag1 import Rosbag1

            return Rosbag1(path)
        case ".mcap":
            from copilot4d.datasets.bags.mcap_file import McapFile

            return McapFile(path)
        case ".db3":
            from copilot4d.datasets.bags.sqlite_file import SqliteFile

            return SqliteFile(path)
    raise damaged(
        path, f"a file that ends in {', '.join(SUFFIXES)}", path.suffix or "no suffix", "rename or convert it"
    )

"""What a bag does not tell by itself, such as which topics are meant: from the caller, or NAME.copilot4d.yaml."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from copilot4d.datasets.bags.bag import Bag
from copilot4d.datasets.bags.pose_topics import TYPES as POSE_TYPES
from copilot4d.datasets.bags.tf_tree import TYPES as TF_TYPES
from copilot4d.datasets.folder_config import parse_ego_box, parse_motion
from copilot4d.datasets.point_times import UNITS_NS
from copilot4d.datasets.text_files import read_text
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry.se3 import FloatArray
from copilot4d.plain_yaml import parse_yaml

POINT_CLOUD = "sensor_msgs/msg/PointCloud2"
VERSION = 1
TF = "tf"


@dataclass(frozen=True, kw_only=True)
class BagDescription:
    """Choices for a bag; None or empty: found out from the bag. Each is a key of the YAML file, too."""

    lidar: tuple[str, ...] = ()  # topics of PointCloud2; several are merged into the first one's sweeps
    poses: str | None = None  # a topic, or "tf"
    world_frame: str | None = None  # for poses from tf: the frame in which the lidar's motion is told
    pose_of: str | None = None  # the frame whose poses a topic holds, where the messages do not name it rightly
    ego_from_lidar: FloatArray | None = None  # (4, 4) where tf does not join the poses' frame and the lidar's
    deskew: bool | None = None  # None: where the points carry times
    time_field: str | None = None
    time_unit: str | None = None
    clock: str = "header"  # or "recorder": when the recorder received a message
    ego_box: FloatArray | None = None

    def given(self, **choices: Any) -> BagDescription:
        """With what the caller chose on top; None and empty choose nothing."""
        return replace(self, **{key: value for key, value in choices.items() if value not in (None, ())})


def description_path(bag: Path) -> Path:
    """drive.mcap and the folder drive/ are described by drive.copilot4d.yaml beside them."""
    return bag.with_name(f"{_stem(bag)}.copilot4d.yaml")


def estimated_poses_path(bag: Path) -> Path:
    """Where poses that were estimated for a bag lie: TUM, of its lidar."""
    return bag.with_name(f"{_stem(bag)}.poses.txt")


def _stem(bag: Path) -> str:
    return bag.name if bag.is_dir() else bag.stem


def read_description(bag: Path) -> BagDescription:
    """The description beside a bag, or one that says nothing."""
    path = description_path(bag)
    if not path.is_file():
        return BagDescription()
    keys = parse_yaml(read_text(path, "YAML"), source=path)
    if not isinstance(keys, dict):
        raise _bad(path, "YAML", "`key: value` lines", type(keys).__name__, "see docs/bags.md")
    version = keys.pop("version", None)
    if version != VERSION or isinstance(version, bool):
        raise _bad(path, "version", f"{VERSION}", repr(version), f"write `version: {VERSION}`")
    known = tuple(BagDescription.__dataclass_fields__)
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            remedy = f"did you mean `{near[0]}`?" if near else f"remove it; there are: {', '.join(known)}"
            raise _bad(path, "keys", "known keys only", f"the unknown key {key!r}", remedy)
    return BagDescription(**{key: _value(path, key, value) for key, value in keys.items()})


def _value(path: Path, key: str, value: Any) -> Any:
    match key:
        case "lidar":
            topics = [value] if isinstance(value, str) else value
            if not isinstance(topics, list) or not topics or not all(isinstance(topic, str) for topic in topics):
                raise _bad(path, key, "a topic or a list of topics", repr(value), "write `lidar: /points`")
            return tuple(topics)
        case "ego_from_lidar":
            return parse_motion(path, key, value)
        case "ego_box":
            return parse_ego_box(path, key, value)
        case "deskew":
            if not isinstance(value, bool):
                raise _bad(path, key, "true or false", repr(value), "write `deskew: true` or leave it out")
            return value
        case "clock" if value not in ("header", "recorder"):
            raise _bad(path, key, "header or recorder", repr(value), "write one of the two")
        case "time_unit" if value not in UNITS_NS:
            raise _bad(path, key, f"one of {', '.join(UNITS_NS)}", repr(value), "write the unit of the points' times")
    if not isinstance(value, str) or not value:
        raise _bad(path, key, "a text", repr(value), f"write {key} as a text, in quotes if need be")
    return value


def _bad(path: Path, field: str, expected: str, found: str, remedy: str) -> DataError:
    return DataError(path, field, expected=expected, found=found[:200], remedy=remedy)


def choose_lidars(bag: Bag, description: BagDescription) -> tuple[str, ...]:
    """The topics of the sweeps: as described, or the only one there is."""
    if description.lidar:
        for name in description.lidar:
            if name not in bag.topics or bag.topics[name].type != POINT_CLOUD:
                raise no_topic(bag, name, "lidar_topics", POINT_CLOUD)
        return description.lidar
    clouds = bag.of_type(POINT_CLOUD)
    if not clouds:
        raise DataError(
            bag.path, "topics", expected=f"a topic of {POINT_CLOUD}", found=listing(bag) or "no messages",
            remedy="record the lidar's points; packets of a driver must be played through the driver first",
        )  # fmt: skip
    if len(clouds) > 1:
        raise UsageError(
            f"{bag.path} has several lidar topics: {'; '.join(f'{c.name} ({c.count} messages)' for c in clouds)}. "
            "Choose one with `lidar_topics`, name several to merge them, or write `lidar:` in "
            f"{description_path(bag.path)}"
        )
    return (clouds[0].name,)


def no_topic(bag: Bag, name: str, flag: str, wanted: str) -> UsageError:
    """A topic that the bag has not, or that is of another type."""
    found = f"it holds {bag.topics[name].type}" if name in bag.topics else "there is none"
    near = difflib.get_close_matches(name, bag.topics, n=1)
    hint = f" (did you mean {near[0]}?)" if near and near[0] != name else ""
    return UsageError(f"`{flag}` {name}: {found}; wanted is a topic of {wanted}{hint}. {bag.path} has: {listing(bag)}")


def listing(bag: Bag) -> str:
    """The topics that matter here, with types and counts."""
    matter = bag.of_type(POINT_CLOUD, *POSE_TYPES, *TF_TYPES)
    shown = matter or [topic for topic in bag.topics.values() if topic.count]
    return "; ".join(f"{t.name} ({t.type.rsplit('/', 1)[-1]}, {t.count})" for t in shown[:20])

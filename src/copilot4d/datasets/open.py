"""`open_dataset`: any driving log on disk; its format is recognised from what the folder holds."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from copilot4d.datasets.bags.bag import SUFFIXES as BAG_SUFFIXES
from copilot4d.datasets.dataset import Dataset, Origin, refused
from copilot4d.datasets.sweep_files import subfolders
from copilot4d.errors import DataError, UsageError

ALL_SWEEPS = "@20hz"  # behind a nuScenes path: all sweeps of the sensor instead of the 2 Hz keyframes

_MOST_SUBFOLDERS = 64  # looked into where the folder itself is nothing we know


@dataclass(frozen=True, kw_only=True)
class Format:
    """One row of the table of formats."""

    name: str
    recognise: Callable[[Path], Path | None]  # the data set's true root, or None where it is not this format
    open: Callable[..., Dataset]  # root -> Dataset; with `require_poses` where poses are optional
    looks_like: str  # for the message of a path that is nothing we know
    poses_optional: bool = False
    deskews: bool = False  # takes `deskew`


def _format(name: str, module: str, looks_like: str, poses_optional: bool = False, deskews: bool = False) -> Format:
    """A row whose module is imported on first use, so that pyarrow, say, is loaded for Argoverse 2 alone."""

    def call(function: str) -> Callable[..., Any]:
        def imported(*args: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(f"copilot4d.datasets.{module}"), function)(*args, **options)

        return imported

    return Format(
        name=name, recognise=call("recognise"), open=call("open"), looks_like=looks_like, poses_optional=poses_optional,
        deskews=deskews,
    )  # fmt: skip


FORMATS: dict[str, Format] = {
    row.name: row
    for row in (
        _format("kitti_odometry", "kitti_odometry", "sequences/00/velodyne/000000.bin", poses_optional=True),
        _format(
            "kitti_raw", "kitti_raw", "2011_09_26/2011_09_26_drive_0005_sync/velodyne_points/data", poses_optional=True
        ),
        _format("kitti_360", "kitti_360", "data_3d_raw/2013_05_28_drive_0000_sync/velodyne_points/data and data_poses"),
        _format("nuscenes", "nuscenes", "v1.0-trainval/sample_data.json and samples/LIDAR_TOP"),
        _format("argoverse2", "argoverse2", "val/LOG/sensors/lidar/TIMESTAMP.feather and city_SE3_egovehicle.feather"),
        _format("waymo", "waymo", "training/lidar/SEGMENT.parquet and training/vehicle_pose"),
        _format("once", "once", "data/000000/000000.json and data/000000/lidar_roof"),
        _format("pandaset", "pandaset", "001/lidar/poses.json beside 001/lidar/00.feather, converted from 00.pkl.gz"),
        _format(
            "ros_bag",
            "ros_bag",
            "drive.mcap, drive.bag, or a ROS 2 bag's metadata.yaml",
            poses_optional=True,
            deskews=True,
        ),
        _format(
            "folder", "folder", "copilot4d.yaml, or point files beside poses.txt", poses_optional=True, deskews=True
        ),
    )
}


def _simulated(name: str) -> Dataset:
    """The simulator, like every format, is imported on first use."""
    opened: Dataset = importlib.import_module("copilot4d.datasets.simulated").open(name)
    return opened


# Data sets that are no folders: the part of the name before "/" -> its opener, which is given the whole name.
NAMED: dict[str, Callable[[str], Dataset]] = {"street-v1": _simulated, "street-v1-whatif": _simulated}


def open_dataset(
    path: str | Path, *, format: str | None = None, require_poses: bool = True, lidar_topics: Sequence[str] = (),
    pose_topic: str | None = None, deskew: bool | None = None,
) -> Dataset:  # fmt: skip
    """Open the data set at a path: its root, or a folder a little above or below it where that is unambiguous.

    `format` is one of FORMATS and is needed only where a folder could be two of them. Without poses a log cannot be
    used, and a DataError says so; with `require_poses=False` such drives get identity poses, and
    `Dataset.has_poses(name)` is False for them. "path/to/nuscenes@20hz" opens all sweeps, not only the keyframes.
    `lidar_topics` and `pose_topic` choose in a ROS bag or MCAP file what it does not tell by itself (docs/bags.md).
    `deskew` moves each point to its sweep's time: in bags by default where points have times, in own data
    (docs/own_data.md) where it or the description says so.
    """
    if format is not None and format not in FORMATS:
        near = difflib.get_close_matches(format, FORMATS, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(f"unknown data set format {format!r}{hint}; there are: {', '.join(FORMATS)}")
    if format is None and (prefix := str(path).split("/")[0]) in NAMED and not Path(path).exists():
        return _sent_as(str(path), NAMED[prefix](str(path)))
    all_sweeps = str(path).endswith(ALL_SWEEPS) and not Path(path).exists()
    folder = _existing_folder(Path(str(path).removesuffix(ALL_SWEEPS)) if all_sweeps else Path(path))
    try:
        found, root = _recognise(folder, format)
        if all_sweeps and found.name != "nuscenes":
            raise UsageError(f"{path}: {ALL_SWEEPS} is for nuScenes, and {folder} is {found.name}; leave it out")
        options: dict[str, Any] = {"require_poses": require_poses} if found.poses_optional else {}
        chosen = {"lidar_topics": tuple(lidar_topics), "pose_topic": pose_topic, "deskew": deskew}
        if found.name == "ros_bag":
            options |= {"lidar": tuple(lidar_topics), "poses": pose_topic}
        elif lidar_topics or pose_topic is not None:
            raise UsageError(f"topics are chosen for bags and MCAP files, and {path} is {found.name}: leave them out")
        if found.deskews:
            options["deskew"] = deskew
        elif deskew:
            raise UsageError(
                f"the points of bags, MCAP files and own data can be deskewed by their times, and {path} is "
                f"{found.name}, whose files are read as they were published: leave deskewing out"
            )
        opened = found.open(root, **options, **({"sweeps": "all"} if all_sweeps else {}))
    except OSError as error:
        raise refused(folder, error) from error
    return _sent_as(
        f"{folder}{ALL_SWEEPS if all_sweeps else ''}", opened, format=format, require_poses=require_poses, **chosen
    )


def _sent_as(path: str, dataset: Dataset, **options: Any) -> Dataset:
    """The data set with what another process opens it by."""
    return replace(dataset, origin=Origin(path=path, options=options))


def check_recognised(path: str | Path) -> None:
    """Raise what `open_dataset` would for a path that is no data set, without opening it: no table is read."""
    if str(path).split("/")[0] in NAMED and not Path(path).exists():
        return
    folder = _existing_folder(Path(path))
    try:
        _recognise(folder, None)
    except OSError as error:
        raise refused(folder, error) from error


def _existing_folder(path: Path) -> Path:
    """The path's folder, absolute, so that the names of its parents can be looked at."""
    try:
        resolved = path.expanduser().absolute()
        if resolved.is_dir():
            empty = not any(True for _ in resolved.iterdir())
        elif resolved.exists():
            return resolved if resolved.suffix.lower() in BAG_SUFFIXES else resolved.parent
        else:
            raise _missing(path, resolved)
    except OSError as error:
        raise refused(path, error) from error
    except (ValueError, RuntimeError) as error:  # a name that no file can have; no home folder for ~
        raise UsageError(f"{str(path)!r} is no path: {error}") from error
    if empty:
        raise DataError(
            path, "data set", expected="a driving log", found="an empty folder",
            remedy="copy the data there, or check the path",
        )  # fmt: skip
    return resolved


def _missing(path: Path, resolved: Path) -> DataError:
    parent = next(folder for folder in resolved.parents if folder.is_dir())
    wanted = resolved.relative_to(parent).parts[0]
    named = difflib.get_close_matches(str(path).split("/")[0], NAMED, n=1)
    if named:
        return DataError(
            path, "data set", expected="a folder", found="nothing there", remedy=f"did you mean {named[0]}"
        )
    near = difflib.get_close_matches(wanted, [entry.name for entry in parent.iterdir()], n=1)
    hint = f"did you mean {parent / near[0]}" if near else f"check the spelling; {parent} exists but has no {wanted}"
    return DataError(path, "data set", expected="a folder", found="nothing there", remedy=hint)


def _recognise(path: Path, format: str | None) -> tuple[Format, Path]:
    """The format and root of a folder, or of the one data set in a subfolder of it."""
    rows = list(FORMATS.values()) if format is None else [FORMATS[format]]
    if path.is_file():
        return FORMATS["ros_bag"], path
    here = _matches(path, rows)
    if not here:
        below = [match for folder in subfolders(path)[:_MOST_SUBFOLDERS] for match in _matches(folder, rows)]
        here = list({(row.name, root): (row, root) for row, root in below}.values())
    if len(here) == 1:
        return here[0]
    if here:
        shown = "; ".join(f"{root} ({row.name})" for row, root in here[:8])
        raise UsageError(f"{path} holds several data sets: {shown}. Give the path of one of them, or its format")
    raise _unknown(path, rows)


def _matches(path: Path, rows: list[Format]) -> list[tuple[Format, Path]]:
    """All rows that recognise the path. Our own description of a folder settles it; bare folders are the last guess."""
    if (path / "copilot4d.yaml").is_file() and any(row.name == "folder" for row in rows):
        return [(FORMATS["folder"], path)]
    others = [(row, root) for row in rows if row.name != "folder" and (root := row.recognise(path)) is not None]
    if others:
        return others
    return [(row, root) for row in rows if row.name == "folder" and (root := row.recognise(path)) is not None]


def _unknown(path: Path, rows: list[Format]) -> DataError:
    entries = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in path.iterdir())
    shown = ", ".join(entries[:8]) + (f", ... ({len(entries)} entries)" if len(entries) > 8 else "")
    looked_for = "; ".join(f"{row.looks_like} ({row.name})" for row in rows)
    words = " ".join(entries).lower()
    guess = max(rows, key=lambda row: difflib.SequenceMatcher(None, row.looks_like.lower(), words).ratio())
    return DataError(
        path, "data set", expected=f"one of: {looked_for}", found=shown,
        remedy=f"give the root of the data set (nearest guess: {guess.name}), or describe own data in a "
        "copilot4d.yaml (docs/own_data.md)",
    )  # fmt: skip

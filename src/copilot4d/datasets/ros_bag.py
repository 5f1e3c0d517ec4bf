"""Robot logs: .bag, .mcap and .db3 files, and folders of ROS 2 bags (docs/bags.md). Needs the extra `ros`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.bags.bag import METADATA, SUFFIXES, Bag, open_bag
from copilot4d.datasets.bags.description import BagDescription, choose_lidars, listing, read_description
from copilot4d.datasets.bags.pose_source import PoseSource
from copilot4d.datasets.bags.pose_topics import clock_jump
from copilot4d.datasets.bags.sweeps import BagSweeps, LidarTopic
from copilot4d.datasets.dataset import Dataset
from copilot4d.datasets.sweep_files import natural_sort, subfolders
from copilot4d.errors import Copilot4dWarning, DataError
from copilot4d.geometry import Drive, se3
from copilot4d.geometry.trajectory import Trajectory

FORMAT = "ros_bag"
LONGEST_GAP_S = 1.0  # between two poses; a straight line across more is no pose


def recognise(path: Path) -> Path | None:
    """A bag's file, the folder of a ROS 2 bag, or a folder that holds bags."""
    return path if _bags(path) else None


def _bags(path: Path) -> list[Path]:
    """The bags at a path: itself, or those in the folder."""
    if is_bag(path):
        return [path]
    if not path.is_dir():
        return []
    files = [file for file in path.iterdir() if file.is_file() and is_bag(file)]
    return natural_sort([*files, *(folder for folder in subfolders(path) if is_bag(folder))])


def is_bag(path: Path) -> bool:
    """Whether a path looks like one recording. Nothing is opened but a folder's metadata.yaml."""
    if path.is_file():
        return path.suffix.lower() in SUFFIXES
    metadata = path / METADATA
    try:
        return metadata.is_file() and "rosbag2_bagfile_information" in metadata.read_text(errors="replace")[:2000]
    except OSError:
        return False


def open(root: Path, *, require_poses: bool = True, **choices: Any) -> Dataset:
    """The recordings at a root, by the names of their files without suffix.

    `choices` are fields of `BagDescription` (lidar, poses, deskew): they go before the description beside each bag.
    """
    bags = _bags(root)
    stems = [_name(bag) for bag in bags]
    by_name = {_name(bag) if stems.count(_name(bag)) == 1 else bag.name: bag for bag in bags}
    recordings = {
        name: _Recording(name, path, read_description(path).given(**choices)) for name, path in by_name.items()
    }  # fmt: skip
    without = () if require_poses else tuple(name for name, one in recordings.items() if not one.has_poses)
    return Dataset(
        format=FORMAT,
        root=root,
        names=tuple(by_name),
        open_drive=partial(_open_drive, recordings=recordings, require_poses=require_poses),
        names_without_poses=without,
    )


def _name(bag: Path) -> str:
    return bag.name if bag.is_dir() else bag.stem


@dataclass(frozen=True)
class _Recording:
    """One bag and what is asked of it; read when first needed."""

    name: str
    path: Path
    description: BagDescription

    @cached_property
    def bag(self) -> Bag:
        return open_bag(self.path)

    @cached_property
    def lidars(self) -> tuple[LidarTopic, ...]:
        """The lidars, the first one's sweeps first; each with its way where there are poses."""
        source = PoseSource(self.bag, self.description)
        return tuple(self._lidar(topic, source) for topic in choose_lidars(self.bag, self.description))

    @property
    def has_poses(self) -> bool:
        return self.lidars[0].trajectory is not None

    def _lidar(self, topic: str, source: PoseSource) -> LidarTopic:
        index = self.bag.index(topic)
        if not len(index):
            raise DataError(
                self.path, f"topic {topic}", expected="sweeps", found="no messages", remedy="record the lidar's points"
            )
        headers = self.bag.headers(topic, index)
        frames = {header.frame for header in headers}
        if len(frames) > 1:
            raise DataError(
                self.path, f"topic {topic}", expected="sweeps in one frame", found=", ".join(sorted(frames)),
                remedy="record or filter the lidars into topics of their own",
            )  # fmt: skip
        stamps = index.times_ns
        if self.description.clock == "header":
            stamps = np.array([header.stamp_ns for header in headers], dtype=np.int64)
            self._check(topic, stamps, index.times_ns)
        way = source.trajectory(frames.pop())
        return LidarTopic(
            path=self.path, topic=topic, places=index.places, recorded_ns=index.times_ns, stamps_ns=stamps,
            trajectory=way, wanted_field=self.description.time_field, wanted_unit=self.description.time_unit,
        )  # fmt: skip

    def _check(self, topic: str, stamps: NDArray[np.int64], recorded: NDArray[np.int64]) -> None:
        back = np.flatnonzero(np.diff(stamps) <= 0)
        if len(back):
            at = int(back[0]) + 1
            raise clock_jump(self.bag, topic, int(recorded[at]), int(stamps[at - 1]), int(stamps[at]))


def _open_drive(name: str, *, recordings: dict[str, _Recording], require_poses: bool) -> Drive:
    one = recordings[name]
    lidars = one.lidars
    first = lidars[0]
    if first.trajectory is None and require_poses:
        raise DataError(
            one.path, "poses", expected="odometry, tf, stamped poses or satellite fixes", found=listing(one.bag),
            remedy=f"record them, or estimate them: `copilot4d.doctor.write_estimated_poses` {one.path}",
        )  # fmt: skip
    if first.trajectory is not None:
        first = _with_poses(one, first, first.trajectory)
    poses = se3.identity((len(first.stamps_ns),)) if first.trajectory is None else first.trajectory.at(first.stamps_ns)
    poses = se3.nearest_rigid(poses)
    deskew = one.description.deskew is not False and first.trajectory is not None
    return Drive(
        name=name,
        world_from_lidar=poses,
        timestamps_ns=first.stamps_ns,
        read=BagSweeps(lidars=(first, *lidars[1:]), world_from_lidar=poses, deskew=deskew),
        format=FORMAT,
        source=str(one.path),
        ego_box=one.description.ego_box,
    )


def _with_poses(one: _Recording, lidar: LidarTopic, way: Trajectory) -> LidarTopic:
    """Without the sweeps for which there is no pose: recordings rarely begin and end at one moment."""
    known = way.knows(lidar.stamps_ns, longest_gap_s=LONGEST_GAP_S)
    if known.all():
        return lidar
    if not known.any():
        raise DataError(
            one.path, f"topic {lidar.topic}", expected="poses around the sweeps' times",
            found=f"sweeps from {lidar.stamps_ns[0] * 1e-9:.3f} to {lidar.stamps_ns[-1] * 1e-9:.3f} s, poses from "
            f"{way.timestamps_ns[0] * 1e-9:.3f} to {way.timestamps_ns[-1] * 1e-9:.3f} s",
            remedy="use one clock for both; `clock: recorder` in the bag's description takes the recorder's",
        )  # fmt: skip
    warnings.warn(
        f"{one.path}: {int((~known).sum())} of {len(known)} sweeps of {lidar.topic} have no pose within "
        f"{LONGEST_GAP_S:g} s and are left out",
        Copilot4dWarning, stacklevel=2,
    )  # fmt: skip
    return LidarTopic(
        path=lidar.path, topic=lidar.topic, places=lidar.places[known], recorded_ns=lidar.recorded_ns[known],
        stamps_ns=lidar.stamps_ns[known], trajectory=way, wanted_field=lidar.wanted_field,
        wanted_unit=lidar.wanted_unit,
    )  # fmt: skip

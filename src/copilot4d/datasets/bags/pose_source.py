"""Which of a bag's poses to take, and what they say of the lidar: odometry, tf, stamped poses, satellite fixes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

from copilot4d.datasets.bags.bag import Bag
from copilot4d.datasets.bags.description import (
    TF,
    BagDescription,
    description_path,
    estimated_poses_path,
    listing,
    no_topic,
)
from copilot4d.datasets.bags.pose_topics import FIX, ODOMETRY, POSE_STAMPED, POSE_WITH_COVARIANCE, TYPES, read_poses
from copilot4d.datasets.bags.tf_tree import TfTree, read_tf
from copilot4d.datasets.pose_files import read_tum_poses
from copilot4d.errors import Copilot4dWarning, DataError, UsageError
from copilot4d.geometry import se3
from copilot4d.geometry.trajectory import Trajectory


@dataclass(frozen=True)
class PoseSource:
    """The poses of a bag. `trajectory(frame)` is the way of a lidar's frame; `name` says where it comes from."""

    bag: Bag
    description: BagDescription

    @cached_property
    def tf(self) -> TfTree:
        """The bag's transforms; read when first asked for."""
        return read_tf(self.bag, recorder_clock=self.description.clock == "recorder")

    def trajectory(self, lidar_frame: str) -> Trajectory | None:
        """The lidar's way, or None where the bag has no poses at all."""
        bag, wanted = self.bag, self.description.poses
        if wanted is None and (beside := estimated_poses_path(bag.path)).is_file():
            poses = read_tum_poses(beside)
            return Trajectory(timestamps_ns=poses.timestamps_ns, world_from_body=poses.poses)
        if wanted == TF:
            return self._from_tf(lidar_frame, needed=True)
        if wanted is not None:
            if wanted not in bag.topics or bag.topics[wanted].type not in TYPES:
                raise no_topic(bag, wanted, "pose_topic", "poses, or the word tf")
            return self._from_topic(wanted, lidar_frame)
        for types in ((ODOMETRY,), (), (POSE_STAMPED, POSE_WITH_COVARIANCE), (FIX,)):
            if not types:
                if (way := self._from_tf(lidar_frame, needed=False)) is not None:
                    return way
                continue
            topics = bag.of_type(*types)
            if len(topics) > 1:
                raise UsageError(
                    f"{bag.path} has several topics of poses: {'; '.join(f'{t.name} ({t.count})' for t in topics)}. "
                    f"Choose one with `pose_topic`, or write `poses:` in {description_path(bag.path)}"
                )
            if topics:
                return self._from_topic(topics[0].name, lidar_frame)
        return None

    def _from_topic(self, topic: str, lidar_frame: str) -> Trajectory:
        published = read_poses(self.bag, topic, recorder_clock=self.description.clock == "recorder")
        described = self.description
        if described.ego_from_lidar is not None:
            return published.trajectory.moved(described.ego_from_lidar)
        frame = described.pose_of or published.frame
        if frame == lidar_frame:
            return published.trajectory
        if frame is None:
            warnings.warn(
                f"{self.bag.path}: {topic} does not say which frame its poses are of: taken as the lidar's. "
                f"`pose_of: FRAME` in {description_path(self.bag.path).name} says otherwise",
                Copilot4dWarning, stacklevel=2,
            )  # fmt: skip
            return published.trajectory
        joined = self.tf.fixed_between(frame, lidar_frame)
        if joined is None:
            known = ", ".join(self.tf.frames[:20]) or "none"
            raise DataError(
                self.bag.path, f"topic {topic}", expected=f"transforms from {frame}, whose poses these are, to the "
                f"lidar's frame {lidar_frame}", found=f"tf with the frames: {known}",
                remedy=f"write `pose_of: {lidar_frame}` into {description_path(self.bag.path)} if the poses are the "
                "lidar's own, or `ego_from_lidar:` with where the lidar sits (docs/bags.md)",
            )  # fmt: skip
        return published.trajectory.moved(se3.nearest_rigid(joined))

    def _from_tf(self, lidar_frame: str, *, needed: bool) -> Trajectory | None:
        world = self.description.world_frame or self.tf.world_of(lidar_frame)
        way = None if world is None else self.tf.trajectory(world, lidar_frame)
        if way is None and (needed or self.description.world_frame is not None):
            raise DataError(
                self.bag.path, "tf", expected=f"transforms over time from {world or 'a world frame'} to the lidar's "
                f"frame {lidar_frame}", found=f"the frames: {', '.join(self.tf.frames[:20]) or 'none'}",
                remedy=f"choose another source of poses with `pose_topic`; the bag has: {listing(self.bag)}",
            )  # fmt: skip
        return way

"""The tree of frames that a robot publishes (/tf, /tf_static): where one frame was, seen from another, over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from copilot4d.datasets.bags.bag import Bag, at_message
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.geometry.trajectory import Trajectory

TYPES = ("tf2_msgs/msg/TFMessage", "tf/msg/tfMessage")
PREFERRED_WORLD = "odom"  # it runs on smoothly where `map` jumps with every correction


@dataclass(kw_only=True)
class _Edge:
    parent: str
    fixed: bool
    stamps_ns: list[int] = field(default_factory=list)
    poses: list[FloatArray] = field(default_factory=list)  # parent_from_child

    def trajectory(self) -> Trajectory:
        """Sorted by time, a time once: several nodes may publish one transform."""
        _, first = np.unique(np.array(self.stamps_ns, dtype=np.int64), return_index=True)
        if self.fixed:
            first = np.array([len(self.stamps_ns) - 1])
        stamps = np.array(self.stamps_ns, dtype=np.int64)[first]
        return Trajectory(timestamps_ns=stamps, world_from_body=np.stack([self.poses[i] for i in first]))


class TfTree:
    """Frames by name. A child has one parent; the last that was published counts."""

    def __init__(self) -> None:
        self._edges: dict[str, _Edge] = {}

    @property
    def frames(self) -> list[str]:
        """All frames, by name."""
        return sorted({*self._edges, *(edge.parent for edge in self._edges.values())})

    def add(self, parent: str, child: str, stamp_ns: int, parent_from_child: FloatArray, *, fixed: bool) -> None:
        """One transform as published."""
        edge = self._edges.get(child)
        if edge is None or edge.parent != parent:
            edge = self._edges[child] = _Edge(parent=parent, fixed=fixed)
        edge.stamps_ns.append(stamp_ns)
        edge.poses.append(parent_from_child)

    def fixed_between(self, to: str, source: str) -> FloatArray | None:
        """to_from_source (4, 4) where nothing between the two moves; None where something does, or they are apart."""
        up, down = self._chain(to), self._chain(source)
        joint = next((frame for frame in down if frame in up), None)
        if joint is None:
            return None
        motions = []
        for chain in (up, down):
            motion = se3.identity()
            for frame in chain[: chain.index(joint)]:
                edge = self._edges[frame]
                way = edge.trajectory().world_from_body
                if not edge.fixed and np.ptp(way, axis=0).max() > 1e-9:
                    return None
                motion = se3.compose(way[-1], motion)
            motions.append(motion)
        return se3.compose(se3.invert(motions[0]), motions[1])

    def world_of(self, frame: str) -> str | None:
        """The frame in which the motion of `frame` is best told: `odom`, or the root; None where it never moves."""
        chain = self._chain(frame)
        moving = [i for i, name in enumerate(chain[:-1]) if not self._edges[name].fixed]
        if not moving:
            return None
        above = chain[moving[0] + 1 :]
        return PREFERRED_WORLD if PREFERRED_WORLD in above else chain[-1]

    def trajectory(self, world: str, frame: str) -> Trajectory | None:
        """world_from_frame at every time that a part of it was published; None where nothing joins the two."""
        chain = self._chain(frame)
        if world not in chain:
            return None
        edges = [self._edges[name] for name in chain[: chain.index(world)]]
        ways = [edge.trajectory() for edge in edges]
        moving = [way for way, edge in zip(ways, edges, strict=True) if not edge.fixed]
        if not moving:
            return None
        start = max(int(way.timestamps_ns[0]) for way in moving)
        end = min(int(way.timestamps_ns[-1]) for way in moving)
        stamps = np.unique(np.concatenate([way.timestamps_ns for way in moving]))
        within = stamps[(stamps >= start) & (stamps <= end)]
        if not len(within):
            return None
        pose = se3.identity((len(within),))
        for way, edge in zip(ways, edges, strict=True):
            step = way.world_from_body[-1] if edge.fixed else way.at(within)
            pose = se3.compose(step, pose)
        return Trajectory(timestamps_ns=within, world_from_body=pose)

    def _chain(self, frame: str) -> list[str]:
        """The frame, its parent, and so on up to the root."""
        chain = [frame]
        while chain[-1] in self._edges and self._edges[chain[-1]].parent not in chain:
            chain.append(self._edges[chain[-1]].parent)
        return chain


def read_tf(bag: Bag, *, recorder_clock: bool = False) -> TfTree:
    """All transforms of a bag, timed by their headers, or by when the recorder received them."""
    tree = TfTree()
    for topic in bag.of_type(*TYPES):
        fixed = topic.name.endswith("static")
        for time, message in bag.messages(topic.name):
            for moved in message.transforms:
                at, turn = moved.transform.translation, moved.transform.rotation
                parent, child = moved.header.frame_id.lstrip("/"), moved.child_frame_id.lstrip("/")
                stamp = time if recorder_clock else stamp_of(moved.header)
                tree.add(parent, child, stamp, motion(bag, topic.name, time, at, turn), fixed=fixed)
    return tree


def stamp_of(header: Any) -> int:
    """A decoded header's time in nanoseconds."""
    return int(header.stamp.sec) * 10**9 + int(header.stamp.nanosec)


def motion(bag: Bag, topic: str, time_ns: int, position: Any, turn: Any) -> FloatArray:
    """(4, 4) from a message's position and quaternion; DataError where they are none."""
    quaternion = np.array([turn.w, turn.x, turn.y, turn.z], dtype=np.float64)
    place = np.array([position.x, position.y, position.z], dtype=np.float64)
    length = float(np.linalg.norm(quaternion))
    if not (np.isfinite(place).all() and abs(length - 1) < 1e-2):
        raise at_message(
            bag.path, topic, time_ns, expected="a finite position and a unit quaternion",
            found=f"position {place.tolist()}, a quaternion of length {length:.3g}",
            remedy="choose another source of poses with `pose_topic`, or filter this message out",
        )  # fmt: skip
    return se3.from_quaternion(quaternion, place)

"""Poses that a robot published: odometry, stamped poses, or satellite fixes with an IMU, as a `Trajectory`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.bags.bag import Bag, at_message
from copilot4d.datasets.bags.tf_tree import motion, stamp_of
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.geometry.trajectory import Trajectory

ODOMETRY = "nav_msgs/msg/Odometry"
POSE_STAMPED = "geometry_msgs/msg/PoseStamped"
POSE_WITH_COVARIANCE = "geometry_msgs/msg/PoseWithCovarianceStamped"
FIX, IMU = "sensor_msgs/msg/NavSatFix", "sensor_msgs/msg/Imu"
TYPES = (ODOMETRY, POSE_STAMPED, POSE_WITH_COVARIANCE, FIX)

_BACKWARDS_NS = 1_000_000_000  # messages may overtake each other a little; a clock that jumps is another thing
_EARTH_M, _FLATTENING = 6378137.0, 1 / 298.257223563  # WGS 84


@dataclass(frozen=True, kw_only=True)
class PublishedPoses:
    """Where a frame was. `frame` is None where the message does not name it (PoseStamped)."""

    trajectory: Trajectory
    frame: str | None
    source: str  # for messages


def read_poses(bag: Bag, topic: str, *, recorder_clock: bool = False) -> PublishedPoses:
    """The poses of one topic, of any of TYPES; timed by their headers, or by when the recorder received them."""
    kind = bag.topics[topic].type
    if kind == FIX:
        return _fixes(bag, topic, recorder_clock)
    stamps, poses, recorded, frame = [], [], [], None
    for time, message in bag.messages(topic):
        pose = message.pose if kind == POSE_STAMPED else message.pose.pose
        poses.append(motion(bag, topic, time, pose.position, pose.orientation))
        stamps.append(time if recorder_clock else stamp_of(message.header))
        recorded.append(time)
        if kind == ODOMETRY:
            frame = message.child_frame_id.lstrip("/") or None
    return PublishedPoses(trajectory=_in_order(bag, topic, stamps, poses, recorded), frame=frame, source=topic)


def _in_order(
    bag: Bag, topic: str, stamps: list[int], poses: list[FloatArray], recorded: list[int]
) -> Trajectory:  # fmt: skip
    """Sorted by time, each time once; DataError where the clock runs backwards."""
    times = np.array(stamps, dtype=np.int64)
    back = np.flatnonzero(np.diff(times) < -_BACKWARDS_NS)
    if len(back):
        at = int(back[0]) + 1
        raise clock_jump(bag, topic, recorded[at], int(times[at - 1]), int(times[at]))
    kept, first = np.unique(times, return_index=True)
    return Trajectory(timestamps_ns=kept, world_from_body=np.stack([poses[i] for i in first]))


def clock_jump(bag: Bag, topic: str, recorded_ns: int, before_ns: int, after_ns: int) -> Exception:
    """The DataError for stamps that run backwards."""
    return at_message(
        bag.path, topic, recorded_ns, expected="stamps that increase",
        found=f"{after_ns * 1e-9:.6f} s after {before_ns * 1e-9:.6f} s",
        remedy="cut the bag where its clock jumps, or use the recorder's times: `clock: recorder` in its description",
    )  # fmt: skip


def _fixes(bag: Bag, topic: str, recorder_clock: bool) -> PublishedPoses:
    """Positions by satellite in metres east, north and up of the first; headings by IMU, else along the way."""
    stamps, places, recorded = [], [], []
    for time, message in bag.messages(topic):
        values = (float(message.latitude), float(message.longitude), float(message.altitude))
        if int(message.status.status) < 0 or not np.isfinite(values[:2]).all():
            continue  # the receiver says that it has no fix
        stamps.append(time if recorder_clock else stamp_of(message.header))
        places.append(values)
        recorded.append(time)
    if len(stamps) < 2:
        raise at_message(
            bag.path, topic, recorded[0] if recorded else 0, expected="at least two satellite fixes",
            found=f"{len(stamps)}", remedy="choose another source of poses with `pose_topic`",
        )  # fmt: skip
    east_north_up = local_metres(np.nan_to_num(np.array(places)))
    turns, frame = _headings(bag, np.array(stamps, dtype=np.int64), east_north_up, recorder_clock)
    poses = list(se3.from_rotation_translation(turns, east_north_up))
    return PublishedPoses(trajectory=_in_order(bag, topic, stamps, poses, recorded), frame=frame, source=topic)


def _headings(
    bag: Bag, stamps: NDArray[np.int64], places: FloatArray, recorder_clock: bool
) -> tuple[FloatArray, str | None]:
    """(N, 3, 3) rotations at the fixes, and the frame that they are of."""
    for topic in bag.of_type(IMU):
        poses, times, frame, recorded = [], [], None, []
        for time, message in bag.messages(topic.name):
            turn = message.orientation
            length = float(np.linalg.norm([turn.w, turn.x, turn.y, turn.z]))
            if message.orientation_covariance[0] == -1 or abs(length - 1) > 1e-2:
                break  # this IMU says that it knows no orientation
            poses.append(se3.from_quaternion(np.array([turn.w, turn.x, turn.y, turn.z]), np.zeros(3)))
            times.append(time if recorder_clock else stamp_of(message.header))
            recorded.append(time)
            frame = message.header.frame_id.lstrip("/") or None
        if len(poses) > 1:
            way = _in_order(bag, topic.name, times, poses, recorded)
            return way.at(stamps)[:, :3, :3], frame
    steps = np.gradient(places, axis=0)
    yaw = np.arctan2(steps[:, 1], steps[:, 0])
    return se3.from_yaw(yaw)[:, :3, :3], None


def local_metres(latitude_longitude_altitude: FloatArray) -> FloatArray:
    """(N, 3) degrees, degrees, metres -> (N, 3) metres east, north and up of the first, on the ellipsoid there.

    A degree of latitude at the equator, and one of longitude:

    >>> np.round(local_metres(np.array([[0.0, 0, 0], [0.01, 0, 0], [0, 0.01, 5]]))).tolist()
    [[0.0, 0.0, 0.0], [0.0, 1106.0, 0.0], [1113.0, 0.0, 5.0]]
    """
    latitude, longitude = np.deg2rad(latitude_longitude_altitude[:, :2]).T
    squared = _FLATTENING * (2 - _FLATTENING)
    root = np.sqrt(1 - squared * np.sin(latitude[0]) ** 2)
    east_m = _EARTH_M / root * np.cos(latitude[0])
    north_m = _EARTH_M * (1 - squared) / root**3
    turned = np.remainder(longitude - longitude[0] + np.pi, 2 * np.pi) - np.pi  # across the date line
    altitude = latitude_longitude_altitude[:, 2]
    return np.stack([turned * east_m, (latitude - latitude[0]) * north_m, altitude - altitude[0]], axis=-1)

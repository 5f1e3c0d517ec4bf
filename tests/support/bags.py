"""Bags for tests: a `Drive` written by rosbags as ROS 1, ROS 2 in sqlite or MCAP, with fields and poses as asked."""

from __future__ import annotations

import shutil
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from copilot4d.geometry import se3

rosbags = pytest.importorskip("rosbags")

from rosbags.rosbag1 import Writer as Writer1  # noqa: E402
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin  # noqa: E402
from rosbags.rosbag2 import Writer as Writer2  # noqa: E402
from rosbags.typesys import Stores, get_types_from_msg, get_typestore  # noqa: E402

KINDS = ("bag", "db3", "mcap", "mcap-file")
DATATYPES = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 8}
START_NS = 1_700_000_000_000_000_000


@lru_cache
def typestore(ros1=False):
    store = get_typestore(Stores.ROS1_NOETIC if ros1 else Stores.ROS2_HUMBLE)
    if "tf2_msgs/msg/TFMessage" not in store.fielddefs:
        store.register(get_types_from_msg("geometry_msgs/TransformStamped[] transforms", "tf2_msgs/msg/TFMessage"))
    return store


class BagWriter:
    """`add(topic, message, time)` of messages made by `make`; closes on exit."""

    def __init__(self, path: Path, kind: str = "mcap", *, compress: str | None = None):
        self.path, self.kind = path, kind
        self.ros1 = kind == "bag"
        self.store = typestore(self.ros1)
        self.folder = path.with_name(f"{path.stem}_as_folder") if kind == "mcap-file" else path
        if self.ros1:
            self.writer = Writer1(path)
            if compress:
                self.writer.set_compression(Writer1.CompressionFormat[compress.upper()])
        else:
            plugin = StoragePlugin.SQLITE3 if kind == "db3" else StoragePlugin.MCAP
            self.writer = Writer2(self.folder, version=9, storage_plugin=plugin)
            if compress:
                self.writer.set_compression(CompressionMode[compress.upper()], CompressionFormat.ZSTD)
        self.connections = {}

    def __enter__(self):
        self.writer.open()
        return self

    def __exit__(self, *_):
        self.writer.close()
        if self.kind == "mcap-file":
            shutil.move(next(self.folder.glob("*.mcap")), self.path)
            shutil.rmtree(self.folder)

    def make(self, type, **fields):
        return self.store.types[type](**fields)

    def add(self, topic, message, time_ns):
        name = message.__msgtype__
        if topic not in self.connections:
            self.connections[topic] = self.writer.add_connection(topic, name, typestore=self.store)
        raw = (self.store.serialize_ros1 if self.ros1 else self.store.serialize_cdr)(message, name)
        self.writer.write(self.connections[topic], time_ns, raw)

    def header(self, stamp_ns, frame):
        stamp = self.make("builtin_interfaces/msg/Time", sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9)
        extra = {"seq": 0} if self.ros1 else {}
        return self.make("std_msgs/msg/Header", stamp=stamp, frame_id=frame, **extra)

    def cloud(self, stamp_ns, columns, *, frame="lidar", padding=0, big=False, height=1, row_padding=0):
        """PointCloud2 of columns {name: array}, in their order, with bytes of padding after each point and row."""
        count = len(next(iter(columns.values())))
        order = ">" if big else "<"
        formats = [order + np.asarray(v).dtype.str[1:] for v in columns.values()]
        offsets = np.cumsum([0, *(np.dtype(f).itemsize for f in formats)])
        step = int(offsets[-1]) + padding
        layout = np.dtype({"names": list(columns), "formats": formats, "offsets": offsets[:-1], "itemsize": step})
        rows = np.zeros(count, layout)
        for name, values in columns.items():
            rows[name] = values
        width = count // height
        data = rows.reshape(height, width).view(np.uint8).reshape(height, width * step)
        data = np.pad(data, ((0, 0), (0, row_padding)))
        fields = [
            self.make("sensor_msgs/msg/PointField", name=n, offset=int(o), datatype=DATATYPES[f[1:]], count=1)
            for n, o, f in zip(columns, offsets, formats, strict=False)
        ]
        return self.make(
            "sensor_msgs/msg/PointCloud2", header=self.header(stamp_ns, frame), height=height, width=width,
            fields=fields, is_bigendian=big, point_step=step, row_step=width * step + row_padding,
            data=np.ascontiguousarray(data).reshape(-1), is_dense=True,
        )  # fmt: skip

    def pose(self, pose):
        w, x, y, z = se3.quaternion_from_rotation(pose[:3, :3])
        point = self.make("geometry_msgs/msg/Point", x=pose[0, 3], y=pose[1, 3], z=pose[2, 3])
        turn = self.make("geometry_msgs/msg/Quaternion", x=x, y=y, z=z, w=w)
        return self.make("geometry_msgs/msg/Pose", position=point, orientation=turn)

    def odometry(self, stamp_ns, pose, *, frame="odom", child="lidar"):
        zero = self.make("geometry_msgs/msg/Vector3", x=0.0, y=0.0, z=0.0)
        twist = self.make("geometry_msgs/msg/Twist", linear=zero, angular=zero)
        return self.make(
            "nav_msgs/msg/Odometry", header=self.header(stamp_ns, frame), child_frame_id=child,
            pose=self.make("geometry_msgs/msg/PoseWithCovariance", pose=self.pose(pose), covariance=np.zeros(36)),
            twist=self.make("geometry_msgs/msg/TwistWithCovariance", twist=twist, covariance=np.zeros(36)),
        )  # fmt: skip

    def stamped(self, stamp_ns, pose, frame="map"):
        return self.make("geometry_msgs/msg/PoseStamped", header=self.header(stamp_ns, frame), pose=self.pose(pose))

    def tf(self, stamp_ns, *moves):
        """moves: (parent, child, parent_from_child)"""
        made = []
        for parent, child, pose in moves:
            told = self.pose(pose)
            place = told.position
            vector = self.make("geometry_msgs/msg/Vector3", x=place.x, y=place.y, z=place.z)
            transform = self.make("geometry_msgs/msg/Transform", translation=vector, rotation=told.orientation)
            made.append(self.make(
                "geometry_msgs/msg/TransformStamped", header=self.header(stamp_ns, parent), child_frame_id=child,
                transform=transform,
            ))  # fmt: skip
        return self.make("tf2_msgs/msg/TFMessage", transforms=made)

    def fix(self, stamp_ns, latitude, longitude, altitude):
        status = self.make("sensor_msgs/msg/NavSatStatus", status=0, service=1)
        return self.make(
            "sensor_msgs/msg/NavSatFix", header=self.header(stamp_ns, "gps"), status=status, latitude=latitude,
            longitude=longitude, altitude=altitude, position_covariance=np.zeros(9), position_covariance_type=0,
        )  # fmt: skip

    def imu(self, stamp_ns, pose, *, frame="lidar", known=True):
        zero = self.make("geometry_msgs/msg/Vector3", x=0.0, y=0.0, z=0.0)
        covariance = np.zeros(9)
        covariance[0] = 0.0 if known else -1.0
        return self.make(
            "sensor_msgs/msg/Imu", header=self.header(stamp_ns, frame), orientation=self.pose(pose).orientation,
            orientation_covariance=covariance, angular_velocity=zero, angular_velocity_covariance=np.zeros(9),
            linear_acceleration=zero, linear_acceleration_covariance=np.zeros(9),
        )  # fmt: skip


def columns_of(sweep, **more):
    named = {name: sweep.points[:, k] for k, name in enumerate("xyz")}
    if sweep.intensity is not None:
        named["intensity"] = sweep.intensity
    return {**named, **more}


def bag_path(folder: Path, kind: str, name: str = "drive") -> Path:
    return folder / (f"{name}.bag" if kind == "bag" else f"{name}.mcap" if kind == "mcap-file" else name)


def write_bag(folder, drive, kind="mcap-file", *, name="drive", topic="/points", offset_ns=START_NS, delay_ns=7_000_000,
              poses="odometry", compress=None, columns=columns_of, **cloud):  # fmt: skip
    """The drive as a bag; messages arrive `delay_ns` after their stamps. poses: odometry, tf, pose, none."""
    path = bag_path(folder, kind, name)
    with BagWriter(path, kind, compress=compress) as bag:
        for sweep in drive:
            stamp = offset_ns + sweep.timestamp_ns
            bag.add(topic, bag.cloud(stamp, columns(sweep), **cloud), stamp + delay_ns)
            pose = sweep.world_from_lidar
            if poses == "odometry":
                bag.add("/odom", bag.odometry(stamp, pose), stamp + delay_ns)
            elif poses == "pose":
                bag.add("/pose", bag.stamped(stamp, pose), stamp + delay_ns)
            elif poses == "tf":
                mount = se3.from_yaw(0.3, (1.0, 0.2, 1.7))
                if sweep.timestamp_ns == drive.timestamps_ns[0]:
                    bag.add("/tf_static", bag.tf(stamp, ("base_link", "lidar", mount)), stamp)
                bag.add("/tf", bag.tf(stamp, ("odom", "base_link", pose @ np.linalg.inv(mount))), stamp + delay_ns)
    return path

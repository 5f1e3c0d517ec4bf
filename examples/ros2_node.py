"""A ROS 2 node that forecasts: PointCloud2 and Odometry in, the last forecast frame out. Needs rclpy; run it as

python examples/ros2_node.py --ros-args -r points:=/ouster/points -r odom:=/odometry
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

import numpy as np

from copilot4d import load_forecaster
from copilot4d.datasets.bags.point_cloud2 import cloud_columns
from copilot4d.forecasting.live import live_forecasts
from copilot4d.geometry import Sweep, se3

if TYPE_CHECKING:  # of ROS, which only `main` needs
    from nav_msgs.msg import Odometry
    from sensor_msgs.msg import PointCloud2


def pose_of(odometry: Odometry) -> np.ndarray:
    """(4, 4) world_from_lidar of a nav_msgs/Odometry whose child frame is the lidar's."""
    at, turn = odometry.pose.pose.position, odometry.pose.pose.orientation
    return se3.from_quaternion(np.array([turn.w, turn.x, turn.y, turn.z]), np.array([at.x, at.y, at.z]))


def sweep_of(cloud: PointCloud2, world_from_lidar: np.ndarray) -> Sweep:
    """A sensor_msgs/PointCloud2 at a pose, without the places of rays that did not return."""
    columns = cloud_columns(cloud)
    points = np.stack([columns[axis] for axis in "xyz"], axis=1).astype(np.float32)
    returned = np.isfinite(points).all(axis=1) & points.any(axis=1)
    stamp = cloud.header.stamp.sec * 10**9 + cloud.header.stamp.nanosec
    return Sweep(points=points[returned], world_from_lidar=world_from_lidar, timestamp_ns=stamp)


def main() -> None:
    """Spin the node in a thread, and forecast here."""
    import rclpy
    from nav_msgs.msg import Odometry
    from sensor_msgs.msg import PointCloud2
    from sensor_msgs_py import point_cloud2

    rclpy.init()
    node, sweeps, poses, headers = rclpy.create_node("copilot4d"), queue.Queue(), [], {}

    def on_points(cloud: PointCloud2) -> None:
        if poses:  # before the first odometry nothing is known about the place
            sweep = sweep_of(cloud, poses[-1])
            headers[sweep.timestamp_ns] = cloud.header
            sweeps.put(sweep)

    publisher = node.create_publisher(PointCloud2, "forecast", 1)
    node.create_subscription(Odometry, "odom", lambda message: poses.__setitem__(slice(None), [pose_of(message)]), 10)
    node.create_subscription(PointCloud2, "points", on_points, 10)
    threading.Thread(target=rclpy.spin, args=(node,), daemon=True).start()
    for live in live_forecasts(iter(sweeps.get, None), load_forecaster("mini")):
        header = headers[live.reference.timestamp_ns]
        for old in [time for time in list(headers) if time < live.reference.timestamp_ns]:
            del headers[old]
        publisher.publish(point_cloud2.create_cloud_xyz32(header, live.forecast.sweeps[-1].points))
        node.get_logger().info(f"{live.seconds:.2f} s, {live.skipped} skipped, {live.dropped} dropped")


if __name__ == "__main__":
    main()

"""A ROS 2 node that forecasts: PointCloud2 and Odometry in, the last forecast frame out. Needs rclpy; run it as

python examples/ros2_node.py --ros-args -r points:=/ouster/points -r odom:=/odometry
"""

import queue
import threading

import numpy as np
import rclpy
from nav_msgs.msg import Odometry
from rclpy.node import Node
from sensor_msgs.msg import PointCloud2
from sensor_msgs_py import point_cloud2

from copilot4d import load_forecaster
from copilot4d.forecasting.live import live_forecasts
from copilot4d.geometry import Sweep, se3


class Forecasting(Node):
    """Keeps the last pose, and puts sweeps with it into a queue."""

    def __init__(self) -> None:
        super().__init__("copilot4d")
        self.sweeps, self.pose = queue.Queue(), np.eye(4)
        self.out = self.create_publisher(PointCloud2, "forecast", 1)
        self.create_subscription(Odometry, "odom", self.on_pose, 10)  # of the lidar's frame
        self.create_subscription(PointCloud2, "points", self.on_points, 10)

    def on_pose(self, message: Odometry) -> None:
        """The lidar's pose."""
        at, turn = message.pose.pose.position, message.pose.pose.orientation
        self.pose = se3.from_quaternion(np.array([turn.w, turn.x, turn.y, turn.z]), np.array([at.x, at.y, at.z]))

    def on_points(self, message: PointCloud2) -> None:
        """A sweep, at the last pose."""
        self.header = message.header
        points = point_cloud2.read_points_numpy(message, ("x", "y", "z"), skip_nans=True).astype(np.float32)
        stamp = message.header.stamp.sec * 10**9 + message.header.stamp.nanosec
        self.sweeps.put(Sweep(points=points, world_from_lidar=self.pose.copy(), timestamp_ns=stamp))


if __name__ == "__main__":
    rclpy.init()
    node = Forecasting()
    spinning = rclpy.executors.SingleThreadedExecutor()
    spinning.add_node(node)
    threading.Thread(target=spinning.spin, daemon=True).start()
    for live in live_forecasts(iter(node.sweeps.get, None), load_forecaster("mini")):
        node.out.publish(point_cloud2.create_cloud_xyz32(node.header, live.forecast.sweeps[-1].points))
        node.get_logger().info(f"{live.seconds:.2f} s, {live.skipped} skipped, {live.dropped} dropped")

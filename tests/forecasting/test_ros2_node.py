"""The parts of the ROS 2 example that need no ROS: its messages become sweeps, and sweeps forecasts.

The messages are made by rosbags from ROS's own definitions. The node itself, with rclpy, is not run here.
"""

from __future__ import annotations

import array
import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from copilot4d import load_forecaster
from copilot4d.forecasting.live import live_forecasts
from tests.datasets.trees import small_drive
from tests.support.bags import BagWriter, columns_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ros2_node.py"
START_NS = 1_700_000_000_000_000_000


@pytest.fixture(scope="module")
def node():
    spec = importlib.util.spec_from_file_location("ros2_node", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_messages_become_the_sweeps_that_they_were_made_of(node, tmp_path):
    drive, made = small_drive(6, points=40), []
    writer = BagWriter(tmp_path / "unused")
    for sweep in drive:
        stamp = START_NS + sweep.timestamp_ns
        cloud = writer.cloud(stamp, columns_of(sweep))
        cloud = replace(cloud, data=array.array("B", cloud.data.tobytes()))  # as rclpy has it
        pose = node.pose_of(writer.odometry(stamp, sweep.world_from_lidar))
        np.testing.assert_allclose(pose, sweep.world_from_lidar, atol=1e-12)
        made.append(node.sweep_of(cloud, pose))
        np.testing.assert_array_equal(made[-1].points, sweep.points)
        assert made[-1].timestamp_ns == stamp
    forecasts = list(live_forecasts(made, load_forecaster("copy_last"), spacing_s=0.1))
    assert forecasts[-1].reference.timestamp_ns == made[-1].timestamp_ns
    assert len(forecasts[-1].forecast.sweeps[-1].points) == 40


def test_rays_without_a_return_are_left_out(node, tmp_path):
    sweep = small_drive(1, points=5)[0]
    columns = {name: values.copy() for name, values in columns_of(sweep).items()}
    columns["x"][1] = np.nan
    for axis in "xyz":
        columns[axis][3] = 0.0
    cloud = BagWriter(tmp_path / "unused").cloud(START_NS, columns)
    np.testing.assert_array_equal(node.sweep_of(cloud, np.eye(4)).points, sweep.points[[0, 2, 4]])

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from copilot4d.geometry.deskew import BIN_NS, deskew
from copilot4d.geometry.trajectory import Trajectory
from copilot4d.simulator.drive import drive_of
from copilot4d.simulator.simulation import start


@pytest.fixture(scope="module")
def simulation():
    return start(5, None).run(4.2)


def way_of(*drives):
    times = np.concatenate([drive.timestamps_ns for drive in drives])
    order = np.argsort(times)
    poses = np.concatenate([drive.world_from_lidar for drive in drives])
    return Trajectory(timestamps_ns=times[order], world_from_body=poses[order])


@pytest.mark.parametrize("sensor", ["mini32", "vls_pair"])
def test_a_simulated_sweep_with_its_motion_left_in_deskews_to_the_compensated_one(simulation, sensor):
    """The law: within 2 cm, from the points' times and the sweeps' own poses (80 m) or poses at 20 Hz (200 m)."""
    skewed = drive_of(simulation, sensor, name="a", end_s=4.0, motion_compensated=False)
    true = drive_of(simulation, sensor, name="a", end_s=4.0)
    between = drive_of(simulation, sensor, name="a", start_s=0.05, end_s=4.0)
    way = way_of(true) if sensor == "mini32" else way_of(true, between)
    worst_before = worst = 0.0
    for i in (5, 20, 35):
        raw, expected, times = skewed[i], true[i], skewed.truth(i).times_ns
        moved = deskew(raw.points, times, way, expected.world_from_lidar, raw.origins)
        worst = max(worst, np.abs(moved.points - expected.points).max())
        worst_before = max(worst_before, np.abs(raw.points - expected.points).max())
        if raw.origins is not None:
            assert np.abs(moved.origins - expected.origins).max() < 0.02
        depths = np.linalg.norm(moved.points - moved.origins, axis=1)
        own = np.linalg.norm(raw.points - raw.point_origins, axis=1)
        np.testing.assert_allclose(depths, own, atol=1e-3, err_msg="a ray is as long as it was measured")
    assert worst < 0.02
    assert worst_before > 0.2, "there was something to do"


def test_standing_still_changes_nothing():
    points = np.random.default_rng(0).normal(0, 30, (500, 3)).astype(np.float32)
    pose = se3.from_yaw(0.7, (1e5, 2e6, 30.0))
    way = Trajectory(timestamps_ns=np.array([0, 10**8]), world_from_body=np.stack([pose, pose]))
    moved = deskew(points, np.linspace(0, 10**8, 500).astype(np.int64), way, pose)
    np.testing.assert_allclose(moved.points, points, atol=1e-5)
    np.testing.assert_allclose(moved.origins, 0, atol=1e-5)


def test_a_turn_by_hand():
    """A quarter turn to the left in 0.1 s: what lay ahead at its end lies to the left of where it began."""
    way = Trajectory(timestamps_ns=np.array([0, 10**8]), world_from_body=se3.from_yaw(np.array([0, np.pi / 2])))
    points = np.array([[10, 0, 1], [10, 0, 1], [10, 0, 1]], np.float32)
    moved = deskew(points, np.array([0, 5 * 10**7, 10**8]), way, np.eye(4)).points
    half = 10 / np.sqrt(2)
    np.testing.assert_allclose(moved, [[10, 0, 1], [half, half, 1], [0, 10, 1]], atol=1e-5)


def test_points_of_one_bin_share_a_pose_and_that_is_less_than_two_millimetres():
    poses = se3.from_yaw([0.0, 0.0], [[0, 0, 0], [3, 0, 0]])
    way = Trajectory(timestamps_ns=np.array([0, 10**8]), world_from_body=poses)
    times = np.arange(0, 4 * BIN_NS, 1000, dtype=np.int64)
    moved = deskew(np.zeros((len(times), 3), np.float32), times, way, np.eye(4))
    assert np.abs(moved.points[:, 0] - 3 * times / 1e8).max() < 0.0016


def test_bad_input():
    way = Trajectory(timestamps_ns=np.array([0]), world_from_body=np.eye(4)[None])
    points = np.zeros((2, 3), np.float32)
    with pytest.raises(UsageError, match="a time for each point: 1 for 2"):
        deskew(points, np.array([0]), way, np.eye(4))
    with pytest.raises(UsageError, match=r"5 s apart.*unit"):
        deskew(points, np.array([0, 5 * 10**9]), way, np.eye(4))
    assert len(deskew(points[:0], np.zeros(0, np.int64), way, np.eye(4)).points) == 0


def test_a_trajectory_knows_its_ends_and_gaps():
    times = np.array([0, 100, 200, 5_000, 5_100]) * 10**6
    way = Trajectory(timestamps_ns=times, world_from_body=se3.identity((5,)))
    asked = np.array([-60, -40, 0, 150, 200, 2_000, 5_000, 5_140, 5_160]) * 10**6
    known = way.knows(asked, longest_gap_s=1.0)
    assert known.tolist() == [False, True, True, True, True, False, True, True, False]
    with pytest.raises(UsageError, match="strictly increasing"):
        Trajectory(timestamps_ns=np.array([1, 1]), world_from_body=se3.identity((2,)))
    with pytest.raises(UsageError, match="at least one"):
        Trajectory(timestamps_ns=np.zeros(0, np.int64), world_from_body=se3.identity((0,)))

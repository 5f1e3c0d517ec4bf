"""What poses tell by themselves."""

import numpy as np
import pytest

from copilot4d.doctor.trajectory import check_jumps, check_rigid, check_turns, read_trajectory
from copilot4d.geometry import se3
from tests.doctor.logs import degrees_as_radians, varied_poses

TIMES = (np.arange(24) * 200_000_000).astype(np.int64)
POSES = varied_poses(24)


def test_the_facts_of_a_straight_drive():
    poses = se3.from_yaw(np.full(11, 0.5), np.arange(11)[:, None] * [np.cos(0.5), np.sin(0.5), 0.0])
    facts = read_trajectory(poses, (np.arange(11) * 100_000_000).astype(np.int64))
    assert facts.way_m == pytest.approx(10)
    assert facts.speed_max_m_s == pytest.approx(10)
    assert facts.turn_max_deg_s == pytest.approx(0, abs=1e-6)
    assert facts.forward == "+x"


@pytest.mark.parametrize(("yaw", "forward"), [(np.pi, "-x"), (np.pi / 2, "-y"), (-np.pi / 2, "+y"), (np.pi / 4, None)])
def test_forward_is_the_axis_of_the_vehicles_own_frame(yaw, forward):
    assert read_trajectory(POSES @ se3.from_yaw(yaw), TIMES).forward == forward


def test_a_vehicle_that_stands_has_no_forward():
    assert read_trajectory(POSES[[0] * 24], TIMES).forward is None
    assert read_trajectory(POSES[:1], TIMES[:1]).way_m == 0


def test_a_healthy_drive_neither_jumps_nor_turns_wildly():
    assert check_jumps("d", POSES, TIMES) == []
    assert check_turns("d", POSES, TIMES) == []
    assert check_rigid("d", POSES) == []


def test_hard_braking_is_no_jump():
    speed = np.concatenate([np.full(8, 20.0), np.linspace(20, 0, 12), np.zeros(4)])  # about 9 m/s^2
    x = np.concatenate([[0], np.cumsum(speed * 0.2)[:-1]])
    assert check_jumps("d", se3.from_yaw(np.zeros(24), np.stack([x, 0 * x, 0 * x], axis=-1)), TIMES) == []


def test_a_jump_is_placed():
    poses = POSES.copy()
    poses[10:, :3, 3] += [0, 12.0, 0]
    (finding,) = check_jumps("d", poses, TIMES)
    assert finding.code == "poses-jump"
    assert "from frame 9 to 10" in finding.evidence


def test_a_sweep_lost_under_a_clock_written_anew_is_a_doubled_step():
    x = np.delete(np.arange(25) * 1.0, 12)
    poses = se3.from_yaw(np.zeros(24), np.stack([x, 0 * x, 0 * x], axis=-1))
    (finding,) = check_jumps("d", poses, TIMES)
    assert "2.00 m from frame 11 to 12" in finding.evidence


def test_poses_that_repeat_are_told_once_and_not_as_jumps():
    poses = POSES.copy()
    poses[5], poses[15] = poses[4], poses[14]
    (finding,) = check_jumps("d", poses, TIMES)
    assert finding.code == "poses-repeated"
    assert "frames 5, 15" in finding.evidence


def test_degrees_taken_for_radians_turn_faster_than_any_vehicle():
    (finding,) = check_turns("d", degrees_as_radians(POSES), TIMES)
    assert finding.code == "poses-turn-wildly"
    assert "degrees" in finding.remedy


def test_a_mirror_or_a_scale_is_not_rigid():
    poses = POSES.copy()
    poses[3, :3, 0] *= -1
    poses[7, :3, :3] *= 1.01
    (finding,) = check_rigid("d", poses)
    assert "frames 3, 7" in finding.evidence

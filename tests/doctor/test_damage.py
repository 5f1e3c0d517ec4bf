"""Every kind of damage to a healthy log is found, by its name, with its remedy; and the healthy log is left alone."""

import numpy as np
import pytest

from copilot4d.doctor import examine_drive
from copilot4d.geometry import se3
from tests.doctor.logs import (
    degrees_as_radians,
    healthy_log,
    quaternions_reordered,
    radians_as_degrees,
    rotations_transposed,
    scaled,
    shifted,
    turned,
    with_points,
    with_poses,
)
from tests.support.scenes import make_drive

LOG = healthy_log()
POSES = LOG.world_from_lidar
QUARTER = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1.0]])  # x right, y forward: (x, y) -> (-y, x)
CAMERA = np.array([[0, -1, 0], [0, 0, -1], [1, 0, 0.0]])  # x right, y down, z forward


def found(drive, **options):
    """The findings that are not about the log being short."""
    report = examine_drive(drive, **options)
    return [f for f in report.findings if not f.code.startswith("windows")]


def test_the_healthy_log_has_nothing():
    assert found(LOG) == []
    assert examine_drive(LOG).poses.verdict == "fit"


def cases_of(damage, fast):
    """The damage that is asked for by name runs always; its many relatives are slow together."""
    marks = {name: () if name in fast else (pytest.mark.slow,) for name in damage}
    return [pytest.param(*case, id=name, marks=marks[name]) for name, case in damage.items()]


POSE_DAMAGE = {
    "inverted": (se3.invert, "poses-inverted", "inv(pose)"),
    "one late": (lambda p: shifted(p, -1), "poses-off-by-one", "drop the first pose"),
    "one early": (lambda p: shifted(p, 1), "poses-off-by-one", "missing first pose in front"),
    "degrees for radians": (degrees_as_radians, "poses-degrees-for-radians", "degrees * pi / 180"),
    "radians for degrees": (radians_as_degrees, "poses-radians-for-degrees", "radians already"),
    "transposed": (rotations_transposed, "poses-rotation-transposed", "transpose"),
    "quaternion order": (quaternions_reordered, "poses-quaternion-order", "w last"),
    "millimetres": (lambda p: scaled(p, 1000), "poses-millimetres", "by 0.001"),
    "centimetres": (lambda p: scaled(p, 100), "poses-centimetres", "by 0.01"),
    "feet": (lambda p: scaled(p, 1 / 0.3048), "poses-feet", "by 0.3048"),
    "kilometres": (lambda p: scaled(p, 0.001), "poses-kilometres", "by 1000"),
    "static": (lambda p: p[[0] * len(p)], "poses-static", "write_estimated_poses"),
}


@pytest.mark.parametrize(
    ("damage", "code", "remedy"),
    cases_of(POSE_DAMAGE, {"inverted", "one late", "one early", "degrees for radians", "millimetres", "static"}),
)
def test_damaged_poses(damage, code, remedy):
    (finding,) = found(with_poses(LOG, damage(POSES)))
    assert (finding.code, finding.severity) == (code, "problem")
    assert remedy in finding.remedy
    assert "m with the poses as given" in finding.evidence


POINT_DAMAGE = {
    "x and y swapped": (lambda p: p[:, [1, 0, 2]], "axes-mirrored", "x = y, y = x, z = z"),
    "nuScenes axes": (lambda p: p @ QUARTER.T, "axes-turned", "x = y, y = -x, z = z"),
    "about face": (lambda p: p * [-1, -1, 1], "axes-turned", "x = -x, y = -y, z = z"),
    "y mirrored": (lambda p: p * [1, -1, 1], "axes-mirrored", "x = x, y = -y, z = z"),
    "x mirrored": (lambda p: p * [-1, 1, 1], "axes-mirrored", "x = -x, y = y, z = z"),
    "z mirrored": (lambda p: p * [1, 1, -1], "axes-mirrored", "x = x, y = y, z = -z"),
    "y and z swapped": (lambda p: p[:, [0, 2, 1]], "axes-mirrored", "x = x, y = z, z = y"),
    "camera axes": (lambda p: p @ CAMERA.T, "axes-turned", "x = z, y = -x, z = -y"),
    "millimetres": (lambda p: p * 1000, "units-millimetres", "by 0.001"),
    "centimetres": (lambda p: p * 100, "units-centimetres", "by 0.01"),
    "feet": (lambda p: p / 0.3048, "units-feet", "by 0.3048"),
    "at the ground": (lambda p: p + np.array([0, 0, 1.73]), "origins-on-ground", "lidar's frame"),
}


@pytest.mark.parametrize(
    ("damage", "code", "remedy"),
    cases_of(POINT_DAMAGE, {"x and y swapped", "y mirrored", "z mirrored", "camera axes", "millimetres"}),
)
def test_damaged_points(damage, code, remedy):
    (finding,) = found(with_points(LOG, damage))
    assert (finding.code, finding.severity) == (code, "problem")
    assert remedy in finding.remedy


def test_a_whole_log_in_millimetres_has_two_things_to_mend():
    drive = with_poses(with_points(LOG, lambda p: p * 1000), scaled(POSES, 1000))
    assert [f.code for f in found(drive)] == ["units-millimetres", "poses-millimetres"]


@pytest.mark.parametrize(
    ("change", "code", "remedy"),
    [
        (QUARTER, "axes-forward", "axes: x right, y forward, z up"),
        (CAMERA, "axes-up", "axes: x right, y down, z forward"),
        (np.diag([1.0, -1.0, -1.0]), "axes-up", "axes: x forward, y right, z down"),
    ],
)
def test_points_and_poses_that_agree_in_other_axes(change, code, remedy):
    (finding,) = found(turned(LOG, change))
    assert finding.code == code
    assert remedy in finding.remedy


def test_a_short_way_backward_may_be_reversing():
    (finding,) = found(turned(LOG, np.diag([-1.0, -1.0, 1.0])))
    assert (finding.code, finding.severity) == ("axes-backward", "remark")


def test_poses_that_jump_or_are_noise():
    jump = POSES.copy()
    jump[7:, :3, 3] += [4.0, 0, 0]
    assert [f.code for f in found(with_poses(LOG, jump))] == ["poses-jump"]
    noise = POSES.copy()
    noise[:, :3, 3] += np.random.default_rng(0).normal(0, 0.5, (len(POSES), 3))
    assert [f.code for f in found(with_poses(LOG, noise))] == ["poses-wrong"]


def test_at_an_even_speed_a_shift_by_one_frame_is_not_claimed_either_way():
    report = examine_drive(make_drive(8, rate_hz=5.0, speed=6.0, yaw_rate=0.0, mover=0.0))
    assert "poses-off-by-one" not in [f.code for f in report.findings]
    assert "cannot be told" in report.poses.verdict


def test_a_vehicle_that_stands_is_not_blamed():
    standing = with_poses(make_drive(8, speed=0.0, yaw_rate=0.0, mover=0.0), np.tile(np.eye(4), (8, 1, 1)))
    report = examine_drive(standing)
    assert "stands still" in report.poses.verdict
    assert [f.code for f in report.findings if f.severity == "problem"] == []


def test_logs_of_no_and_of_one_sweep_are_examined_too():
    one = examine_drive(LOG[:1])
    assert "only one sweep" in one.poses.verdict
    assert [f.code for f in one.findings] == ["windows-1s", "windows-3s"]
    assert examine_drive(LOG[:0]).sweeps == 0


def test_a_log_without_poses_is_told_how_to_get_some():
    (finding,) = found(LOG, has_poses=False)
    assert finding.code == "poses-missing"
    assert "write_estimated_poses" in finding.remedy

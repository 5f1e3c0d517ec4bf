from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copilot4d.datasets.pose_files import (
    read_kitti_poses,
    read_tum_poses,
    seconds_text,
    write_kitti_poses,
    write_tum_poses,
)
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import se3


def random_poses(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return se3.from_quaternion(rng.normal(size=(count, 4)), rng.normal(0, 100, (count, 3)))


def test_kitti_lines_are_three_rows_of_four(tmp_path):
    # A turn left by 90 degrees, then a shift: row by row, the fourth number of a row is the shift.
    (tmp_path / "p.txt").write_text("0 -1 0 5 1 0 0 6 0 0 1 7\n")
    pose = read_kitti_poses(tmp_path / "p.txt")[0]
    np.testing.assert_allclose(se3.transform_points(pose, np.array([[1.0, 0, 0]])), [[5, 7, 7]])


def test_tum_lines_have_w_last(tmp_path):
    half = np.sqrt(0.5)
    (tmp_path / "p.txt").write_text(f"# time tx ty tz qx qy qz qw\n1.5 5 6 7 0 0 {half} {half}\n")
    trajectory = read_tum_poses(tmp_path / "p.txt")
    assert trajectory.timestamps_ns.tolist() == [1_500_000_000]
    np.testing.assert_allclose(
        se3.transform_points(trajectory.poses[0], np.array([[1.0, 0, 0]])), [[5, 7, 7]], atol=1e-12
    )


def test_what_is_written_is_read_back(tmp_path):
    poses, times = random_poses(20), np.arange(20) * 100_000_001 + 1_700_000_000_123_456_789
    write_kitti_poses(tmp_path / "k.txt", poses)
    write_tum_poses(tmp_path / "t.txt", times, poses)
    np.testing.assert_allclose(read_kitti_poses(tmp_path / "k.txt"), poses, atol=1e-13)
    trajectory = read_tum_poses(tmp_path / "t.txt")
    np.testing.assert_allclose(trajectory.poses, poses, atol=1e-12)
    assert trajectory.timestamps_ns.tolist() == times.tolist()  # to the nanosecond, which a float could not hold


@given(st.integers(-(2**62) + 1, 2**62 - 1))
@settings(deadline=None, max_examples=60)
def test_seconds_as_text_are_exact(time_ns):
    whole, fraction = seconds_text(time_ns).split(".")
    magnitude = abs(int(whole)) * 10**9 + int(fraction)
    assert (-magnitude if whole.startswith("-") else magnitude) == time_ns


def test_rounded_poses_become_exactly_rigid(tmp_path):
    poses = random_poses(5)
    lines = [" ".join(f"{v:.4e}" for v in pose[:3].ravel()) for pose in poses]
    (tmp_path / "p.txt").write_text("\n".join(lines))
    read = read_kitti_poses(tmp_path / "p.txt")
    assert se3.rigidity_error(read).max() < 1e-14
    np.testing.assert_allclose(read, poses, atol=5e-3)


@pytest.mark.parametrize(
    ("line", "field", "found"),
    [
        ("1 0 0 0 0 1 0 0 0 0 1", "line 2", "11"),
        ("1 0 0 0 0 1 0 0 0 0 one 0", "line 2", "one"),
        ("1 0 0 0 0 1 0 0 0 0 nan 0", "line 2", "nan"),
        ("2 0 0 0 0 2 0 0 0 0 2 0", "line 2", "3 away from rigid"),
        ("-1 0 0 0 0 1 0 0 0 0 1 0", "line 2", "1 away from rigid"),  # a mirror
        ("1 0 0 1e9 0 1 0 0 0 0 1 0", "line 2", "1e+09 m"),
    ],
)
def test_bad_kitti_lines_are_named(tmp_path, line, field, found):
    (tmp_path / "p.txt").write_text(f"1 0 0 0 0 1 0 0 0 0 1 0\n{line}\n")
    with pytest.raises(DataError) as caught:
        read_kitti_poses(tmp_path / "p.txt")
    assert field in caught.value.field
    assert found in caught.value.found
    assert caught.value.path == tmp_path / "p.txt"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["0 0 0 0 0 0 0 1", "0 1 0 0 0 0 0 1"], "same time"),
        (["1 0 0 0 0 0 0 1", "0.5 1 0 0 0 0 0 1"], "before"),
        (["0 0 0 0 0 0 0 0"], "length 0"),
        (["0 0 0 0 0 0 0 1", "1 0 0 0 0 0 90 1"], "length 90"),
        (["0 0 0 0 0 0 1"], "7"),
        (["1e300 0 0 0 0 0 0 1"], "1e300"),
    ],
)
def test_bad_tum_lines_are_named(tmp_path, lines, found):
    (tmp_path / "p.txt").write_text("\n".join(lines))
    with pytest.raises(DataError, match=found):
        read_tum_poses(tmp_path / "p.txt")


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_tum_poses(tmp_path / "none.txt")
    (tmp_path / "b.txt").write_bytes(b"1 2 \xff\xfe")
    with pytest.raises(DataError, match="no text at position 4"):
        read_kitti_poses(tmp_path / "b.txt")


def test_writers_refuse_other_shapes(tmp_path):
    with pytest.raises(UsageError, match="4, 4"):
        write_kitti_poses(tmp_path / "p.txt", np.eye(4))
    with pytest.raises(UsageError, match="3 timestamps for 2"):
        write_tum_poses(tmp_path / "p.txt", np.arange(3), random_poses(2))

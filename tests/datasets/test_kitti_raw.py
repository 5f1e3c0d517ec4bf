from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.datasets.kitti_raw import map_from_imu
from copilot4d.datasets.pose_files import write_tum_poses
from copilot4d.datasets.sweep_files import KITTI_EGO_BOX
from copilot4d.errors import Copilot4dWarning, DataError
from copilot4d.geometry import se3
from tests.datasets.trees import LIDAR_FROM_IMU, kitti_raw_tree, small_drive
from tests.support.real_data import real_data

NAME = "2011_09_26_drive_0001_sync"


@pytest.fixture
def tree(tmp_path) -> Path:
    return kitti_raw_tree(tmp_path / "raw")


@pytest.fixture
def folder(tree) -> Path:
    return tree / "2011_09_26" / NAME


def test_poses_by_hand(tree):
    drive = open_dataset(tree)[NAME]
    assert (drive.format, drive.split, len(drive)) == ("kitti_raw", None, 3)
    np.testing.assert_allclose(drive.world_from_lidar[0], np.eye(4), atol=1e-9)
    # 1 m to the north is 1 m ahead (the IMU's x looks north), and 0.5 m up.
    np.testing.assert_allclose(drive.world_from_lidar[1, :3, :3], np.eye(3), atol=1e-9)
    np.testing.assert_allclose(drive.world_from_lidar[1, :3, 3], [1, 0, 0.5], atol=1e-5)
    # The last record is turned left by 0.1; the IMU, at -R^T t in the lidar's frame, has moved by (2, 0, 1).
    last = drive.world_from_lidar[2]
    assert se3.yaw_of(last) == pytest.approx(0.1, abs=1e-9)
    imu_in_lidar = LIDAR_FROM_IMU[None]  # lidar_from_imu maps the IMU's origin to its own shift
    np.testing.assert_allclose(
        se3.transform_points(last, imu_in_lidar), imu_in_lidar + np.array([2, 0, 1.0]), atol=1e-4
    )


def test_angles_are_about_the_right_axes():
    def turned(roll: float, pitch: float, yaw: float, vector: list[float]) -> np.ndarray:
        motion = map_from_imu(np.array([[49.0, 8.0, 0.0, roll, pitch, yaw]]))[0]
        return motion[:3, :3] @ np.array(vector)

    quarter = np.pi / 2
    np.testing.assert_allclose(turned(0, 0, quarter, [1, 0, 0]), [0, 1, 0], atol=1e-12)  # yaw: forward goes left
    np.testing.assert_allclose(turned(0, quarter, 0, [1, 0, 0]), [0, 0, -1], atol=1e-12)  # pitch: the nose goes down
    np.testing.assert_allclose(turned(quarter, 0, 0, [0, 1, 0]), [0, 0, 1], atol=1e-12)  # roll: the left side goes up
    # Roll comes first, yaw last: the left side, rolled up, is not moved by yaw; forward, pitched down, neither.
    np.testing.assert_allclose(turned(quarter, 0, quarter, [0, 1, 0]), [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(turned(0, quarter, quarter, [1, 0, 0]), [0, 0, -1], atol=1e-12)
    np.testing.assert_allclose(turned(quarter, quarter, 0, [0, 1, 0]), [1, 0, 0], atol=1e-12)


def test_east_is_x_and_a_degree_of_longitude_shrinks_with_latitude():
    motions = map_from_imu(np.array([[60.0, 8.0, 0, 0, 0, 0], [60.0, 8.001, 0, 0, 0, 0]]))
    shift = motions[1, :3, 3] - motions[0, :3, 3]
    np.testing.assert_allclose(shift, [0.5 * np.deg2rad(0.001) * 6378137.0, 0, 0], atol=1e-6)


def test_times_are_exact(tree):
    times_ns = open_dataset(tree)[NAME].timestamps_ns
    assert np.diff(times_ns).tolist() == [100_000_007, 100_000_007]
    assert int(times_ns[0]) == 1_317_042_272_000_000_000


def test_times_with_fewer_digits(tree, folder):
    times = "2011-09-26 13:04:32\n2011-09-26 13:04:32.5\n2011-09-26 13:04:33.25\n"
    (folder / "velodyne_points" / "timestamps.txt").write_text(times)
    assert np.diff(open_dataset(tree)[NAME].timestamps_ns).tolist() == [500_000_000, 750_000_000]


def test_points(tree):
    for sweep, true in zip(open_dataset(tree)[NAME], small_drive(3), strict=True):
        np.testing.assert_array_equal(sweep.points, true.points)


@pytest.mark.parametrize("below", ["", "2011_09_26", f"2011_09_26/{NAME}", f"2011_09_26/{NAME}/velodyne_points/data"])
def test_paths_around_the_root(tree, below):
    assert open_dataset(tree / below).names == (NAME,)


def test_a_gap_keeps_numbers_and_the_first_record_is_the_world(tree, folder):
    (folder / "velodyne_points" / "data" / "0000000000.bin").unlink()
    drive = open_dataset(tree)[NAME]
    assert len(drive) == 2
    np.testing.assert_allclose(drive.world_from_lidar[0, :3, 3], [1, 0, 0.5], atol=1e-5)


def test_times_fall_back(tree, folder):
    (folder / "velodyne_points" / "timestamps.txt").unlink()
    text = (folder / "oxts" / "timestamps.txt").read_text()
    (folder / "oxts" / "timestamps.txt").write_text(text.replace("100000007", "150000000"))
    assert np.diff(open_dataset(tree)[NAME].timestamps_ns).tolist() == [150_000_000, 50_000_014]
    (folder / "oxts" / "timestamps.txt").unlink()
    with pytest.warns(Copilot4dWarning, match="assuming 10 sweeps a second"):
        assert open_dataset(tree)[NAME].timestamps_ns.tolist() == [0, 100_000_000, 200_000_000]


def test_no_oxts(tree, folder):
    shutil.rmtree(folder / "oxts" / "data")
    with pytest.raises(DataError, match="write_estimated_poses"):
        open_dataset(tree)[NAME]
    dataset = open_dataset(tree, require_poses=False)
    assert not dataset.has_poses(NAME)
    np.testing.assert_array_equal(dataset[NAME].world_from_lidar, se3.identity((3,)))


def poses_instead_of_oxts(tree, folder, shift_ns: int = 0, lines: slice = slice(None)) -> np.ndarray:
    times_ns = open_dataset(tree)[NAME].timestamps_ns + shift_ns
    shutil.rmtree(folder / "oxts")
    poses = se3.from_yaw(np.array([0.0, 0.2, 0.5]), np.array([[0, 0, 0], [1.5, 0.1, 0], [2.5, 0.7, 0.1]]))
    write_tum_poses(folder / "poses.txt", times_ns[lines], poses[lines])
    return poses


@pytest.mark.parametrize("below", ["", "2011_09_26", f"2011_09_26/{NAME}", f"2011_09_26/{NAME}/velodyne_points/data"])
def test_a_pose_file_instead_of_oxts(tree, folder, below):
    poses = poses_instead_of_oxts(tree, folder)
    dataset = open_dataset(tree / below)
    assert dataset.format == "kitti_raw"
    assert dataset.has_poses(NAME)
    np.testing.assert_allclose(dataset[NAME].world_from_lidar, poses, atol=1e-12)
    np.testing.assert_allclose(dataset[NAME][1].world_from_lidar, poses[1], atol=1e-12)
    np.testing.assert_array_equal(dataset[NAME].ego_box, KITTI_EGO_BOX)


@pytest.mark.parametrize("shift_ns", [-400_000, 400_000])
def test_the_pose_file_is_matched_by_time(tree, folder, shift_ns):
    poses = poses_instead_of_oxts(tree, folder, shift_ns)
    (folder / "velodyne_points" / "data" / "0000000001.bin").unlink()
    np.testing.assert_allclose(open_dataset(tree)[NAME].world_from_lidar, poses[[0, 2]], atol=1e-12)


@pytest.mark.parametrize(
    ("shift_ns", "lines", "found"),
    [
        (2_000_000, slice(None), "none for 3 of 3"),
        (0, slice(2), "none for 1 of 3"),
        (0, slice(1, 2), "none for 2 of 3"),
    ],
)
def test_sweeps_without_a_line_in_the_pose_file(tree, folder, shift_ns, lines, found):
    poses_instead_of_oxts(tree, folder, shift_ns, lines)
    with pytest.raises(DataError, match=rf"poses\.txt: timestamps: .*{found} sweeps"):
        open_dataset(tree)[NAME]


def test_an_empty_pose_file(tree, folder):
    poses_instead_of_oxts(tree, folder, 0, slice(0))
    with pytest.raises(DataError, match=r"poses\.txt: poses: .*found none"):
        open_dataset(tree)[NAME]


def test_oxts_come_before_a_pose_file(tree, folder):
    (folder / "poses.txt").write_text("0 0 0 0 0 0 0 1\n")
    np.testing.assert_allclose(open_dataset(tree)[NAME].world_from_lidar[1, :3, 3], [1, 0, 0.5], atol=1e-5)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("oxts/data/0000000001.txt", None, r"0000000001\.txt: pose: .*none for 1 of 3 sweeps"),
        ("oxts/data/0000000001.txt", "1 2 3", r"0000000001\.txt: oxts, line 1: expected 30 numbers, found 3"),
        ("oxts/data/0000000001.txt", "", r"0000000001\.txt: oxts: .*an empty file"),
        ("oxts/data/0000000001.txt", "49 8 100 0 0 90" + " 0" * 24, r"yaw: expected at most 6\.2832 in size, found 90"),
        ("../calib_imu_to_velo.txt", None, r"calib_imu_to_velo\.txt: calibration: .*found none"),
        ("../calib_imu_to_velo.txt", "T: 1 2 3", r"calib_imu_to_velo\.txt: R: .*found no R"),
        (
            "../calib_imu_to_velo.txt",
            "R: 2 0 0 0 1 0 0 0 1\nT: 1 2 3",
            r"calib_imu_to_velo\.txt: pose.*away from rigid",
        ),
        ("velodyne_points/timestamps.txt", "2011-09-26 13:04:32\n", r"timestamps: .*up to number 2, found 1 lines"),
        ("velodyne_points/timestamps.txt", "2011-09-26 13:04:32\n" * 3, r"timestamps, line 2: .*same time"),
        ("velodyne_points/timestamps.txt", "0.1\n0.2\n0.3\n", r"timestamps, line 1: .*found '0\.1'"),
        ("velodyne_points/data/0000000002.bin", "", r"0000000002\.bin: points: expected at least one point"),
    ],
)
def test_bad_files_are_named(tree, folder, file, text, message):
    path = folder / file
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(DataError, match=message):
        list(open_dataset(tree)[NAME])


def test_real_fixture():
    dataset = open_dataset(real_data("fixtures", "kitti_raw"))
    drive = dataset["2011_09_26_drive_0005_sync"]
    assert len(drive) == 2
    assert drive.timestamps_ns.tolist() == [1317042272335337762, 1317042272438625628]
    assert 100_000 < len(drive[0]) < 140_000


def test_oxts_agree_with_poses_estimated_from_the_sweeps(tmp_path):
    """The packed drive 0005 has every second sweep, with poses from scan matching: no shared code, no shared sensor."""
    fixture = real_data("fixtures", "kitti_raw", "2011_09_26")
    lines = real_data("kitti_drives", "val_0005", "poses_lidar.txt").read_text().split("\n")
    estimated = np.array([np.array(line.split(), float).reshape(3, 4) for line in lines if line])
    estimated = np.concatenate([estimated, np.tile([[[0, 0, 0, 1.0]]], (len(estimated), 1, 1))], axis=1)
    drive = tmp_path / "2011_09_26" / "2011_09_26_drive_0005_sync"
    (drive / "velodyne_points" / "data").mkdir(parents=True)
    (drive / "oxts").symlink_to(fixture / drive.name / "oxts")
    shutil.copy(fixture / "calib_imu_to_velo.txt", drive.parent)
    for k in range(len(estimated)):
        (drive / "velodyne_points" / "data" / f"{2 * k:010d}.bin").write_bytes(b"")
    measured = open_dataset(tmp_path)[drive.name].world_from_lidar
    steps = se3.relative_motion(measured[:-1], measured[1:])
    expected = se3.relative_motion(estimated[:-1], estimated[1:])
    shift_m = np.linalg.norm(steps[:, :3, 3] - expected[:, :3, 3], axis=1)
    turn = np.rad2deg(se3.rotation_angle(se3.relative_motion(steps, expected)))
    assert np.median(np.linalg.norm(expected[:, :3, 3], axis=1)) > 0.7  # the car does move
    assert np.median(shift_m) < 0.07
    assert shift_m.max() < 0.2
    assert np.median(turn) < 0.15

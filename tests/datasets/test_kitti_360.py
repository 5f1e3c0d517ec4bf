from __future__ import annotations

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.datasets.point_files import write_points
from copilot4d.errors import DataError
from copilot4d.geometry import se3
from tests.datasets.trees import CAMERA_FROM_LIDAR, small_drive

NAME = "2013_05_28_drive_0000_sync"
VEHICLE_FROM_CAMERA = se3.from_yaw(0.4, (1.5, 0.1, 0.9)) @ se3.from_rotation_translation(
    np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]]), np.zeros(3)
)


def row(motion):
    return " ".join(f"{value:.9f}" for value in motion[:3].ravel())


def tree(root, drive, with_pose=None):
    data = root / "data_3d_raw" / NAME / "velodyne_points" / "data"
    data.mkdir(parents=True)
    vehicle_from_lidar = VEHICLE_FROM_CAMERA @ CAMERA_FROM_LIDAR
    lines, stamps = [], []
    for i, sweep in enumerate(drive):
        write_points(data / f"{i:010d}.bin", sweep.points, sweep.intensity)
        stamps.append(f"2013-05-28 08:46:02.{100_000_000 * i:09d}\n")
        if with_pose is None or i in with_pose:
            lines.append(f"{i} {row(sweep.world_from_lidar @ np.linalg.inv(vehicle_from_lidar))}\n")
    (data.parent / "timestamps.txt").write_text("".join(stamps))
    poses = root / "data_poses" / NAME
    poses.mkdir(parents=True)
    (poses / "poses.txt").write_text("".join(lines))
    calibration = root / "calibration"
    calibration.mkdir()
    (calibration / "calib_cam_to_pose.txt").write_text(
        f"image_00: {row(VEHICLE_FROM_CAMERA)}\nimage_01: {row(np.eye(4))}\n"
    )
    (calibration / "calib_cam_to_velo.txt").write_text(row(np.linalg.inv(CAMERA_FROM_LIDAR)) + "\n")
    return root


def test_a_tree_gives_the_drive_it_was_made_from(tmp_path):
    drive = small_drive(6)
    root = tree(tmp_path / "k", drive)
    dataset = open_dataset(root)
    assert (dataset.format, dataset.names) == ("kitti_360", (NAME,))
    read = dataset[NAME]
    np.testing.assert_allclose(read.world_from_lidar, drive.world_from_lidar, atol=1e-6)
    assert np.diff(read.timestamps_ns).tolist() == [100_000_000] * 5
    for sweep, true in zip(read, drive, strict=True):
        np.testing.assert_array_equal(sweep.points, true.points)
        np.testing.assert_array_equal(sweep.intensity, true.intensity)
    for inside in ("data_3d_raw", f"data_3d_raw/{NAME}", f"data_3d_raw/{NAME}/velodyne_points"):
        assert open_dataset(root / inside).root == root


def test_frames_without_a_pose_are_interpolated_and_those_beyond_the_ends_left_out(tmp_path):
    drive = small_drive(6)
    read = open_dataset(tree(tmp_path, drive, with_pose=(1, 2, 4)))[NAME]
    assert len(read) == 4, "frames 1 to 4"
    between = se3.interpolate(*(_vehicle(drive, i) for i in (2, 4)), 0.5) @ VEHICLE_FROM_CAMERA @ CAMERA_FROM_LIDAR
    np.testing.assert_allclose(read.world_from_lidar[2], between, atol=1e-6)
    np.testing.assert_array_equal(read[2].points, drive[3].points)


def _vehicle(drive, i):
    return drive.world_from_lidar[i] @ np.linalg.inv(VEHICLE_FROM_CAMERA @ CAMERA_FROM_LIDAR)


@pytest.mark.parametrize(("file", "text", "words"), [
    (f"data_poses/{NAME}/poses.txt", "0 1 2 3\n", "13 numbers"),
    (f"data_poses/{NAME}/poses.txt", "", "none of them"),
    ("calibration/calib_cam_to_pose.txt", "image_01: 1\n", "a line image_00:"),
    ("calibration/calib_cam_to_velo.txt", "1 2 3\n", "12 numbers"),
])  # fmt: skip
def test_what_is_damaged_is_told(tmp_path, file, text, words):
    root = tree(tmp_path, small_drive(4))
    (root / file).write_text(text)
    with pytest.raises(DataError, match=words):
        open_dataset(root)[NAME]
    (root / file).unlink()
    with pytest.raises(DataError, match="a readable text file"):
        open_dataset(root)[NAME]

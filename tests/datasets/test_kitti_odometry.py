from __future__ import annotations

import shutil

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.errors import Copilot4dWarning, DataError, UsageError
from copilot4d.geometry import se3
from tests.datasets.trees import kitti_tree, small_drive
from tests.support.real_data import real_data, unpack_drive


@pytest.fixture
def drive():
    return small_drive(4)


@pytest.fixture
def tree(tmp_path, drive):
    return kitti_tree(tmp_path / "kitti", drive)


def test_the_drive_on_disk_is_the_drive(tree, drive):
    read = open_dataset(tree)["08"]
    assert (read.name, read.split, read.format, len(read)) == ("08", "test", "kitti_odometry", 4)
    np.testing.assert_allclose(read.world_from_lidar, drive.world_from_lidar, atol=2e-6)
    assert read.timestamps_ns.tolist() == drive.timestamps_ns.tolist()
    for sweep, true in zip(read, drive, strict=True):
        np.testing.assert_array_equal(sweep.points, true.points)
        np.testing.assert_array_equal(sweep.intensity, true.intensity)
        np.testing.assert_allclose(sweep.world_from_lidar, true.world_from_lidar, atol=2e-6)
        assert sweep.timestamp_ns == true.timestamp_ns


def test_camera_poses_become_lidar_poses_by_hand(tree):
    # Tr: lidar x is camera z. A camera that moved 2 m along its z has moved the lidar 2 m along its x.
    (tree / "poses" / "08.txt").write_text("1 0 0 0 0 1 0 0 0 0 1 0\n" + "1 0 0 0 0 1 0 0 0 0 1 2\n" * 3)
    read = open_dataset(tree)["08"]
    np.testing.assert_allclose(read.world_from_lidar[1, :3, 3], [2, 0, 0], atol=1e-9)
    # A camera that turned left by 90 degrees about its down axis y, on the spot: the lidar, 0.27 m behind it
    # (t_z = -0.27), swings round it, from its own start by (0.27 ahead) - R (0.27 ahead) = (0.27, -0.27).
    (tree / "poses" / "08.txt").write_text("0 0 -1 0 0 1 0 0 1 0 0 0\n" * 4)
    turned = open_dataset(tree)["08"].world_from_lidar[0]
    assert se3.yaw_of(turned) == pytest.approx(np.pi / 2, abs=1e-9)
    camera_in_lidar = np.array([[0.27, 0.01, -0.08]])  # -R^T t of Tr
    np.testing.assert_allclose(se3.transform_points(turned, camera_in_lidar), camera_in_lidar, atol=1e-9)


def test_ego_box_is_the_protocols(tree):
    np.testing.assert_array_equal(open_dataset(tree)["08"].ego_box, [-2, -1.55, -np.inf, 3.5, 1.55, np.inf])


@pytest.mark.parametrize("below", [".", "sequences", "sequences/08", "sequences/08/velodyne", "sequences/08/calib.txt"])
def test_paths_around_the_root(tree, below):
    read = open_dataset(tree / below)
    assert read.names == ("08",)
    assert len(read["08"]) == 4


def test_a_folder_above_the_root(tree):
    assert open_dataset(tree.parent).names == ("08",)
    (tree.parent / "wrap").mkdir()
    shutil.move(tree, tree.parent / "wrap" / "dataset")
    assert open_dataset(tree.parent / "wrap").names == ("08",)


def test_splits_hold_what_is_on_disk(tmp_path, drive):
    names = [f"{number:02d}" for number in (0, 1, 5, 6, 7, 8, 10, 11)]
    for name in (*names, "train_0001", "val_0005", "validation"):
        kitti_tree(tmp_path, drive, name)
    dataset = open_dataset(tmp_path)
    assert dataset.splits == {
        "train": ("00", "01", "05", "train_0001"),
        "val": ("06", "07", "val_0005"),
        "test": ("08", "10"),
    }
    assert dataset.split("val").names == ("06", "07", "val_0005")
    assert [dataset[name].split for name in ("00", "val_0005", "11", "validation")] == ["train", "val", None, None]


def test_a_missing_sweep_is_a_gap_in_time(tree, drive):
    (tree / "sequences" / "08" / "velodyne" / "000001.bin").unlink()
    read = open_dataset(tree)["08"]
    assert read.timestamps_ns.tolist() == [0, 200_000_000, 300_000_000]
    np.testing.assert_allclose(read.world_from_lidar, drive.world_from_lidar[[0, 2, 3]], atol=2e-6)
    np.testing.assert_array_equal(read[1].points, drive[2].points)


def test_more_poses_than_sweeps_is_fine_and_fewer_is_not(tree):
    velodyne, poses = tree / "sequences" / "08" / "velodyne", tree / "poses" / "08.txt"
    (velodyne / "000003.bin").unlink()
    assert len(open_dataset(tree)["08"]) == 3
    poses.write_text("".join(poses.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(
        DataError, match=r"08\.txt: poses: expected a line for each sweep, up to number 2, found 2 lines"
    ):
        open_dataset(tree)["08"]


def test_poses_beside_the_sweeps(tree, drive):
    shutil.move(tree / "poses" / "08.txt", tree / "sequences" / "08" / "poses.txt")
    np.testing.assert_allclose(open_dataset(tree)["08"].world_from_lidar, drive.world_from_lidar, atol=2e-6)


def test_no_poses(tree):
    (tree / "poses" / "08.txt").unlink()
    with pytest.raises(DataError, match="write_estimated_poses"):
        open_dataset(tree)["08"]
    dataset = open_dataset(tree, require_poses=False)
    assert not dataset.has_poses("08")
    np.testing.assert_array_equal(dataset["08"].world_from_lidar, se3.identity((4,)))


def test_no_times_means_ten_a_second_and_says_so(tree):
    (tree / "sequences" / "08" / "times.txt").unlink()
    (tree / "sequences" / "08" / "velodyne" / "000002.bin").unlink()
    with pytest.warns(Copilot4dWarning, match="assuming 10 sweeps a second"):
        assert open_dataset(tree)["08"].timestamps_ns.tolist() == [0, 100_000_000, 300_000_000]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("times.txt", "0\n0.1\n0.1\n0.3\n", r"times\.txt: timestamps, line 3: .*same time"),
        ("times.txt", "0\n0.2\n0.1\n0.3\n", r"times\.txt: timestamps, line 3: .*before"),
        ("times.txt", "0\n0.1\n0.2\n", r"times\.txt: timestamps: .*up to number 3, found 3 lines"),
        (
            "times.txt",
            "0\n0.1\n\n0.2\n0.3\n",
            r"times\.txt: timestamps, line 3: expected a line per sweep, found a blank",
        ),
        ("times.txt", "0\n0.1\nx\n0.3\n", r"times\.txt: timestamps, line 3: .*'x'"),
        ("calib.txt", "P0: 1 0 0 0 0 1 0 0 0 0 1 0\n", r"calib\.txt: Tr: .*no such line"),
        ("calib.txt", "Tr: 1 0 0 0 0 1 0 0 0 0 1\n", r"calib\.txt: Tr, line 1: expected 12 numbers, found 11"),
        ("calib.txt", "Tr: 2 0 0 0 0 1 0 0 0 0 1 0\n", r"calib\.txt: pose, Tr, line 1: .*away from rigid"),
        ("velodyne/000001.bin", "x" * 17, r"000001\.bin: points: expected a multiple of 16 bytes .*1 too many"),
        ("velodyne/first.bin", "", r"first\.bin: file name: expected a frame number"),
        ("velodyne/1.bin", "", r"file name: expected one file per frame number"),
    ],
)
def test_bad_files_are_named(tree, file, text, message):
    (tree / "sequences" / "08" / file).write_text(text)
    with pytest.raises(DataError, match=message):
        list(open_dataset(tree)["08"])


def test_calibration_lines_of_other_names(tree, drive):
    path = tree / "sequences" / "08" / "calib.txt"
    tr = next(line for line in path.read_text().splitlines() if line.startswith("Tr:"))
    other = "Tr_imu_to_velo: 1 0 0 9 0 1 0 9 0 0 1 9"
    for line in (tr.replace("Tr:", "Tr_velo_to_cam:"), tr.replace("Tr: ", "Tr:"), tr.replace("Tr:", "Tr")):
        path.write_text(f"{other}\n{line}\n")
        np.testing.assert_allclose(open_dataset(tree)["08"].world_from_lidar, drive.world_from_lidar, atol=2e-6)


def test_missing_files_are_named(tree):
    (tree / "sequences" / "08" / "calib.txt").unlink()
    with pytest.raises(DataError, match=r"calib\.txt: Tr: expected a readable text file, found no such file"):
        open_dataset(tree)["08"]
    for path in (tree / "sequences" / "08" / "velodyne").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="velodyne: sweeps: expected files such as"):
        open_dataset(tree)["08"]
    shutil.rmtree(tree / "sequences" / "08" / "velodyne")
    with pytest.raises(DataError, match="none with velodyne/"):
        open_dataset(tree)


def test_nothing_is_read_before_it_is_asked_for(tree):
    for path in (tree / "sequences" / "08" / "velodyne").iterdir():
        path.write_bytes(b"damaged")
    drive = open_dataset(tree)["08"]
    assert len(drive[1:3]) == 2
    with pytest.raises(DataError, match=r"000002\.bin"):
        drive[1:3][1]


def test_unknown_names(tree):
    dataset = open_dataset(tree)
    for fails in (lambda: dataset["8"], lambda: dataset.select(["8"])):
        with pytest.raises(UsageError, match=r"has no drive 8 \(did you mean 08\?\); its drives: 08"):
            fails()
    assert dataset.get("8") is None
    with pytest.raises(UsageError, match="no split 'train'; its splits: test"):
        dataset.split("train")


def test_real_fixture():
    drive = open_dataset(real_data("fixtures", "kitti_odometry"))["00"]
    assert (len(drive), drive.split) == (3, "train")
    assert drive.interval_s == pytest.approx(0.1037, abs=1e-3)
    # 0.86 m along the lidar's x in the first tenth of a second; ground below, nothing far above
    np.testing.assert_allclose(drive.world_from_lidar[1, :3, 3], [0.8588, 0.0465, 0.0222], atol=2e-3)
    near = drive[0].points[np.linalg.norm(drive[0].points[:, :2], axis=1) < 10]
    assert -2.0 < np.median(near[:, 2]) < -1.3
    assert 100_000 < len(drive[0]) < 140_000


def test_real_drive(tmp_path):
    drive = open_dataset(unpack_drive("val_0005", tmp_path, sweeps=3))["val_0005"]
    assert (drive.split, len(drive)) == ("val", 3)
    assert drive.timestamps_ns.tolist() == [0, 210_042_000, 420_053_000]
    np.testing.assert_allclose(drive.world_from_lidar[1, :3, 3], [0.706852924, -0.0164403671, -0.023096238])

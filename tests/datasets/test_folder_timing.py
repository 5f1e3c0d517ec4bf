"""Times and poses of own data: where they come from, and how they are brought together."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.datasets import write_folder
from copilot4d.datasets.point_files import write_points
from copilot4d.datasets.pose_files import write_kitti_poses, write_tum_poses
from copilot4d.errors import Copilot4dWarning, DataError
from copilot4d.geometry import se3
from tests.datasets.trees import check_same, rewrite, small_drive


def test_tum_poses_are_interpolated_at_the_sweeps_times(tmp_path):
    drive = small_drive(3)
    write_folder(drive, tmp_path / "a")
    times = np.array([-50_000_000, 50_000_000, 150_000_000, 240_000_000])  # the last sweep is at 200 ms
    poses = se3.from_yaw(np.array([0.0, 0.2, 0.4, 0.4]), np.array([[0, 0, 0], [2, 0, 0], [4, 2, 0], [4, 20, 0.0]]))
    write_tum_poses(tmp_path / "a" / "poses.txt", times, poses)
    read = open_dataset(tmp_path / "a")["a"].world_from_lidar
    np.testing.assert_allclose(read[:, :3, 3], [[1, 0, 0], [3, 1, 0], [4, 12, 0]], atol=1e-6)
    np.testing.assert_allclose(se3.yaw_of(read), [0.1, 0.3, 0.4], atol=1e-6)


@pytest.mark.parametrize(("shift_ns", "fine"), [(49_000_000, True), (51_000_000, False)])
def test_half_an_interval_beyond_the_poses_is_the_limit(tmp_path, shift_ns, fine):
    drive = small_drive()
    write_folder(drive, tmp_path / "a")
    write_tum_poses(tmp_path / "a" / "poses.txt", drive.timestamps_ns + shift_ns, drive.world_from_lidar)
    if fine:
        assert len(open_dataset(tmp_path / "a")["a"]) == 4
    else:
        with pytest.raises(DataError, match=r"1 sweeps lie outside.*one clock and one unit"):
            open_dataset(tmp_path / "a")["a"]


def test_a_hole_in_the_poses_is_not_bridged(tmp_path):
    drive = small_drive(30)
    write_folder(drive, tmp_path / "a")
    keep = np.r_[0:5, 25:30]
    write_tum_poses(tmp_path / "a" / "poses.txt", drive.timestamps_ns[keep], drive.world_from_lidar[keep])
    with pytest.raises(DataError, match=r"2\.100 s without a pose around sweep 5"):
        open_dataset(tmp_path / "a")["a"]


class TestTimestamps:
    def bare(self, folder, names, poses="kitti"):
        drive = small_drive(len(names))
        folder.mkdir(exist_ok=True)
        for name, sweep in zip(names, drive, strict=True):
            write_points(folder / name, sweep.points, sweep.intensity)
        if poses == "kitti":
            write_kitti_poses(folder / "poses.txt", drive.world_from_lidar)
        else:
            write_tum_poses(folder / "poses.txt", drive.timestamps_ns, drive.world_from_lidar)
        return drive

    def test_file(self, tmp_path):
        self.bare(tmp_path, ["0.bin", "1.bin", "2.bin"])
        (tmp_path / "stamps.csv").write_text("100\n250\n300\n")
        rewrite(tmp_path, timestamps={"file": "stamps.csv", "unit": "ms"})
        times = open_dataset(tmp_path)[tmp_path.name].timestamps_ns
        assert times.tolist() == [100_000_000, 250_000_000, 300_000_000]

    def test_file_names_order_by_their_value(self, tmp_path):
        drive = self.bare(tmp_path, ["scan_9.npy", "scan_10.npy", "scan_100.npy"])
        rewrite(tmp_path, timestamps={"filename": "us"})
        read = open_dataset(tmp_path)[tmp_path.name]
        assert read.timestamps_ns.tolist() == [9_000, 10_000, 100_000]
        for sweep, true in zip(read, drive, strict=True):
            np.testing.assert_array_equal(sweep.points, true.points)

    def test_times_in_names_go_before_the_order_of_names(self, tmp_path):
        """Two recorders wrote in turns, and the later one's name comes first."""
        drive = small_drive(2)
        for name, sweep in zip(["b_000.npy", "a_100.npy"], drive, strict=True):
            write_points(tmp_path / name, sweep.points, sweep.intensity)
        write_tum_poses(tmp_path / "poses.txt", drive.timestamps_ns, drive.world_from_lidar)
        rewrite(tmp_path, timestamps={"filename": "ms"})
        check_same(open_dataset(tmp_path)[tmp_path.name], drive)

    def test_without_a_description_long_numbers_are_nanoseconds(self, tmp_path):
        self.bare(tmp_path, ["1317042272335337762.bin", "1317042272438625628.bin"])
        times = open_dataset(tmp_path)[tmp_path.name].timestamps_ns
        assert times.tolist() == [1317042272335337762, 1317042272438625628]

    @pytest.mark.parametrize(
        ("names", "first_ns"),
        [
            (["1317042272335337.bin", "1317042272438625.bin"], 1317042272335337_000),
            (["1317042272.335337.bin", "1317042272.438625.bin"], 1317042272335337_000),
            (["100000000000000000.bin", "100000000100000000.bin"], 100000000000000000),  # 18 digits
        ],
    )
    def test_without_a_description_other_long_numbers(self, tmp_path, names, first_ns):
        self.bare(tmp_path, names)
        assert open_dataset(tmp_path)[tmp_path.name].timestamps_ns[0] == first_ns

    @pytest.mark.parametrize(
        ("name", "timestamps"),
        [
            ("{}.pcd.bin", None),
            ("{}.PCD.BIN", None),
            ("{}.pcd.bin", {"filename": "us"}),
            ("n015__LIDAR_TOP__{}.pcd.bin", {"filename": "us"}),
        ],
    )
    def test_names_that_end_in_pcd_bin(self, tmp_path, name, timestamps):
        times_us = [1532402927647951, 1532402928147951]
        for time_us in times_us:
            np.ones((2, 5), dtype="<f4").tofile(tmp_path / name.format(time_us))
        write_kitti_poses(tmp_path / "poses.txt", se3.identity((2,)))
        if timestamps:
            rewrite(tmp_path, timestamps=timestamps)
        read = open_dataset(tmp_path)[tmp_path.name].timestamps_ns
        assert read.tolist() == [1000 * time_us for time_us in times_us]

    def test_without_a_description_tum_poses_tell(self, tmp_path):
        drive = self.bare(tmp_path, ["a1.bin", "a2.bin", "a10.bin"], poses="tum")
        check_same(open_dataset(tmp_path)[tmp_path.name], drive)

    def test_without_a_description_times_txt_tells(self, tmp_path):
        self.bare(tmp_path / "log", ["a.pcd", "b.pcd"])
        (tmp_path / "log" / "times.txt").write_text("1.5\n1.75\n")
        assert open_dataset(tmp_path)["log"].timestamps_ns.tolist() == [1_500_000_000, 1_750_000_000]

    def test_without_anything_the_rate_is_assumed_aloud(self, tmp_path):
        self.bare(tmp_path, ["0.bin", "1.bin", "2.bin"])
        with pytest.warns(Copilot4dWarning, match="assuming 10 a second"):
            read = open_dataset(tmp_path)[tmp_path.name]
        assert read.timestamps_ns.tolist() == [0, 100_000_000, 200_000_000]

    def test_rate(self, tmp_path):
        self.bare(tmp_path, ["0.bin", "1.bin", "2.bin"])
        rewrite(tmp_path, timestamps={"rate_hz": 20})
        assert open_dataset(tmp_path)[tmp_path.name].timestamps_ns.tolist() == [0, 50_000_000, 100_000_000]

    @pytest.mark.parametrize(
        ("timestamps", "text", "message"),
        [
            ({"file": "t.txt"}, "0\n0.1\n", "t.txt: timestamps: expected a line for each of the 3 sweeps, found 2"),
            ({"file": "t.txt"}, "0\n0.1\n0.1\n", "t.txt: timestamps, line 3: .*the same time"),
            ({"file": "t.txt"}, "0\n0.2\n0.1\n", "t.txt: timestamps, line 3: .*before"),
            ({"file": "no.txt"}, "", r"no\.txt: timestamps: .*no such file"),
            ({"filename": "s"}, "", r"last\.bin: file name: expected a time in s at the end"),
        ],
    )
    def test_bad_times_are_named(self, tmp_path, timestamps, text, message):
        self.bare(tmp_path, ["0.bin", "1.bin", "last.bin"])
        (tmp_path / "t.txt").write_text(text)
        rewrite(tmp_path, timestamps=timestamps)
        with pytest.raises(DataError, match=message):
            open_dataset(tmp_path)[tmp_path.name]

    def test_the_same_time_twice_in_names(self, tmp_path):
        self.bare(tmp_path, ["5.bin", "a5.bin", "b6.bin"])
        rewrite(tmp_path, timestamps={"filename": "s"})
        with pytest.raises(DataError, match=r"timestamps, a5\.bin: .*same time"):
            open_dataset(tmp_path)[tmp_path.name]

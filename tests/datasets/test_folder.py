from __future__ import annotations

import pickle
import shutil

import numpy as np
import pytest
import yaml

from copilot4d import open_dataset
from copilot4d.datasets import write_folder
from copilot4d.datasets.point_files import SUFFIXES, write_points
from copilot4d.datasets.pose_files import write_kitti_poses, write_tum_poses
from copilot4d.errors import Copilot4dWarning, DataError, UsageError
from copilot4d.geometry import se3
from tests.datasets.trees import small_drive


def rewrite(folder, **changes):
    """Change keys of a copilot4d.yaml; None removes one."""
    path = folder / "copilot4d.yaml"
    keys = (yaml.safe_load(path.read_text()) if path.exists() else {"version": 1}) | changes
    path.write_text(yaml.safe_dump({key: value for key, value in keys.items() if value is not None}))


def check_same(read, drive, atol=1e-12):
    np.testing.assert_allclose(read.world_from_lidar, drive.world_from_lidar, atol=atol)
    assert read.timestamps_ns.tolist() == drive.timestamps_ns.tolist()
    for sweep, true in zip(read, drive, strict=True):
        np.testing.assert_allclose(sweep.points, true.points, rtol=1e-6)
        np.testing.assert_array_equal(sweep.intensity, true.intensity)
        np.testing.assert_allclose(sweep.world_from_lidar, true.world_from_lidar, atol=atol)
        assert sweep.timestamp_ns == true.timestamp_ns
        if true.origins is not None:
            np.testing.assert_allclose(sweep.origins, true.origins, rtol=1e-6)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read_back(tmp_path, suffix):
    drive = small_drive(
        origins=suffix not in (".bin", ".npy"), split="val", ego_box=np.array([-2, -1, -np.inf, 3, 1, np.inf])
    )
    write_folder(drive, tmp_path / "out", suffix=suffix)
    dataset = open_dataset(tmp_path / "out")
    assert (dataset.format, dataset.names, dict(dataset.splits)) == ("folder", ("a",), {"val": ("a",)})
    read = dataset["a"]
    check_same(read, drive)
    np.testing.assert_array_equal(read.ego_box, drive.ego_box)
    assert (read.split, read.format) == ("val", "folder")


def test_a_drive_can_be_sent_to_a_worker(tmp_path):
    read = open_dataset(write_folder(small_drive(), tmp_path / "a"))["a"]
    check_same(pickle.loads(pickle.dumps(read)), read)


def test_several_drives_are_subfolders(tmp_path):
    for name in ("b10", "b9"):
        write_folder(small_drive(name=name, split="train"), tmp_path / name)
    write_folder(small_drive(name="c"), tmp_path / "c")
    dataset = open_dataset(tmp_path)
    assert dataset.names == ("b9", "b10", "c")
    assert dict(dataset.splits) == {"train": ("b9", "b10")}
    rewrite(tmp_path / "c", name="b9")
    with pytest.raises(DataError, match="name: expected another name for each drive, found 'b9'"):
        open_dataset(tmp_path)


def test_one_description_for_all_subfolders(tmp_path):
    drive = small_drive()
    for name in ("one", "two"):
        write_folder(drive, tmp_path / name)
        (tmp_path / name / "copilot4d.yaml").unlink()
    rewrite(
        tmp_path,
        timestamps={"filename": "ns"},
        axes="x right, y forward, z up",
        splits={"train": ["one"], "val": ["no"]},
    )
    dataset = open_dataset(tmp_path)
    assert dataset.names == ("one", "two")
    assert dict(dataset.splits) == {"train": ("one",)}
    assert dataset["one"].split == "train"
    x, y, z = drive[0].points.T
    np.testing.assert_array_equal(dataset["two"][0].points, np.stack([y, -x, z], axis=1))
    np.testing.assert_array_equal(open_dataset(tmp_path / "two")["two"][0].points, np.stack([y, -x, z], axis=1))
    rewrite(tmp_path / "two", axes="x forward, y left, z up")  # its own word counts
    np.testing.assert_array_equal(open_dataset(tmp_path)["two"][0].points, drive[0].points)


@pytest.mark.parametrize(
    ("axes", "columns"),
    [  # where the file's x, y and z point, as columns in forward, left, up
        ("x right, y forward, z up", [[0, 1, 0], [-1, 0, 0], [0, 0, 1]]),
        ("x right, y down, z forward", [[0, 0, 1], [-1, 0, 0], [0, -1, 0]]),
        ("x: backward; y: right; z: up", [[-1, 0, 0], [0, -1, 0], [0, 0, 1]]),
    ],
)
def test_other_axes_are_the_same_world(tmp_path, axes, columns):
    """A log written in other axes opens as the log itself: points, origins and poses."""
    lidar_from_file = np.array(columns, dtype=float)
    drive = small_drive(origins=True)
    (tmp_path / "sweeps").mkdir()
    for i, sweep in enumerate(drive):
        write_points(
            tmp_path / "sweeps" / f"{i}.ply",
            sweep.points @ lidar_from_file, sweep.intensity, sweep.origins @ lidar_from_file,
        )  # fmt: skip
    file_poses = drive.world_from_lidar @ se3.from_rotation_translation(lidar_from_file, np.zeros(3))
    write_kitti_poses(tmp_path / "poses.txt", file_poses)
    rewrite(tmp_path, axes=axes, timestamps={"rate_hz": 10}, name="a")
    check_same(open_dataset(tmp_path)["a"], drive)


def test_millimetres(tmp_path):
    drive = small_drive()
    write_folder(drive, tmp_path / "mm", suffix=".npy")
    for path, sweep in zip(sorted((tmp_path / "mm" / "sweeps").iterdir()), drive, strict=True):
        write_points(path, sweep.points * 1000, sweep.intensity)
    poses = drive.world_from_lidar.copy()
    poses[:, :3, 3] *= 1000
    write_tum_poses(tmp_path / "mm" / "poses.txt", drive.timestamps_ns, poses)
    rewrite(tmp_path / "mm", units="mm")
    check_same(open_dataset(tmp_path / "mm")["a"], drive)


def test_poses_of_the_vehicle(tmp_path):
    drive = small_drive()
    ego_from_lidar = se3.from_yaw(0.3, (1.2, 0.1, 1.9))
    write_folder(drive, tmp_path / "a")
    world_from_ego = drive.world_from_lidar @ np.linalg.inv(ego_from_lidar)
    write_tum_poses(tmp_path / "a" / "poses.txt", drive.timestamps_ns, world_from_ego)
    rewrite(tmp_path / "a", pose_frame="world_from_ego", ego_from_lidar=ego_from_lidar[:3].tolist())
    check_same(open_dataset(tmp_path / "a")["a"], drive)
    quaternion = se3.quaternion_from_rotation(ego_from_lidar[:3, :3]).tolist()
    rewrite(tmp_path / "a", ego_from_lidar={"translation": [1.2, 0.1, 1.9], "quaternion_wxyz": quaternion})
    check_same(open_dataset(tmp_path / "a")["a"], drive)


def test_units_are_those_of_the_mounting_too(tmp_path):
    write_folder(small_drive(2), tmp_path / "a")
    write_tum_poses(tmp_path / "a" / "poses.txt", np.array([0, 100_000_000]), se3.identity((2,)))
    mounting = {"translation": [1200, 0, 1900], "quaternion_wxyz": [1, 0, 0, 0]}
    rewrite(tmp_path / "a", units="mm", pose_frame="world_from_ego", ego_from_lidar=mounting)
    np.testing.assert_allclose(open_dataset(tmp_path / "a")["a"].world_from_lidar[1, :3, 3], [1.2, 0, 1.9])


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


def test_no_poses(tmp_path):
    write_folder(small_drive(), tmp_path / "a")
    (tmp_path / "a" / "poses.txt").unlink()
    with pytest.raises(DataError, match=r"copilot4d doctor --estimate-poses .*a"):
        open_dataset(tmp_path / "a")
    dataset = open_dataset(tmp_path / "a", require_poses=False)
    assert not dataset.has_poses("a")
    np.testing.assert_array_equal(dataset["a"].world_from_lidar, se3.identity((4,)))


@pytest.mark.parametrize("lines", [3, 5])
def test_a_pose_per_sweep(tmp_path, lines):
    write_folder(small_drive(4), tmp_path / "a")
    write_kitti_poses(tmp_path / "a" / "poses.txt", se3.identity((lines,)))
    rewrite(tmp_path / "a", pose_format=None)
    with pytest.raises(DataError, match=f"a line for each of the 4 sweeps, found {lines} lines"):
        open_dataset(tmp_path / "a")["a"]


def test_nan_points_can_be_left_out(tmp_path):
    write_folder(small_drive(points=5), tmp_path / "a")
    path = sorted((tmp_path / "a" / "sweeps").iterdir())[1]
    rows = np.fromfile(path, dtype="<f4").reshape(-1, 4)
    rows[2, 0] = np.nan
    rows.tofile(path)
    drive = open_dataset(tmp_path / "a")["a"]
    with pytest.raises(DataError, match=r"100000000\.bin: points: .*1 of 5 points with NaN.*invalid_points: drop"):
        drive[1]
    rewrite(tmp_path / "a", invalid_points="drop")
    np.testing.assert_array_equal(open_dataset(tmp_path / "a")["a"][1].points, np.delete(rows[:, :3], 2, axis=0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version: expected 1, found 2"),
        ({"version": None}, "version: expected 1, found none"),
        ({"axis": "x"}, "unknown key 'axis'.*did you mean `axes`"),
        ({"time_stamps": {}}, "unknown key 'time_stamps'.*did you mean `timestamps`"),
        ({"axes": "x forward, y right, z up"}, "axes: .*right-handed"),
        ({"axes": "x forward, y left"}, "axes: expected x, y and z"),
        ({"axes": "x forward, y forward, z up"}, "axes: .*right-handed"),
        ({"units": "ft"}, "units: expected m or cm or mm, found 'ft'"),
        ({"columns": "x y intensity"}, "columns: expected x, y and z"),
        ({"columns": "x y z"}, r"points: expected a multiple of 12 bytes"),
        ({"pose_format": "euler"}, "pose_format: expected tum or kitti"),
        ({"pose_format": "kitti"}, r"poses\.txt: poses, line 1: expected 12 numbers, found 8"),
        ({"pose_frame": "world_from_ego"}, "ego_from_lidar: expected it together"),
        ({"ego_from_lidar": [1, 2]}, "ego_from_lidar: expected 12 numbers"),
        ({"ego_from_lidar": [[2, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]}, "away from rigid"),
        ({"ego_from_lidar": {"translation": [0, 0, 0], "quaternion_wxyz": [0, 0, 0, 0]}}, "a unit quaternion"),
        ({"timestamps": "ns"}, "timestamps: expected one of"),
        ({"timestamps": {"filename": "hours"}}, "timestamps.filename: expected one of s, ms, us, ns"),
        ({"timestamps": {"rate_hz": 0}}, "timestamps: expected one of"),
        ({"ego_box": [1, 2, 3]}, "ego_box: expected 6 numbers"),
        ({"ego_box": [1, 1, 1, 0, 0, 0]}, "ego_box: expected xmin"),
        ({"splits": {"train": "a"}}, "splits: expected lists of drives"),
        (
            {"splits": {"train": ["a"], "val": ["a"]}},
            "splits: expected each drive in one split, found a more than once",
        ),
        ({"poses": "../poses.txt"}, "poses: expected a path below this folder"),
        ({"sweeps": "elsewhere"}, "sweeps: expected files that end in"),
        ({"invalid_points": "keep"}, "invalid_points: expected error or drop"),
    ],
)
def test_bad_descriptions_are_named(tmp_path, changes, message):
    write_folder(small_drive(), tmp_path / "a")
    rewrite(tmp_path / "a", **changes)
    with pytest.raises(DataError, match=message):
        list(open_dataset(tmp_path / "a")["a"])


@pytest.mark.parametrize("text", ["", "- a", "version: [", "!!python/object/apply:os.system ['true']", "a: 2001-99-99"])
def test_what_is_no_description(tmp_path, text):
    write_folder(small_drive(), tmp_path / "a")
    (tmp_path / "a" / "copilot4d.yaml").write_text(text)
    with pytest.raises(DataError, match=r"copilot4d\.yaml: YAML"):
        open_dataset(tmp_path / "a")


def test_writers_refuse_what_they_cannot_write(tmp_path):
    write_folder(small_drive(), tmp_path / "a")
    with pytest.raises(UsageError, match="not an empty folder"):
        write_folder(small_drive(), tmp_path / "a")
    with pytest.raises(UsageError, match=r"suffix '\.las'"):
        write_folder(small_drive(), tmp_path / "b", suffix=".las")
    with pytest.raises(UsageError, match="ray origins"):
        write_folder(small_drive(origins=True), tmp_path / "c")


def test_sweeps_that_vanish(tmp_path):
    write_folder(small_drive(), tmp_path / "a")
    dataset = open_dataset(tmp_path / "a")
    shutil.rmtree(tmp_path / "a" / "sweeps")
    with pytest.raises(DataError, match="sweeps: expected files"):
        dataset["a"]

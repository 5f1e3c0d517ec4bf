from __future__ import annotations

import pickle
import shutil

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.datasets import write_folder, write_kitti
from copilot4d.datasets.point_files import SUFFIXES, write_points
from copilot4d.datasets.pose_files import write_kitti_poses, write_tum_poses
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import se3
from tests.datasets.trees import check_same, rewrite, small_drive


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
        splits={"train": ["one"]},
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


def test_no_poses(tmp_path):
    write_folder(small_drive(), tmp_path / "a")
    (tmp_path / "a" / "poses.txt").unlink()
    with pytest.raises(DataError, match=r"write_estimated_poses` .*a"):
        open_dataset(tmp_path / "a")
    dataset = open_dataset(tmp_path / "a", require_poses=False)
    assert not dataset.has_poses("a")
    np.testing.assert_array_equal(dataset["a"].world_from_lidar, se3.identity((4,)))


def test_one_drive_without_poses_does_not_block_the_others(tmp_path):
    for name in ("a", "b"):
        write_folder(small_drive(name=name), tmp_path / name)
    (tmp_path / "b" / "poses.txt").unlink()
    dataset = open_dataset(tmp_path)
    assert (dataset.names, dataset.names_without_poses) == (("a", "b"), ("b",))
    check_same(dataset.select(["a"])["a"], small_drive(name="a"))
    with pytest.raises(
        DataError, match=r"b: poses: expected the pose file poses\.txt, found none.*write_estimated_poses"
    ):
        dataset["b"]
    np.testing.assert_array_equal(open_dataset(tmp_path, require_poses=False)["b"].world_from_lidar, se3.identity((4,)))
    (tmp_path / "a" / "poses.txt").unlink()
    with pytest.raises(DataError, match="a: poses: expected the pose file"):
        open_dataset(tmp_path)  # nothing in it can be used: better said at once


def test_a_drive_twice_is_selected_once(tmp_path):
    for name in ("a", "b", "c"):
        write_folder(small_drive(name=name, split="val"), tmp_path / name)
    chosen = open_dataset(tmp_path).select(["c", "a", "c", "a"])
    assert (chosen.names, len(chosen), dict(chosen.splits)) == (("c", "a"), 2, {"val": ("a", "c")})


class TestSplitsOfSeveralDrives:
    def logs(self, root, **keys):
        for name in ("monday", "tuesday"):
            write_folder(small_drive(), root / name)
            (root / name / "copilot4d.yaml").unlink()
        rewrite(root, timestamps={"filename": "ns"}, **keys)

    def test_a_name_that_is_no_drive(self, tmp_path):
        self.logs(tmp_path, splits={"train": ["monday"], "val": ["tuseday"]})
        message = r"splits\.val: expected drives of .*: monday, tuesday, found tuseday.*write tuesday"
        with pytest.raises(DataError, match=rf"{tmp_path.name}/copilot4d\.yaml: {message}"):
            open_dataset(tmp_path)

    def test_a_name_that_is_no_drive_in_a_drives_own_file(self, tmp_path):
        self.logs(tmp_path, splits={"train": ["monday"]})
        rewrite(tmp_path / "tuesday", splits={"val": ["friday"]})
        with pytest.raises(DataError, match=r"tuesday/copilot4d\.yaml: splits\.val: .*found friday.*correct the name"):
            open_dataset(tmp_path)

    def test_a_drive_may_be_listed_by_its_folder(self, tmp_path):
        self.logs(tmp_path, splits={"train": ["monday"], "val": ["tuesday"]})
        rewrite(tmp_path / "tuesday", name="rain")
        assert dict(open_dataset(tmp_path).splits) == {"train": ("monday",), "val": ("rain",)}

    def test_a_drive_opened_by_itself_is_itself(self, tmp_path):
        """The name and split of the folder above are not its own; its place in `splits`, which lists others, is."""
        self.logs(tmp_path, name="logs", split="test", splits={"train": ["monday"], "val": ["tuesday"]})
        assert open_dataset(tmp_path).names == ("monday", "tuesday")
        alone = open_dataset(tmp_path / "tuesday")
        assert (alone.names, dict(alone.splits), alone["tuesday"].split) == (("tuesday",), {"val": ("tuesday",)}, "val")


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
        ({"timestamps": {"rate_hz": True}}, r"timestamps: expected one of .*found \{'rate_hz': True\}"),
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


@pytest.mark.parametrize(
    "text", ["", "- a", "version: [", "!!python/object/apply:os.system ['true']", "a: !!timestamp 2001-99-99"]
)
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


@pytest.mark.parametrize("suffix", [".bin", ".npy"])
def test_origins_that_do_not_fit_leave_no_folder_behind(tmp_path, suffix):
    drive = small_drive(origins=True)
    with pytest.raises(UsageError, match=rf"ray origins.*\{suffix} files.*one of \.npz \.pcd \.ply \.feather"):
        write_folder(drive, tmp_path / "c", suffix=suffix)
    assert list(tmp_path.iterdir()) == []
    check_same(open_dataset(write_folder(drive, tmp_path / "c", suffix=".npz"))["a"], drive)
    with pytest.raises(UsageError, match=r"write_kitti: .*ray origins.*write_folder with suffix= one of \.npz"):
        write_kitti(drive, tmp_path / "kitti")
    assert not (tmp_path / "kitti").exists()


def test_sweeps_that_vanish(tmp_path):
    write_folder(small_drive(), tmp_path / "a")
    dataset = open_dataset(tmp_path / "a")
    shutil.rmtree(tmp_path / "a" / "sweeps")
    with pytest.raises(DataError, match="sweeps: expected files"):
        dataset["a"]

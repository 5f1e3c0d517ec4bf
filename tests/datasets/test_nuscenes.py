"""nuScenes from its tables: axes, poses, order, splits, and what happens when the tables are damaged."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from copilot4d.datasets import nuscenes
from copilot4d.datasets.nuscenes_splits import SPLITS
from copilot4d.datasets.windows import explain_missing, protocol_windows
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import Drive, se3
from tests.datasets.nuscenes_trees import edit, tiny_drive
from tests.support.nuscenes_tree import FIRST_US, write_nuscenes
from tests.support.real_data import real_data
from tests.support.registration import landmark_drive, mean_distance
from tests.support.scenes import make_drive


@pytest.fixture(scope="module")
def drive() -> Drive:
    return make_drive(12, rate_hz=20.0, speed=12.0, yaw_rate=0.3, azimuths=90, rings=16)


@pytest.fixture(scope="module")
def tree(tmp_path_factory, drive) -> Path:
    root = tmp_path_factory.mktemp("nuscenes")
    return write_nuscenes(root, {"scene-0061": drive, "scene-0103": drive[3:9]}, keyframe_every=3)


def test_points_and_poses_are_turned_to_x_forward_y_left(tmp_path):
    """Worked by hand: one return 10 m ahead, 1 m to the right, 0.5 m up, of a car at (100, 200) that looks along +y."""
    write_nuscenes(tmp_path, {"scene-0061": tiny_drive(1)})
    folder = tmp_path / "v1.0-mini"
    file = next((tmp_path / "samples" / "LIDAR_TOP").iterdir())
    np.array([[1.0, 10.0, 0.5, 7.0, 3.0]], dtype="<f4").tofile(file)  # nuScenes: x right, y forward
    half = np.sqrt(0.5)

    def place(records):
        for record in records:
            record.update(translation=[100.0, 200.0, 0.0], rotation=[half, 0.0, 0.0, half])

    edit(tmp_path, "ego_pose", place)
    sweep = nuscenes.open(folder)["scene-0061"][0]
    np.testing.assert_array_equal(sweep.points, [[10.0, -1.0, 0.5]])
    np.testing.assert_array_equal(sweep.intensity, [7.0])
    # The lidar sits 0.94 m ahead of the ego's origin and 1.84 m up; ahead is +y, right is +x.
    np.testing.assert_allclose(sweep.world_from_lidar[:3, 3], [100, 200.94, 1.84], atol=1e-9)
    world = se3.transform_points(sweep.world_from_lidar, sweep.points)
    np.testing.assert_allclose(world, [[101.0, 210.94, 2.34]], atol=1e-5)


def test_keyframes_and_all_sweeps_come_in_order_of_time(tree, drive):
    keyframes = nuscenes.open(tree)["scene-0061"]
    everything = nuscenes.open(tree, sweeps="all")["scene-0061"]
    assert (len(keyframes), len(everything)) == (4, 12)
    np.testing.assert_array_equal(everything.timestamps_ns, FIRST_US * 1000 + drive.timestamps_ns)
    np.testing.assert_array_equal(keyframes.timestamps_ns, everything.timestamps_ns[::3])
    np.testing.assert_allclose(everything.world_from_lidar, drive.world_from_lidar, atol=1e-9)
    for i in (0, 5, 11):
        np.testing.assert_allclose(everything[i].points, drive[i].points, atol=1e-6)
        np.testing.assert_array_equal(everything[i].world_from_lidar, everything.world_from_lidar[i])
    np.testing.assert_allclose(keyframes[2].points, drive[6].points, atol=1e-6)
    assert everything[1].intensity[:3].tolist() == [0, 1, 2]


def test_a_drive_says_where_it_comes_from_and_survives_the_trip_to_a_worker(tree):
    drive = nuscenes.open(tree)["scene-0061"]
    assert (drive.name, drive.format, drive.split) == ("scene-0061", "nuscenes", "mini_train")
    np.testing.assert_array_equal(drive.ego_box[[0, 1, 3, 4]], [-1.5, -0.8, 2.5, 0.8])
    copy = pickle.loads(pickle.dumps(drive))
    np.testing.assert_array_equal(copy[1].points, drive[1].points)


def test_root_and_version_folder_are_recognised_and_other_folders_are_not(tree, tmp_path):
    assert nuscenes.recognise(tree) == tree
    assert nuscenes.recognise(tree / "v1.0-mini") == tree / "v1.0-mini"
    assert nuscenes.open(tree / "v1.0-mini").names == nuscenes.open(tree).names == ("scene-0061", "scene-0103")
    assert nuscenes.recognise(tree / "samples") is None
    assert nuscenes.recognise(tmp_path) is None
    assert nuscenes.recognise(tmp_path / "absent") is None
    with pytest.raises(DataError, match=r"v1\.0-trainval"):
        nuscenes.open(tmp_path)
    with pytest.raises(UsageError, match="keyframes"):
        nuscenes.open(tree, sweeps="some")


def test_opening_reads_no_big_table(tree, tmp_path):
    root = shutil.copytree(tree, tmp_path / "copy")
    (root / "v1.0-mini" / "sample_data.json").write_text("not a table")
    dataset = nuscenes.open(root)
    assert len(dataset) == 2
    with pytest.raises(DataError, match=r"sample_data\.json: table: expected a whole JSON list"):
        dataset["scene-0061"]


def test_splits_are_the_official_ones():
    assert {split: len(scenes) for split, scenes in SPLITS.items()} == {
        "train": 700, "val": 150, "test": 150, "mini_train": 8, "mini_val": 2,
    }  # fmt: skip
    assert len(SPLITS["train"] | SPLITS["val"] | SPLITS["test"]) == 1000
    for split, scene in (("train", "0001"), ("val", "0003"), ("test", "0077"), ("train", "1110"), ("val", "1073")):
        assert f"scene-{scene}" in SPLITS[split]
    assert (SPLITS["mini_train"] | SPLITS["mini_val"]) <= (SPLITS["train"] | SPLITS["val"])


def test_versions_in_one_root_are_joined_and_mini_never_says_train(tmp_path):
    drive = tiny_drive()
    mini = write_nuscenes(tmp_path / "mini", {"scene-0553": drive, "scene-0103": drive})
    assert nuscenes.open(mini).splits == {"mini_train": ("scene-0553",), "mini_val": ("scene-0103",)}
    both = write_nuscenes(tmp_path / "both", {"scene-0553": drive, "scene-0001": drive}, version="v1.0-trainval")
    write_nuscenes(both, {"scene-0553": drive}, version="v1.0-mini")
    write_nuscenes(both, {"scene-0077": drive}, version="v1.0-test")
    joined = nuscenes.open(both)
    assert joined.splits == {"train": ("scene-0001",), "val": ("scene-0553",), "test": ("scene-0077",)}
    assert joined["scene-0553"].split == "val"
    assert len(joined.split("test")["scene-0077"]) == 4


def test_a_bare_sweep_opens_as_its_own_world_but_several_need_tables(tmp_path):
    rows = np.array([[1.0, 10.0, 0.5, 7.0, 3.0]], dtype="<f4")
    rows.tofile(tmp_path / "n015-a__LIDAR_TOP__1532402927647951.pcd.bin")
    dataset = nuscenes.open(nuscenes.recognise(tmp_path))
    drive = dataset["n015-a"]
    np.testing.assert_array_equal(drive[0].points, [[10, -1, 0.5]])
    assert drive.timestamps_ns.tolist() == [1532402927647951000]
    assert not dataset.has_poses("n015-a")
    rows.tofile(tmp_path / "n015-a__LIDAR_TOP__1532402928147951.pcd.bin")
    with pytest.raises(DataError, match="2 sweeps and no tables"):
        nuscenes.open(tmp_path)["n015-a"]


def test_fixed_landmarks_come_together_with_the_poses(tmp_path):
    write_nuscenes(tmp_path, {"scene-0061": landmark_drive()})
    drive = nuscenes.open(tmp_path)["scene-0061"]
    found = {how: mean_distance(drive, 0, 3, how) for how in ("poses", "none", "inverse")}
    assert found["poses"] < 1e-3
    assert min(found["none"], found["inverse"]) > 0.5


def test_the_real_scene_opens_and_registers_with_its_poses():
    root = real_data("fixtures", "nuscenes_scene0006_rebuilt")
    drive = nuscenes.open(root, sweeps="all")["scene-0006"]
    assert len(drive) == 6
    assert drive.interval_s == pytest.approx(0.05, rel=0.02)
    found = {how: mean_distance(drive, 0, 5, how) for how in ("poses", "none", "inverse")}
    assert found["poses"] < 0.8 * found["none"] < found["inverse"]
    # It drives forward at about 10 m/s: in its own first frame the last sweep lies ahead, along x.
    ahead = se3.relative_motion(drive.world_from_lidar[0], drive.world_from_lidar[5])[:3, 3]
    assert ahead[0] == pytest.approx(2.5, abs=0.1)
    assert abs(ahead[1]) < 0.1
    keyframes = nuscenes.open(root)
    assert protocol_windows(keyframes, "1s") == []
    assert "frames 1..4 are missing" in explain_missing(keyframes["scene-0006"], "1s")


def test_the_genuine_real_sweep_opens_and_has_its_ground_below_and_its_car_in_the_ego_box():
    dataset = nuscenes.open(nuscenes.recognise(real_data("fixtures", "nuscenes_genuine_one_sample")))
    (drive,) = dataset.values()
    sweep = drive[0]
    assert len(sweep) == 34688
    assert -2.1 < np.percentile(sweep.points[:, 2], 20) < -1.5

    def on_the_car(box: np.ndarray) -> int:
        left = sweep.without_box(box).points
        return int(((np.abs(left[:, :2]) < 3).all(axis=1) & (left[:, 2] > -1)).sum())

    assert on_the_car(drive.ego_box) == 0
    assert on_the_car(drive.ego_box[[1, 0, 2, 4, 3, 5]]) > 500  # x and y swapped: bonnet and boot would stay

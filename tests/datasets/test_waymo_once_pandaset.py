"""Waymo v2, ONCE and PandaSet: the drive that a tree was written from comes back; what is damaged is told."""

from __future__ import annotations

import json
import pickle
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from copilot4d import open_dataset
from copilot4d.datasets.pandaset import CAMERA_FROM_LIDAR
from copilot4d.errors import Copilot4dWarning, DataError
from copilot4d.geometry import se3
from tests.datasets.other_trees import write_once, write_pandaset, write_waymo
from tests.datasets.trees import small_drive


def same_drive(read, drive, *, offset_ns, atol=2e-5):
    np.testing.assert_allclose(read.world_from_lidar, drive.world_from_lidar, atol=1e-9)
    np.testing.assert_allclose(read.timestamps_ns - offset_ns, drive.timestamps_ns, atol=1000)
    for a, b in zip(read, drive, strict=True):
        np.testing.assert_allclose(a.points, b.points, atol=atol)


@pytest.mark.parametrize("beams", [True, False])
def test_waymo_s_range_images_become_points_of_the_frame_s_time(tmp_path, beams):
    truth = write_waymo(tmp_path / "waymo" / "validation", beams=beams)
    dataset = open_dataset(tmp_path / "waymo")
    assert (dataset.format, dataset.names, dict(dataset.splits)) == ("waymo", ("segment_1",), {"val": ("segment_1",)})
    drive = dataset["segment_1"]
    assert drive.split == "val"
    np.testing.assert_allclose(drive.world_from_lidar, truth["poses"], atol=1e-9)
    np.testing.assert_array_equal(drive.timestamps_ns, truth["times_ns"])
    for i, sweep in enumerate(drive):
        there, lidar_from_world = truth["returned"][i], se3.invert(truth["poses"][i])
        for found, name in ((sweep.points, "points"), (sweep.origins, "starts")):
            expected = se3.transform_points(lidar_from_world, truth[name][i][there])
            np.testing.assert_allclose(found, expected, atol=2e-3)  # pixel poses are float32, 3 km from the origin
        np.testing.assert_allclose(sweep.intensity, truth["intensity"][i][there])
    assert np.linalg.norm(drive[1].origins, axis=1).max() > 0.4, "the lidar moves within a sweep"
    assert abs(float(np.median(drive[1].origins[:, 2]))) < 0.05, "the frame is at the lidar"


def test_waymo_opens_from_each_of_its_folders_and_in_a_worker(tmp_path):
    write_waymo(tmp_path / "training", row_group_size=100)
    for path in (tmp_path, tmp_path / "training", tmp_path / "training" / "lidar"):
        drive = open_dataset(path)["segment_1"]
        assert drive.split == "train"
    there = pickle.loads(pickle.dumps(open_dataset(tmp_path)))["segment_1"]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(there.read))(2).points, drive[2].points)


def change_parquet(path, name, values):
    table = pa.parquet.read_table(path)
    at = table.schema.get_field_index(name)
    kept = table.remove_column(at) if values is None else table.set_column(at, name, values(table.column(name)))
    pa.parquet.write_table(kept, str(path))


@pytest.mark.parametrize(("part", "column", "values", "words"), [
    ("lidar", "[LiDARComponent].range_image_return1.values", None, "columns"),
    ("lidar", "[LiDARComponent].range_image_return1.shape",
     lambda c: pa.array([[1, 2, 3]] * len(c), pa.list_(pa.int32(), 3)), "a shape of .* numbers"),
    ("lidar", "key.laser_name", lambda c: pa.array([2] * len(c)), "a row of the top lidar for every vehicle pose"),
    ("lidar_pose", "key.frame_timestamp_micros", lambda c: pa.array(range(len(c))), "a row of the top lidar"),
    ("lidar_pose", "[LiDARPoseComponent].range_image_return1.shape",
     lambda c: pa.array([[24, 6, 6]] * len(c), pa.list_(pa.int32(), 3)), r"expected \(6, 24, 6\), finite"),
    ("vehicle_pose", "[VehiclePoseComponent].world_from_vehicle.transform",
     lambda c: pa.array([[1.0] * 16] * len(c)), "rigid motion"),
    ("vehicle_pose", "key.frame_timestamp_micros", lambda c: pa.array([5] * len(c)), "expected a time after"),
    ("lidar_calibration", "key.laser_name", lambda c: pa.array([2, 3]), "one row for the top lidar"),
    ("lidar_calibration", "[LiDARCalibrationComponent].beam_inclination.values",
     lambda c: pa.array([None, [0.1, 0.2]], pa.list_(pa.float64())), "2 rows, with range and intensity"),
    ("lidar_calibration", "[LiDARCalibrationComponent].extrinsic.transform",
     lambda c: pa.array([None, [float("nan")] * 16], pa.list_(pa.float64())), "16 finite numbers"),
])  # fmt: skip
def test_waymo_files_that_do_not_hold_together(tmp_path, part, column, values, words):
    write_waymo(tmp_path / "training")
    path = tmp_path / "training" / part / "segment_1.parquet"
    change_parquet(path, column, values)
    with pytest.raises(DataError, match=rf"segment_1\.parquet.*{words}"):
        open_dataset(tmp_path)["segment_1"][1]


@pytest.mark.parametrize("part", ["lidar", "lidar_calibration", "lidar_pose", "vehicle_pose"])
def test_waymo_files_that_are_missing_or_cut(tmp_path, part):
    write_waymo(tmp_path / "training")
    write_waymo(tmp_path / "training", "segment_2")
    path = tmp_path / "training" / part / "segment_1.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=rf"{part}.segment_1.*whole parquet file"):
        open_dataset(tmp_path)["segment_1"][0]
    if part != "lidar":
        path.unlink()
        with pytest.raises(DataError, match=rf"{part}.segment_1"):
            open_dataset(tmp_path)["segment_1"][0]


def test_once_is_turned_to_our_axes(tmp_path):
    drive = small_drive(5)
    write_once(tmp_path / "data", drive)
    (tmp_path / "ImageSets").mkdir()
    (tmp_path / "ImageSets" / "val.txt").write_text("000076\n000099\n")
    dataset = open_dataset(tmp_path)
    assert (dataset.format, dataset.names, dict(dataset.splits)) == ("once", ("000076",), {"val": ("000076",)})
    read = dataset["000076"]
    same_drive(read, drive, offset_ns=1_616_100_800_400_000_000)
    assert read.split == "val"
    assert set(read[0].intensity) == {0.5}
    for path in (tmp_path / "data", tmp_path / "data" / "000076", tmp_path / "data" / "000076" / "lidar_roof"):
        assert open_dataset(path).names == ("000076",)


def test_once_names_its_split_by_the_folder_around_data(tmp_path):
    write_once(tmp_path / "train" / "data", small_drive(2))
    assert open_dataset(tmp_path / "train").splits == {"train": ("000076",)}


def test_frames_of_once_without_a_pose_are_left_out(tmp_path):
    drive = small_drive(5)
    write_once(tmp_path / "data", drive, without_pose=(1, 4))
    with pytest.warns(Copilot4dWarning, match="2 of 5 frames have no pose"):
        read = open_dataset(tmp_path)["000076"]
    np.testing.assert_allclose(read.world_from_lidar, drive.world_from_lidar[[0, 2, 3]], atol=1e-9)
    np.testing.assert_allclose(read[1].points, drive[2].points, atol=1e-5)


@pytest.mark.parametrize(("change", "words"), [
    (lambda d: d.update(frames=[]), "frames: expected a list of frames"),
    (lambda d: d["frames"][0].update(frame_id="a"), "Unix milliseconds"),
    (lambda d: d["frames"][1].update(pose=[0, 0, 0, 2, 0, 0, 0]), r"frame .*unit quaternion, found length 2"),
    (lambda d: d["frames"][1].update(pose=[1, 2]), r"frames\[1\]\.pose: expected 7 finite numbers"),
    (lambda d: d["frames"].reverse(), "expected a time after"),
    (lambda d: [f.update(pose=[0] * 7) for f in d["frames"]], "zeros alone"),
])  # fmt: skip
def test_descriptions_of_once_that_are_wrong(tmp_path, change, words):
    path = write_once(tmp_path / "data", small_drive(3)) / "000076.json"
    described = json.loads(path.read_text())
    change(described)
    path.write_text(json.dumps(described))
    with pytest.raises(DataError, match=words):
        open_dataset(tmp_path)["000076"]
    path.write_text("{")
    with pytest.raises(DataError, match=r"000076\.json: sequence: expected JSON"):
        open_dataset(tmp_path)["000076"]


def test_a_converted_pandaset_is_moved_from_the_world_to_the_lidar(tmp_path):
    drive = small_drive(4)
    write_pandaset(tmp_path / "pandaset", drive)
    dataset = open_dataset(tmp_path / "pandaset")
    assert (dataset.format, dataset.names) == ("pandaset", ("001",))
    same_drive(dataset["001"], drive, offset_ns=1_557_539_924_050_000_000)
    assert set(dataset["001"][0].intensity) == {7.0}
    for path in (tmp_path / "pandaset" / "001", tmp_path / "pandaset" / "001" / "lidar"):
        assert open_dataset(path).names == ("001",)


def test_the_camera_looks_ahead_of_the_lidar_s_frame():
    """The published calibration: a camera that looks forward (z of the image) is along -y of the lidar's own axes."""
    forward = CAMERA_FROM_LIDAR[:3, :3].T @ np.array([0, 0, 1.0])
    np.testing.assert_allclose(forward, [0, -1, 0], atol=0.03)
    down = CAMERA_FROM_LIDAR[:3, :3].T @ np.array([0, 1.0, 0])
    np.testing.assert_allclose(down, [0, 0, -1], atol=0.03)


def test_pickles_are_never_opened_and_the_error_says_what_to_do(tmp_path):
    write_pandaset(tmp_path, small_drive(2), converted=False)
    with pytest.raises(DataError, match=r"lidar: sweeps: .*never read: reading a pickle runs.*write them again"):
        open_dataset(tmp_path)


def test_a_sweep_that_was_not_converted_is_named(tmp_path):
    folder = write_pandaset(tmp_path, small_drive(3))
    (folder / "lidar" / "01.feather").unlink()
    with pytest.raises(DataError, match="1 of 3 as pickles alone, frame 01 first"):
        open_dataset(tmp_path)["001"]
    shutil.copytree(folder, tmp_path / "002")
    for path in (tmp_path / "002" / "lidar").glob("*.feather"):
        path.unlink()
    with pytest.raises(DataError, match="never read"):
        open_dataset(tmp_path)["002"]


@pytest.mark.parametrize(("file", "change", "words"), [
    ("poses.json", lambda v: v.pop(), "one for each sweep, up to 02"),
    ("poses.json", lambda v: v[1].pop("heading"), r"\[1\]\.heading: expected 4 finite numbers, found None"),
    ("poses.json", lambda v: v[2]["heading"].update(w=9.0), "frame 02: expected a unit quaternion"),
    ("poses.json", lambda v: v[0]["position"].update(x="a"), r"\[0\]\.position: expected 3 finite numbers"),
    ("timestamps.json", lambda v: v.reverse(), "expected a time after"),
    ("timestamps.json", lambda v: v.__setitem__(1, -5.0), "Unix seconds"),
])  # fmt: skip
def test_pandaset_s_camera_files_that_are_wrong(tmp_path, file, change, words):
    path = write_pandaset(tmp_path, small_drive(3)) / "camera" / "front_camera" / file
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    with pytest.raises(DataError, match=words):
        open_dataset(tmp_path)["001"]
    path.unlink()
    with pytest.raises(DataError, match=f"front_camera.{file}"):
        open_dataset(tmp_path)["001"]


def test_tables_of_pandaset_that_are_wrong(tmp_path):
    path = write_pandaset(tmp_path, small_drive(3)) / "lidar" / "01.feather"
    table = pa.feather.read_table(path)
    at = table.schema.get_field_index("d")
    for changed, words in (
        (table.drop_columns(["d"]), "columns"), (table.set_column(at, "d", pa.array([1] * len(table))), "found none"),
        (table.set_column(0, "x", pa.array([float("nan")] * len(table))), "NaN or infinity"),
        (table.set_column(0, "x", pa.array(["a"] * len(table))), "column x: expected numbers"),
    ):  # fmt: skip
        pa.feather.write_feather(changed, str(path))
        with pytest.raises(DataError, match=rf"01\.feather.*{words}"):
            open_dataset(tmp_path)["001"][1]

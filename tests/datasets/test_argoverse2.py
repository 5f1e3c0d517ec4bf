"""Argoverse 2 logs: the upper lidar's frame, an origin per point, poses by exact time, and damaged files."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from copilot4d.datasets import argoverse2
from copilot4d.datasets.argoverse2_kernel import FLOAT_FROM_HALF, place_points, place_points_plain
from copilot4d.errors import DataError
from copilot4d.geometry import se3
from tests.datasets.argoverse2_logs import CALIBRATION, LOG, change_column, sweep_file, tiny_drive
from tests.support.argoverse2_tree import (
    EGO_FROM_LOWER,
    EGO_FROM_UPPER,
    FIRST_NS,
    write_argoverse2,
)  # fmt: skip
from tests.support.real_data import real_data
from tests.support.registration import landmark_drive, mean_distance


@pytest.fixture
def log(tmp_path) -> Path:
    return write_argoverse2(tmp_path / "val" / LOG, tiny_drive())


def test_points_come_in_the_upper_lidars_frame_with_the_origin_of_their_lidar(tmp_path):
    """Worked by hand: the upper lidar is 1 m ahead of the ego's origin, 2 m up, and turned a little."""
    drive = tiny_drive(1, points=2)
    turned = se3.from_yaw(np.pi / 6, (1.0, 0.0, 2.0))
    log = write_argoverse2(tmp_path / LOG, drive, ego_from_upper=turned)
    ego = np.array([[1.0, 4.0, 2.5], [3.0, 0.0, 1.0]])
    change_column(sweep_file(log), "x", ego[:, 0].astype(np.float16))
    change_column(sweep_file(log), "y", ego[:, 1].astype(np.float16))
    change_column(sweep_file(log), "z", ego[:, 2].astype(np.float16))
    change_column(sweep_file(log), "laser_number", np.array([31, 32], dtype=np.uint8))
    sweep = argoverse2.open(log)[LOG][0]
    cos, sin = np.cos(np.pi / 6), np.sin(np.pi / 6)
    # 4 m to the left of the lidar; 2 m ahead of it and 1 m down.
    np.testing.assert_allclose(sweep.points, [[4 * sin, 4 * cos, 0.5], [2 * cos, -2 * sin, -1.0]], atol=1e-6)
    lower = [0.345 * cos + 0.005 * sin, -0.345 * sin + 0.005 * cos, -0.475]  # EGO_FROM_LOWER seen from there
    np.testing.assert_allclose(sweep.origins, [[0, 0, 0], lower], atol=1e-6)
    np.testing.assert_array_equal(sweep.intensity, [0, 1])


@pytest.mark.parametrize("chunksize", [None, 3])
def test_a_drive_gives_back_what_was_written(tmp_path, chunksize):
    drive = tiny_drive()
    log = write_argoverse2(tmp_path / "val" / LOG, drive, chunksize=chunksize)
    found = argoverse2.open(log)[LOG]
    np.testing.assert_array_equal(found.timestamps_ns, FIRST_NS + drive.timestamps_ns)
    np.testing.assert_allclose(found.world_from_lidar, drive.world_from_lidar, atol=1e-9)
    for i in range(3):
        np.testing.assert_allclose(found[i].points, drive[i].points, atol=0.02)  # float16 on disk
        is_lower = np.arange(10) % 3 == 0
        expected = se3.compose(se3.invert(EGO_FROM_UPPER), EGO_FROM_LOWER)[:3, 3]
        np.testing.assert_allclose(found[i].origins[is_lower], np.broadcast_to(expected, (4, 3)), atol=1e-6)
        np.testing.assert_array_equal(found[i].origins[~is_lower], 0)
        np.testing.assert_array_equal(found[i].intensity, np.arange(10))
    assert (found.name, found.format, found.split) == (LOG, "argoverse2", "val")
    np.testing.assert_array_equal(found.ego_box[[0, 1, 3, 4]], [-1.75, -1.25, 3.75, 1.25])
    copy = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(copy[2].points, found[2].points)


def test_a_log_written_in_float32_gives_the_same_points(log):
    before = argoverse2.open(log)[LOG][0]
    for name in "xyz":
        half = pa.feather.read_table(str(sweep_file(log)), memory_map=False).column(name).to_numpy()
        change_column(sweep_file(log), name, half.astype(np.float32))
    after = argoverse2.open(log)[LOG][0]
    np.testing.assert_allclose(after.points, before.points, atol=1e-5)
    np.testing.assert_array_equal(after.origins, before.origins)


def test_points_are_placed_as_matrices_place_them():
    rng = np.random.default_rng(0)
    halves = rng.normal(scale=30, size=(300, 3)).astype(np.float16)
    lasers = rng.integers(0, 64, size=300).astype(np.uint8)
    lidar_from_ego = se3.from_yaw(0.7, (1.35, 0.2, -1.64)).astype(np.float32)
    lower_origin = np.array([0.1, -0.2, -0.3], dtype=np.float32)
    points, origins = np.empty((300, 3), np.float32), np.empty((300, 3), np.float32)
    bits = [np.ascontiguousarray(column) for column in halves.view(np.uint16).T]
    assert place_points(FLOAT_FROM_HALF, *bits, lasers, 32, lidar_from_ego, lower_origin, points, origins)
    expected, from_where = place_points_plain(halves, lasers, 32, lidar_from_ego, lower_origin)
    np.testing.assert_allclose(points, expected, atol=1e-4)
    np.testing.assert_array_equal(origins, from_where)
    bits[1][7] = np.float16(np.nan).view(np.uint16)
    assert not place_points(FLOAT_FROM_HALF, *bits, lasers, 32, lidar_from_ego, lower_origin, points, origins)


def test_every_float16_is_read_exactly():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(FLOAT_FROM_HALF, halves.astype(np.float32))


@pytest.mark.parametrize("quarter_turns", [0, 1, 2, 3])
@pytest.mark.parametrize("flipped", [False, True])
def test_x_is_forward_however_the_upper_lidar_is_mounted(tmp_path, quarter_turns, flipped):
    mount = se3.from_yaw(0.01 + quarter_turns * np.pi / 2, (1.35, 0.0, 1.64))
    if flipped:
        mount = se3.compose(mount, se3.from_rotation_translation(np.diag([1.0, -1.0, -1.0]), np.zeros(3)))
    log = write_argoverse2(tmp_path / LOG, tiny_drive(), ego_from_upper=mount)
    ego = np.array([[11.35, 0.0, 2.64]] * 10)  # 10 m ahead of the lidar, 1 m above it
    for k, name in enumerate("xyz"):
        change_column(sweep_file(log), name, ego[:, k].astype(np.float16))
    drive = argoverse2.open(log)[LOG]
    np.testing.assert_allclose(drive[0].points[0], [10, 0, 1], atol=0.15)
    # The world does not depend on how axes are named: the same pose composed with the same points.
    world = se3.transform_points(drive.world_from_lidar[0], drive[0].points[:1].astype(np.float64))
    ego_pose = tiny_drive().world_from_lidar[0] @ se3.invert(mount)
    np.testing.assert_allclose(
        world, se3.transform_points(ego_pose, ego[:1].astype(np.float16).astype(float)), atol=1e-3
    )


def test_log_split_root_and_the_folder_of_roots_all_open(tmp_path):
    for data_set, split, log in (("sensor", "val", "a"), ("sensor", "train", "b"), ("lidar", "test", "c")):
        write_argoverse2(tmp_path / data_set / split / log, tiny_drive(1))
    sensor = tmp_path / "sensor"
    for path, names in (
        (tmp_path, {"a", "b", "c"}), (sensor, {"a", "b"}), (sensor / "val", {"a"}), (sensor / "val" / "a", {"a"}),
    ):  # fmt: skip
        assert argoverse2.recognise(path) == path
        assert set(argoverse2.open(path)) == names
    assert argoverse2.open(tmp_path).splits == {"train": ("b",), "val": ("a",), "test": ("c",)}
    assert argoverse2.open(sensor / "val").splits == {"val": ("a",)}
    assert argoverse2.open(sensor / "val" / "a")["a"].split == "val"
    assert argoverse2.recognise(tmp_path / "absent") is None
    assert argoverse2.recognise(sensor / "val" / "a" / "sensors") is None
    with pytest.raises(DataError, match="sensors/lidar"):
        argoverse2.open(sensor / "val" / "a" / "sensors")


def test_one_log_id_in_two_data_sets_gives_two_drives(tmp_path):
    for data_set in ("lidar", "sensor"):
        write_argoverse2(tmp_path / data_set / "val" / LOG, tiny_drive(1))
    assert set(argoverse2.open(tmp_path)) == {f"lidar/val/{LOG}", f"sensor/val/{LOG}"}


def test_opening_reads_no_sweep(log):
    for file in (log / "sensors" / "lidar").iterdir():
        file.write_bytes(b"nothing")
    drive = argoverse2.open(log)[LOG]
    assert len(drive) == 3
    with pytest.raises(DataError, match="damaged"):
        drive[0]


def test_fixed_landmarks_come_together_with_the_poses(tmp_path):
    write_argoverse2(tmp_path / LOG, landmark_drive())
    drive = argoverse2.open(tmp_path / LOG)[LOG]
    found = {how: mean_distance(drive, 0, 3, how) for how in ("poses", "none", "inverse")}
    assert found["poses"] < 0.03  # float16 on disk
    assert min(found["none"], found["inverse"]) > 0.5


def test_the_real_log_opens_and_registers_with_its_poses():
    root = real_data("fixtures", "av2")
    dataset = argoverse2.open(argoverse2.recognise(root))
    assert dataset.splits == {"val": (LOG,)}
    drive = dataset[LOG]
    assert drive.interval_s == pytest.approx(0.1, rel=0.01)
    found = {how: mean_distance(drive, 0, 1, how) for how in ("poses", "none", "inverse")}
    assert found["poses"] < 0.85 * found["none"] < found["inverse"]
    near = drive[0].points[np.linalg.norm(drive[0].points[:, :2], axis=1) < 20]
    counts, edges = np.histogram(near[:, 2], np.arange(-4, 3, 0.1))
    assert -2.2 < edges[counts.argmax()] < -1.8  # the road: the lidar is 1.64 m above the axle, which is 0.3 m up


def test_real_beams_lie_on_cones_round_the_lidar_that_the_laser_number_names():
    """From its own origin a laser's elevation is constant; from the other lidar's it varies."""
    root = real_data("fixtures", "av2", "sensor", "val", LOG)
    drive = argoverse2.open(root)[LOG]
    sweep = drive[0]
    lasers = pa.feather.read_table(str(sweep_file(root))).column("laser_number").to_numpy()
    other = np.unique(sweep.origins, axis=0)
    assert len(other) == 2
    swapped = np.where((sweep.origins == other[0]).all(axis=1, keepdims=True), other[1], other[0])
    axis_from_lidar = {  # the spin axis of the lower lidar is tilted against the upper's
        name: se3.compose(se3.invert(pose), argoverse2.x_forward(_calibration(root)["up_lidar"]))[:3, :3]
        for name, pose in _calibration(root).items()
    }

    def spread(origins: np.ndarray) -> float:
        offsets = sweep.points - origins
        ranges = np.linalg.norm(offsets, axis=1)
        found = []
        for laser in range(64):
            near = (lasers == laser) & (ranges > 3) & (ranges < 15)
            if near.sum() > 30:
                axis = axis_from_lidar["up_lidar" if laser < 32 else "down_lidar"][2]
                sine = offsets[near] @ axis / ranges[near]
                found.append(np.subtract(*np.percentile(sine, [84, 16])))
        return float(np.median(found))

    assert spread(sweep.origins) < 0.7 * spread(swapped)


def _calibration(root: Path) -> dict[str, np.ndarray]:
    rows = pa.feather.read_table(str(root / CALIBRATION)).to_pylist()
    return {
        row["sensor_name"]: se3.from_quaternion(
            np.array([row[k] for k in ("qw", "qx", "qy", "qz")]), np.array([row[k] for k in ("tx_m", "ty_m", "tz_m")])
        )
        for row in rows
        if "lidar" in row["sensor_name"]
    }

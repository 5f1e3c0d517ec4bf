"""Argoverse 2 logs: the upper lidar's frame, an origin per point, poses by exact time, and damaged files."""

from __future__ import annotations

import contextlib
import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copilot4d.datasets import argoverse2
from copilot4d.datasets.argoverse2_kernel import FLOAT_FROM_HALF
from copilot4d.errors import Copilot4dError, DataError
from copilot4d.geometry import Drive, Sweep, se3
from tests.support.argoverse2_tree import (
    EGO_FROM_LOWER,
    EGO_FROM_UPPER,
    FIRST_NS,
    pose_columns,
    write_argoverse2,
    write_table,
)  # fmt: skip
from tests.support.real_data import real_data
from tests.support.registration import landmark_drive, mean_distance

LOG = "7fab2350-7eaf-3b7e-a39d-6937a4c1bede"
POSES = "city_SE3_egovehicle.feather"
CALIBRATION = "calibration/egovehicle_SE3_sensor.feather"


def tiny_drive(frames: int = 3, points: int = 10) -> Drive:
    rng = np.random.default_rng(0)
    return Drive.from_sweeps(
        "tiny",
        [
            Sweep(
                points=rng.normal(size=(points, 3), scale=9).astype(np.float32),
                world_from_lidar=se3.from_yaw(0.1 * i, (5000 + i, 2400.0, 66.0)),
                timestamp_ns=i * 100_000_000,
            )
            for i in range(frames)
        ],
    )


@pytest.fixture
def log(tmp_path) -> Path:
    return write_argoverse2(tmp_path / "val" / LOG, tiny_drive())


def sweep_file(log: Path, index: int = 0) -> Path:
    return sorted((log / "sensors" / "lidar").iterdir())[index]


def change_column(path: Path, name: str, values: object | None) -> None:
    """Replace a column, or drop it where `values` is None."""
    table = pa.feather.read_table(str(path), memory_map=False)
    columns = {n: table.column(n) for n in table.column_names}
    columns.pop(name, None)
    write_table(path, columns if values is None else {**columns, name: values})


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


BAD_SWEEPS = [
    (lambda f: change_column(f, "laser_number", None), r"columns: expected .*found .* \(no laser_number\)"),
    (lambda f: change_column(f, "z", None), r"\(no z\)"),
    (lambda f: change_column(f, "x", ["one"] * 10), "column x: expected floating point numbers, found the type string"),
    (lambda f: change_column(f, "x", np.arange(10)), "column x: expected floating point numbers, found the type int64"),
    (lambda f: change_column(f, "laser_number", np.full(10, 64, np.uint8)), r"expected 0\.\.63, found 64"),
    (lambda f: change_column(f, "laser_number", np.full(10, -1, np.int16)), r"expected 0\.\.63, found -1\.\.-1"),
    (lambda f: change_column(f, "laser_number", np.full(10, 0.5)), "laser_number: expected whole numbers"),
    (lambda f: change_column(f, "y", pa.array([None] + [1.0] * 9, pa.float32())), "column y: .*1 rows without a value"),
    (lambda f: change_column(f, "y", np.array([np.nan] + [1] * 9, np.float16)), "finite numbers, found 1 points"),
    (lambda f: change_column(f, "z", np.array([-np.inf] * 2 + [1] * 8, np.float16)), "finite numbers, found 2 points"),
    (lambda f: change_column(f, "x", np.array([np.inf] + [1] * 9, np.float64)), "finite numbers, found 1 points"),
    (lambda f: change_column(f, "x", np.array([1e300] + [1] * 9, np.float64)), "finite numbers, found 1 points"),
    (lambda f: write_table(f, {n: np.zeros(0, np.float16) for n in ("x", "y", "z", "intensity", "laser_number")}),
     "at least one point, found none"),
    (lambda f: f.write_bytes(f.read_bytes()[:-20]), "damaged"),
    (lambda f: f.write_bytes(f.read_bytes()[:100]), "damaged"),
    (lambda f: f.write_bytes(b""), "damaged"),
    (lambda f: f.unlink(), "no such file"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), BAD_SWEEPS)
def test_a_bad_sweep_is_a_data_error_when_it_is_read(log, damage, message):
    drive = argoverse2.open(log)[LOG]
    damage(sweep_file(log, 1))
    assert len(drive[0]) == 10
    with pytest.raises(DataError, match=message) as caught:
        drive[1]
    assert caught.value.path == sweep_file_name(drive, 1)


def sweep_file_name(drive: Drive, index: int) -> Path:
    return Path(drive.source) / "sensors" / "lidar" / f"{drive.timestamps_ns[index]}.feather"


def _without_pose(log: Path) -> None:
    table = pa.feather.read_table(str(log / POSES), memory_map=False)
    write_table(log / POSES, table.slice(0, table.num_rows - 1).to_pydict())


def _two_poses(log: Path) -> None:
    columns = pa.feather.read_table(str(log / POSES), memory_map=False).to_pydict()
    write_table(log / POSES, {name: values + values[-1:] for name, values in columns.items()})


def _sensors(log: Path, *names: str) -> None:
    write_table(
        log / CALIBRATION, {"sensor_name": pa.array(names, pa.string()), **pose_columns(se3.identity((len(names),)))}
    )


BAD_LOGS = [
    (_without_pose, rf"timestamp_ns: expected a pose at {FIRST_NS + 200_000_000}.*1 of 3 sweeps"),
    (_two_poses, "timestamps, row 6: expected a time after"),
    (lambda log: (log / POSES).unlink(), "city_SE3_egovehicle.feather: file: .*no such file"),
    (lambda log: (log / CALIBRATION).unlink(), "egovehicle_SE3_sensor.feather: file: .*no such file"),
    (lambda log: shutil.rmtree(log / "sensors"), "a folder that can be read"),
    (lambda log: [f.unlink() for f in (log / "sensors" / "lidar").iterdir()], "files such as"),
    (lambda log: (log / "sensors" / "lidar" / "first.feather").write_bytes(b""), "frame number"),
    (lambda log: _sensors(log, "up_lidar"), "one row down_lidar, found 0 among up_lidar"),
    (lambda log: _sensors(log, "down_lidar", "up_lidar", "up_lidar"), "one row up_lidar, found 2"),
    (lambda log: _sensors(log), "one row up_lidar, found 0 among none"),
    (lambda log: change_column(log / POSES, "qw", None), r"\(no qw\)"),
    (lambda log: change_column(log / POSES, "qw", np.zeros(6)), "expected a unit quaternion"),
    (lambda log: change_column(log / POSES, "tx_m", np.full(6, np.nan)), "rigid"),
    (lambda log: change_column(log / POSES, "tx_m", ["a"] * 6), "column tx_m: expected floating point numbers"),
    (lambda log: change_column(log / POSES, "timestamp_ns", [str(i) for i in range(6)]), "whole numbers"),
    (lambda log: change_column(log / CALIBRATION, "qz", np.full(3, np.inf)), "expected a unit quaternion"),
    (lambda log: change_column(log / CALIBRATION, "sensor_name", [1, 2, 3]), "expected text, found the type int64"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), BAD_LOGS)
def test_a_bad_log_is_a_data_error_when_it_is_opened(log, damage, message):
    damage(log)
    with pytest.raises(DataError, match=message) as caught:
        argoverse2.open(log.parent)[LOG]
    assert caught.value.remedy


@pytest.fixture(scope="module")
def tiny_log(tmp_path_factory) -> Path:
    return write_argoverse2(tmp_path_factory.mktemp("av2") / "val" / LOG, tiny_drive(2))


def _read_mutated(log: Path, into: Path, file: Path, content: bytes) -> None:
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(log, into)
    (into / file.relative_to(log)).write_bytes(content)
    with contextlib.suppress(Copilot4dError):
        for sweep in argoverse2.open(into)[into.name]:
            assert np.isfinite(sweep.points).all()
            assert se3.rigidity_error(sweep.world_from_lidar) < 1e-6


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_happens_to_a_files_bytes_only_our_errors_come_out(tiny_log, tmp_path, data):
    file = data.draw(st.sampled_from([tiny_log / POSES, tiny_log / CALIBRATION, sweep_file(tiny_log)]))
    content = file.read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    put = data.draw(st.binary(max_size=4))
    cut = data.draw(st.one_of(st.just(len(put)), st.just(len(content)), st.integers(0, 64)))
    _read_mutated(tiny_log, tmp_path / LOG, file, content[:at] + put + content[at + cut :])


VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=3), st.booleans(), st.binary(max_size=3)
)
TYPES = [
    pa.float16(), pa.float32(), pa.float64(), pa.uint8(), pa.int64(), pa.uint64(), pa.string(), pa.bool_(),
    pa.binary(), pa.null(), pa.timestamp("ns"), pa.list_(pa.float32()), pa.dictionary(pa.int8(), pa.string()),
]  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_in_a_column_only_our_errors_come_out(tiny_log, tmp_path, data):
    file = data.draw(st.sampled_from([tiny_log / POSES, tiny_log / CALIBRATION, sweep_file(tiny_log)]))
    table = pa.feather.read_table(str(file), memory_map=False)
    columns = {name: table.column(name) for name in table.column_names}
    name = data.draw(st.sampled_from(table.column_names))
    kind = data.draw(st.sampled_from(TYPES))
    column = pa.nulls(table.num_rows, kind)
    value = data.draw(VALUES)
    with contextlib.suppress(pa.ArrowException, ValueError, TypeError, OverflowError):
        column = pa.array([value] * table.num_rows, kind)
    action = data.draw(st.sampled_from(["replace", "drop", "rename"]))
    if action == "replace":
        columns[name] = column
    else:
        columns.pop(name)
    if action == "rename":
        columns[name.upper()] = column
    changed = tmp_path / "changed.feather"
    write_table(changed, columns)
    _read_mutated(tiny_log, tmp_path / LOG, file, changed.read_bytes())


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

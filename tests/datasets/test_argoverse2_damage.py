"""Argoverse 2 logs that are damaged: only our errors come out, and they say where."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copilot4d.datasets import argoverse2
from copilot4d.errors import Copilot4dError, DataError
from copilot4d.geometry import Drive, se3
from tests.datasets.argoverse2_logs import CALIBRATION, LOG, change_column, sweep_file, tiny_drive
from tests.support.argoverse2_tree import (
    FIRST_NS,
    pose_columns,
    write_argoverse2,
    write_table,
)  # fmt: skip

POSES = "city_SE3_egovehicle.feather"


@pytest.fixture
def log(tmp_path) -> Path:
    return write_argoverse2(tmp_path / "val" / LOG, tiny_drive())


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

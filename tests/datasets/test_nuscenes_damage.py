"""nuScenes tables and sweeps that are damaged: the error names table, record and field."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copilot4d.datasets import json_records, nuscenes
from copilot4d.errors import Copilot4dError, DataError
from copilot4d.geometry import se3
from tests.datasets.nuscenes_trees import edit, tiny_drive
from tests.support.nuscenes_tree import FIRST_US, token, write_nuscenes


def _drop(field):
    return lambda records: records[-1].pop(field)


def _set(field, value):
    return lambda records: records[-1].__setitem__(field, value)


# The last record of sample_data is a camera's, the one before is the lidar's; see write_nuscenes.
def _lidar(change):
    return lambda records: change([r for r in records if r["calibrated_sensor_token"] == token("c-lidar")])


def _twice(records):
    records.append(dict(records[-1]))


BAD_TABLES = [
    ("sample_data", _lidar(_set("ego_pose_token", "gone")), r"expected a token of ego_pose\.json.*gone"),
    ("sample_data", _lidar(_set("sample_token", "gone")), r"sample_token: expected a token of sample\.json.*gone"),
    ("sample_data", _set("calibrated_sensor_token", "gone"), r"expected a token of calibrated_sensor\.json.*gone"),
    ("sample_data", _lidar(_drop("filename")), r"filename: expected text, found no such field"),
    ("sample_data", _lidar(_set("filename", "../../etc/passwd")), "filename: expected a path below"),
    ("sample_data", _lidar(_set("filename", "/etc/passwd")), "filename: expected a path below"),
    ("sample_data", _lidar(_set("timestamp", "1531884156948944")), "timestamp: expected a whole number"),
    ("sample_data", _lidar(_set("timestamp", True)), "timestamp: expected a whole number, found True"),
    ("sample_data", _lidar(_set("is_key_frame", 1)), "is_key_frame: expected true or false, found 1"),
    ("sample_data", lambda r: r.append(next(x for x in r if "pcd.bin" in x["filename"])), "token: expected each token"),
    ("sample", _set("scene_token", "gone"), r"scene_token: expected a token of scene\.json"),
    ("sample", _set("prev", "gone"), r"prev: expected a token of sample\.json"),
    ("sample", _twice, "each token once"),
    ("sample", lambda r: r.pop(0), "expected a token of sample"),
    ("scene", _set("first_sample_token", "gone"), r"first_sample_token: expected a token of sample\.json"),
    ("scene", _set("nbr_samples", 3), r"scene-0061: expected 3 LIDAR_TOP keyframes.*found 4"),
    ("scene", _drop("name"), "name: expected text"),
    ("scene", lambda r: r.clear(), "at least one scene"),
    ("sensor", _set("channel", "LIDAR_BOTTOM"), "a calibration of LIDAR_TOP, found none"),
    ("sensor", _drop("token"), "a record without token"),
    ("calibrated_sensor", _set("sensor_token", "gone"), r"sensor_token: expected a token of sensor\.json"),
    ("calibrated_sensor", _set("rotation", [1, 1, 0, 0]), r"rotation: expected a unit quaternion.*length 1\.41"),
    ("ego_pose", _set("translation", [1, 2]), "translation: expected 3 finite numbers"),
    ("ego_pose", _set("translation", [1, 2, float("nan")]), "translation: expected 3 finite numbers"),
    ("ego_pose", _set("translation", [1, 2, 10**400]), "translation: expected 3 finite numbers"),
    ("ego_pose", _set("translation", [1e12, 0, 0]), "translation: expected metres"),
    ("ego_pose", _set("rotation", ["1", 0, 0, 0]), "rotation: expected 4 finite numbers"),
    ("ego_pose", _twice, "each token once"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "change", "message"), BAD_TABLES)
def test_a_damaged_table_is_named_with_record_and_field(tmp_path, table, change, message):
    root = write_nuscenes(tmp_path, {"scene-0061": tiny_drive()})
    edit(root, table, change)
    with pytest.raises(DataError, match=message) as caught:
        nuscenes.open(root)["scene-0061"]
    assert caught.value.path.suffix == ".json"
    assert caught.value.remedy


def test_sweeps_of_one_time_are_refused(tmp_path):
    root = write_nuscenes(tmp_path, {"scene-0061": tiny_drive()})

    def same_time(records):
        for record in records:
            record["timestamp"] = FIRST_US

    edit(root, "sample_data", same_time)
    with pytest.raises(DataError, match="timestamp: expected a time of its own"):
        nuscenes.open(root)["scene-0061"]


@pytest.mark.parametrize("name", ["scene", "sample", "sample_data", "ego_pose", "calibrated_sensor", "sensor"])
def test_a_missing_table_is_named(tmp_path, name):
    root = write_nuscenes(tmp_path, {"scene-0061": tiny_drive()})
    (root / "v1.0-mini" / f"{name}.json").unlink()
    assert nuscenes.recognise(root) == root
    with pytest.raises(DataError, match=rf"{name}\.json: table: .*no such file"):
        nuscenes.open(root)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: f.unlink(), "no such file"),
        (lambda f: f.write_bytes(b""), "point"),
        (lambda f: f.write_bytes(f.read_bytes()[:-3]), "20 bytes"),
        (lambda f: np.full((3, 5), np.nan, dtype="<f4").tofile(f), "finite|nan|NaN"),
        (lambda f: np.full((3, 5), np.inf, dtype="<f4").tofile(f), "finite|inf"),
    ],
)
def test_bad_sweep_files_are_data_errors_when_they_are_read(tmp_path, damage, message):
    root = write_nuscenes(tmp_path, {"scene-0061": tiny_drive()})
    drive = nuscenes.open(root)["scene-0061"]
    damage(sorted((root / "samples" / "LIDAR_TOP").iterdir())[1])
    assert len(drive[0]) == 7
    with pytest.raises(DataError, match=message):
        drive[1]


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.just("\ud800"), st.just("a\0b"),
    st.lists(st.floats(), max_size=4), st.lists(st.integers(), min_size=3, max_size=4),
    st.dictionaries(st.text(), st.none()),
)  # fmt: skip


@pytest.fixture(scope="module")
def tiny_tree(tmp_path_factory) -> Path:
    return write_nuscenes(tmp_path_factory.mktemp("tiny"), {"scene-0061": tiny_drive(3), "scene-0103": tiny_drive(2)})


def read_everything(root: Path) -> None:
    for drive in nuscenes.open(root, sweeps="all").values():
        for sweep in drive:
            assert np.isfinite(sweep.points).all()
            assert se3.rigidity_error(sweep.world_from_lidar) < 1e-6


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_changed_in_a_table_only_our_errors_come_out(tiny_tree, tmp_path, data):
    name = data.draw(st.sampled_from(["scene", "sample", "sample_data", "ego_pose", "calibrated_sensor", "sensor"]))
    original = tiny_tree / "v1.0-mini" / f"{name}.json"
    records = json.loads(original.read_text())
    row = data.draw(st.integers(0, len(records) - 1))
    field = data.draw(st.sampled_from(sorted(records[row])))
    match data.draw(st.sampled_from(["junk", "drop", "remove", "twice", "no record", "cross"])):
        case "junk":
            records[row][field] = data.draw(JUNK)
        case "drop":
            del records[row][field]
        case "remove":
            del records[row]
        case "twice":
            records.append(records[row])
        case "no record":
            records[row] = data.draw(JUNK)
        case "cross":
            records[row][field] = records[data.draw(st.integers(0, len(records) - 1))][field]
    _with_table(tiny_tree, tmp_path, name, json.dumps(records).encode())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_happens_to_a_tables_bytes_only_our_errors_come_out(tiny_tree, tmp_path, data):
    name = data.draw(st.sampled_from(["scene", "sample", "sample_data", "ego_pose", "calibrated_sensor", "sensor"]))
    content = (tiny_tree / "v1.0-mini" / f"{name}.json").read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    put = data.draw(st.one_of(st.binary(max_size=3), st.sampled_from([b"[", b"]", b"{", b'"', b",", b"1" * 5000])))
    cut = data.draw(st.one_of(st.just(1), st.just(len(content)), st.integers(0, 40)))
    _with_table(tiny_tree, tmp_path, name, content[:at] + put + content[at + cut :])


def _with_table(tree: Path, tmp_path: Path, name: str, content: bytes) -> None:
    root = tmp_path / "mutated"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(tree, root)
    (root / "v1.0-mini" / f"{name}.json").write_bytes(content)
    with contextlib.suppress(Copilot4dError):
        read_everything(root)


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 22])
def test_records_are_the_same_however_the_file_is_cut_into_chunks(tmp_path, monkeypatch, chunk):
    records = [{"token": f"t{i}", "text": 'a "}],[{" b\\', "list": [1.5, -2, 3e5], "empty": {}} for i in range(9)]
    path = tmp_path / "table.json"
    monkeypatch.setattr(json_records, "_CHUNK", chunk)
    for layout in ({"indent": 0}, {"indent": 2}, {"separators": (",", ":")}):
        path.write_text(json.dumps(records, **layout))
        assert list(json_records.read_records(path)) == records
    path.write_text(json.dumps(records)[:-9])
    with pytest.raises(DataError, match="in the middle of a record"):
        list(json_records.read_records(path))


def test_a_damaged_record_in_a_long_table_is_found_without_reading_on(tmp_path, monkeypatch):
    monkeypatch.setattr(json_records, "_CHUNK", 1 << 10)
    monkeypatch.setattr(json_records, "_LONGEST_RECORD", 1 << 12)
    good = json.dumps([{"token": f"t{i}"} for i in range(3000)])
    (tmp_path / "table.json").write_text(good[:500] + "\x01" + good[501:])
    with pytest.raises(DataError, match="expected a whole JSON list of records"):
        list(json_records.read_records(tmp_path / "table.json"))

"""The index of a data set: the same drives, from one file, as long as the data set's own files stay as they are."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from copilot4d.datasets import argoverse2, dataset, nuscenes, open_dataset
from copilot4d.datasets.drive_index import DriveIndex
from copilot4d.datasets.drive_list import DriveList, SweepItems
from copilot4d.errors import Copilot4dWarning, DataError, UsageError
from copilot4d.geometry import Drive
from tests.datasets import argoverse2_logs, nuscenes_trees
from tests.datasets.trees import kitti_tree
from tests.support.argoverse2_tree import write_argoverse2
from tests.support.nuscenes_tree import write_nuscenes


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("COPILOT4D_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(dataset, "FEW_DRIVES", 1)
    return tmp_path / "cache" / "index"


@pytest.fixture
def logs(tmp_path) -> Path:
    """Six logs in two splits; ids whose order as text is not their order as numbers."""
    root = tmp_path / "av2"
    for i, name in enumerate(("10a", "9b", "100c", "ff", "0d", "2e")):
        write_argoverse2(root / ("val" if i < 4 else "train") / name, argoverse2_logs.tiny_drive(2 + i % 2))
    return settle(root)


def settle(root: Path) -> Path:
    """Make a tree look as if it had been written an hour ago."""
    for path in [root, *root.rglob("*")]:
        found = path.stat()
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns - 3600 * 10**9))
    return root


def assert_same(one: Drive, other: Drive) -> None:
    assert (one.name, one.split, one.format, one.source) == (other.name, other.split, other.format, other.source)
    np.testing.assert_array_equal(one.timestamps_ns, other.timestamps_ns)
    np.testing.assert_array_equal(one.world_from_lidar, other.world_from_lidar)
    np.testing.assert_array_equal(one.ego_box, other.ego_box)
    assert list(one.read.paths) == list(other.read.paths)
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine.points, theirs.points)
        np.testing.assert_array_equal(mine.intensity, theirs.intensity)
        if theirs.origins is not None:
            np.testing.assert_array_equal(mine.origins, theirs.origins)


def count_calls(monkeypatch, module, function: str) -> list[Path]:
    """The first arguments of every call of a module's function from now on."""
    calls, real = [], getattr(module, function)

    def counted(path, *args, **options):
        calls.append(path)
        return real(path, *args, **options)

    monkeypatch.setattr(module, function, counted)
    return calls


@pytest.mark.parametrize("kind", ["argoverse2", "kitti_odometry", "nuscenes", "nuscenes@20hz"])
def test_drives_from_the_index_are_those_from_the_files(tmp_path, logs, cache, kind):
    if kind == "argoverse2":
        root = logs
    elif kind == "kitti_odometry":
        root = tmp_path / "kitti"
        for name in ("08", "07", "00"):
            kitti_tree(root, nuscenes_trees.tiny_drive(3), name)
        settle(root)
    else:
        drive = nuscenes_trees.tiny_drive(6)
        root = settle(write_nuscenes(tmp_path / "nu", {"scene-0061": drive, "scene-0103": drive}, keyframe_every=2))
    path = f"{root}@20hz" if "@" in kind else str(root)
    plain = {name: open_from_files(path)[name] for name in open_dataset(path)}
    open_dataset(path).prepare()
    assert len(list(cache.glob("*.index"))) == 1
    again = open_dataset(path)
    for name, drive in plain.items():
        assert_same(again[name], drive)
        assert not again[name].timestamps_ns.flags.owndata  # it is a view of the index
    assert DriveList([again]).lengths.tolist() == [len(drive) for drive in plain.values()]


def open_from_files(path: str) -> dataset.Dataset:
    opened = open_dataset(path)
    opened.open_drive._open = opened.open_drive.drives.open_drive
    return opened


def test_a_second_opening_reads_no_table(logs, monkeypatch):
    poses = count_calls(monkeypatch, argoverse2, "read_ego_poses")
    open_dataset(logs).prepare()
    assert len(poses) == 6
    again = open_dataset(logs)
    again.prepare()
    assert sum(len(drive) for drive in again.values()) == 15
    assert len(poses) == 6


def test_nuscenes_tables_are_read_by_the_first_process_alone(tmp_path, monkeypatch):
    drive = nuscenes_trees.tiny_drive(6)
    root = settle(write_nuscenes(tmp_path / "nu", {"scene-0061": drive, "scene-0103": drive}))
    tables = count_calls(monkeypatch, nuscenes, "read_sweeps")
    first = open_dataset(root)
    assert len(first["scene-0061"]) == len(first["scene-0103"]) == 6
    assert len(open_dataset(root)["scene-0103"]) == 6
    assert len(tables) == 1
    assert len(open_dataset(f"{root}@20hz")["scene-0103"]) == 6
    assert len(tables) == 2  # other sweeps, other index


def test_only_what_changed_is_read_again(logs, monkeypatch):
    open_dataset(logs).prepare()
    poses = count_calls(monkeypatch, argoverse2, "read_ego_poses")
    sweeps = sorted((logs / "val" / "ff" / "sensors" / "lidar").iterdir())
    sweeps[0].unlink()
    shutil.rmtree(logs / "val" / "9b")
    write_argoverse2(logs / "val" / "new", argoverse2_logs.tiny_drive(4))
    changed = open_dataset(logs)
    assert changed.names == ("0d", "2e", "100c", "10a", "ff", "new")
    assert len(changed["ff"]) == len(sweeps) - 1  # also before the index is made again
    changed = open_dataset(logs)
    changed.prepare()
    assert [folder.parent.name for folder in poses] == ["ff", "ff", "new"]
    assert DriveList([changed]).lengths.tolist() == [2, 3, 2, 2, 2, 4]


def test_files_that_may_still_change_are_not_trusted(logs, monkeypatch):
    """Within the clock's resolution a second change leaves no trace: what was just written is read every time."""
    log = logs / "val" / "ff"
    os.utime(log / "city_SE3_egovehicle.feather")
    open_dataset(logs).prepare()
    poses = count_calls(monkeypatch, argoverse2, "read_ego_poses")
    again = open_dataset(logs)
    assert len(again["ff"]) == 3
    assert len(again["10a"]) == 2
    assert [folder.parent.name for folder in poses] == ["ff"]


@pytest.mark.parametrize("damage", ["cut", "empty", "directory", "record", "foreign"])
def test_a_damaged_index_is_made_again(logs, cache, damage):
    whole = open_dataset(logs)
    whole.prepare()
    (path,) = cache.glob("*.index")
    data = bytearray(path.read_bytes())
    if damage == "directory":
        data[-100] ^= 1
    elif damage == "record":
        data[60] ^= 1
    path.write_bytes(
        {"cut": data[: len(data) // 2], "empty": b"", "foreign": b"something else" * 100}.get(damage, data)
    )
    again = open_dataset(logs)
    again.prepare()
    for name in again.names:
        assert_same(again[name], open_from_files(str(logs))[name])


def test_a_bad_drive_is_an_error_of_its_own_and_no_half_index_stays(logs, cache):
    (logs / "val" / "10a" / "city_SE3_egovehicle.feather").write_bytes(b"nothing")
    settle(logs)
    with pytest.raises(DataError, match="10a"):
        open_dataset(logs).prepare()
    assert not list(cache.glob("*.index"))
    assert not list(cache.glob(".*index-*"))
    open_dataset(logs).select(("ff", "9b")).prepare()
    assert len(list(cache.glob("*.index"))) == 1
    assert len(open_dataset(logs)["ff"]) == 3


def test_a_folder_that_cannot_be_written_warns_and_works(logs, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COPILOT4D_CACHE", str(tmp_path / "file"))
    opened = open_dataset(logs)
    with pytest.warns(Copilot4dWarning, match="COPILOT4D_CACHE"):
        opened.prepare()
    assert DriveList([opened]).lengths.tolist() == [2, 3, 2, 2, 3, 3]


def test_processes_that_start_together_make_one_whole_index(logs, cache):
    program = (
        "import sys\nfrom copilot4d.datasets import open_dataset, dataset\ndataset.FEW_DRIVES = 1\n"
        "opened = open_dataset(sys.argv[1])\nopened.prepare()\nprint(sum(len(d) for d in opened.values()))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program, str(logs)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in started] == ["15"] * 3
    (path,) = cache.glob("*.index")
    assert len(DriveIndex(path).names) == 6
    assert not list(cache.glob(".*index-*"))


def test_a_data_set_travels_as_its_path(logs):
    opened = open_dataset(logs)
    opened.prepare()
    val = opened.split("val")
    for part in (opened, val, val.select(["ff", "10a"])):
        list(part.values())  # opened drives stay behind
        sent = pickle.dumps(part)
        assert len(sent) < 1000
        copy = pickle.loads(sent)
        assert copy.names == part.names
        assert copy.splits == part.splits
        assert_same(copy["ff"], part["ff"])
    drives = pickle.loads(pickle.dumps(DriveList([val])))
    assert [drive.name for drive in drives] == ["100c", "10a", "9b", "ff"]


def test_only_a_few_opened_drives_stay_in_memory(logs, monkeypatch):
    monkeypatch.setattr(dataset, "KEPT_DRIVES", 2)
    opened = open_dataset(logs)
    first = opened["ff"]
    assert opened["ff"] is first
    for name in opened:
        assert opened[name].name == name
    assert len(opened.open_drive._kept) == 2


def test_a_drive_list_is_the_drives_one_by_one(logs):
    opened = open_dataset(logs)
    drives = DriveList([opened.split("val"), opened.split("train")])
    names = ["100c", "10a", "9b", "ff", "0d", "2e"]
    assert drives.names == names == [drive.name for drive in drives] == [drives[i].name for i in range(6)]
    assert drives[-1].name == "2e"
    assert [drive.name for drive in drives[1:5:2]] == ["10a", "ff"]
    with pytest.raises(IndexError):
        drives[6]
    assert not DriveList([])


def test_sweeps_by_number_are_those_of_a_list():
    lengths = [2, 0, 3, 1]
    items = SweepItems(lengths)
    assert list(items) == [(d, i) for d, n in enumerate(lengths) for i in range(n)]
    assert items[-1] == (3, 0)
    assert not SweepItems([])
    with pytest.raises(IndexError):
        items[6]


def test_all_sweeps_by_name_are_for_nuscenes_alone(logs):
    with pytest.raises(UsageError, match=r"@20hz is for nuScenes, and .* is argoverse2"):
        open_dataset(f"{logs}@20hz")


def test_argoverse_logs_come_in_the_order_of_their_ids_as_text(logs):
    assert open_dataset(logs).splits == {"train": ("0d", "2e"), "val": ("100c", "10a", "9b", "ff")}


def test_an_index_names_no_class_and_its_words_are_json(logs, cache):
    open_dataset(logs).prepare()
    (path,) = cache.glob("*.index")
    data = path.read_bytes()
    words = json.loads(data[data.rindex(b'{"names"') : data.rindex(b"}") + 1])
    assert sorted(words) == ["lengths", "names", "sources", "splits"]

from __future__ import annotations

import subprocess
import sys

import pytest

from copilot4d import open_dataset
from copilot4d.datasets import Dataset, write_folder
from copilot4d.datasets import open as open_module
from copilot4d.errors import Copilot4dError, DataError, UsageError
from tests.datasets.trees import kitti_raw_tree, kitti_tree, small_drive
from tests.support.real_data import real_data

# `copilot4d.datasets.open` is a module; its tables are what is tested here
FORMATS, NAMED = open_module.FORMATS, open_module.NAMED


def test_the_table_names_every_format():
    assert list(FORMATS) == ["kitti_odometry", "kitti_raw", "kitti_360", "nuscenes", "argoverse2", "waymo", "once",
                             "pandaset", "ros_bag", "folder"]  # fmt: skip
    assert all(name == row.name for name, row in FORMATS.items())


def test_each_format_is_recognised_and_by_no_other(tmp_path):
    roots = {
        "kitti_odometry": kitti_tree(tmp_path / "k", small_drive()),
        "kitti_raw": kitti_raw_tree(tmp_path / "r"),
        "folder": write_folder(small_drive(), tmp_path / "f"),
    }
    for format, root in roots.items():
        assert open_dataset(root).format == format
        others = [row.name for row in FORMATS.values() if row.name != format and row.recognise(root) is not None]
        assert not others


def test_nothing_there(tmp_path):
    (tmp_path / "kitti").mkdir()
    with pytest.raises(DataError, match=r"found nothing there.*did you mean .*kitti"):
        open_dataset(tmp_path / "kiti" / "sequences")
    with pytest.raises(DataError, match=r"found nothing there.*has no unlike"):
        open_dataset(tmp_path / "unlike")
    with pytest.raises(DataError, match="found an empty folder"):
        open_dataset(tmp_path / "kitti")


def test_nothing_we_know(tmp_path):
    (tmp_path / "velodyn_points").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataError) as caught:
        open_dataset(tmp_path)
    message = str(caught.value)
    for part in (
        "sequences/00/velodyne",
        "v1.0-trainval",
        "copilot4d.yaml",
        "notes.txt, velodyn_points/",
        "nearest guess",
    ):
        assert part in message


def test_several_data_sets_are_listed(tmp_path):
    kitti_tree(tmp_path / "k", small_drive())
    kitti_raw_tree(tmp_path / "r")
    with pytest.raises(UsageError, match=r"several data sets: .*k \(kitti_odometry\); .*r \(kitti_raw\)"):
        open_dataset(tmp_path)
    assert open_dataset(tmp_path, format="kitti_raw").format == "kitti_raw"


def test_unknown_format(tmp_path):
    with pytest.raises(UsageError, match=r"unknown data set format 'kitti_odo' \(did you mean kitti_odometry"):
        open_dataset(tmp_path, format="kitti_odo")


def test_a_format_that_does_not_fit(tmp_path):
    kitti_tree(tmp_path, small_drive())
    with pytest.raises(DataError, match="kitti_raw"):
        open_dataset(tmp_path, format="kitti_raw")


def test_named_data_sets(tmp_path, monkeypatch):
    made = Dataset(format="memory", root=tmp_path, names=("a",), open_drive=lambda name: small_drive(name=name))
    asked = []
    monkeypatch.setitem(NAMED, "street-v1", lambda name: asked.append(name) or made)
    assert open_dataset("street-v1/val")["a"].name == "a"
    assert asked == ["street-v1/val"]


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    kitti_tree(tmp_path / "k", small_drive())
    assert open_dataset("~/k").names == ("08",)


def test_relative_paths(tmp_path, monkeypatch):
    kitti_tree(tmp_path, small_drive())
    monkeypatch.chdir(tmp_path / "sequences" / "08")
    assert open_dataset(".").names == ("08",)
    assert open_dataset("..").names == ("08",)


def test_opening_kitti_does_not_import_pyarrow(tmp_path):
    kitti_tree(tmp_path, small_drive())
    code = f"import sys, copilot4d; copilot4d.open_dataset({str(tmp_path)!r}); sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("kitti_odometry", "kitti_odometry"),
        ("kitti_raw", "kitti_raw"),
        ("av2", "argoverse2"),
        ("nuscenes_scene0006_rebuilt", "nuscenes"),
    ],
)
def test_real_fixtures_are_recognised(name, format):
    dataset = open_dataset(real_data("fixtures", name))
    assert dataset.format == format
    assert len(dataset[dataset.names[0]][0]) > 20_000


def test_what_may_not_be_read_is_a_data_error(tmp_path, monkeypatch):
    kitti_tree(tmp_path, small_drive())
    dataset = open_dataset(tmp_path)

    def forbidden(*_args, **_options):
        raise PermissionError(13, "Permission denied", "secret")

    monkeypatch.setattr("copilot4d.datasets.kitti_odometry.numbered_sweeps", forbidden)
    with pytest.raises(DataError, match=r"found permission denied \(secret\)"):
        dataset["08"]
    monkeypatch.setattr("copilot4d.datasets.kitti_odometry.recognise", forbidden)
    with pytest.raises(DataError, match=r"found permission denied \(secret\)"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "~nobody_has_this_name/x"])
def test_odd_paths(path):
    with pytest.raises(Copilot4dError):
        open_dataset(path)

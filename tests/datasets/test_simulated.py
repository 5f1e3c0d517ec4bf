"""Simulated drives as a data set: by name, from the cache, and as folders in other formats."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.datasets import simulated
from copilot4d.datasets.ego_box_files import write_ego_box
from copilot4d.datasets.simulated_files import read_simulated, write_simulated
from copilot4d.errors import Copilot4dWarning, DataError, UsageError
from copilot4d.simulator import MOVING_BASE, simulate_drive
from copilot4d.simulator.roads import StreetOptions

SMALL = StreetOptions(columns=2, rows=2, cars=8, cyclists=1, pedestrians=6)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COPILOT4D_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A drive on disk, to be copied."""
    drive = simulate_drive(seed=1, seconds=0.3, options=SMALL, name="x")
    return write_simulated(drive, tmp_path_factory.mktemp("written"))


@pytest.fixture
def quick(monkeypatch):
    """Half a second of a small street instead of the benchmark's twelve: what is tested here is the data set."""
    made = []

    def simulate(name, sensor):
        made.append(name)
        return simulate_drive(seed=len(name), sensor=sensor, seconds=0.5, options=SMALL, name=name)

    monkeypatch.setattr(simulated, "_simulate", simulate)
    return made


def test_the_benchmark_opens_by_name_and_simulates_each_drive_once(cache, quick):
    dataset = open_dataset("street-v1/val")
    assert dataset.format == "simulated"
    assert len(dataset) == 20
    assert quick == []
    drive = dataset["val_003"]
    assert (drive.name, drive.split, drive.format, len(drive)) == ("val_003", "val", "simulated", 5)
    again = open_dataset("street-v1/val")["val_003"]
    assert quick == ["val_003"]  # the second time it came from the disk
    direct = simulate_drive(seed=len("val_003"), seconds=0.5, options=SMALL)
    for i in range(5):
        np.testing.assert_array_equal(again[i].points, direct[i].points)
        np.testing.assert_array_equal(again[i].intensity, direct[i].intensity)
        np.testing.assert_array_equal(again[i].world_from_lidar, direct[i].world_from_lidar)
        truth, expected = again.truth(i), direct.truth(i)
        np.testing.assert_array_equal(truth.object_ids, expected.object_ids)
        np.testing.assert_array_equal(truth.moving, expected.moving)
        np.testing.assert_array_equal(truth.agent_poses, expected.agent_poses)
        assert truth.agent_kinds == expected.agent_kinds
    np.testing.assert_array_equal(again.ego_box, direct.ego_box)
    assert not list(cache.rglob(".partial*"))


def test_names_say_which_part_and_which_sensor(cache, quick):
    assert len(open_dataset("street-v1-whatif")) == 240
    assert open_dataset("street-v1-whatif").names[:4] == tuple(
        f"whatif_00_{p}" for p in ("keep", "brake", "swerve", "turn")
    )
    assert len(open_dataset("street-v1/train:7")) == 7
    whole = open_dataset("street-v1")
    assert len(whole.split("test")) == 20
    assert len(whole.split("val")) == 20
    assert len(whole.split("train")) == 1000
    two = open_dataset("street-v1/test@vls_pair")["test_001"]
    assert two[0].origins is not None
    assert two[1].origins.shape == two[1].points.shape
    assert "vls_pair" in two.source


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("street-v1/dev", "dev.*train, val, test"),
        ("street-v1/val:5", "only street-v1/train"),
        ("street-v1/val@hdl65", "hdl65"),
        ("street-v1/val/extra/part", "no simulated data set"),
        ("street-v1/train:0", "no drives"),
        ("street-v1-whatif/val", "60 moments"),
    ],
)
def test_names_that_are_not_there_are_refused(cache, name, message):
    with pytest.raises(UsageError, match=message):
        open_dataset(name)


def test_an_unwritable_cache_says_so(tmp_path, monkeypatch, quick):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("COPILOT4D_CACHE", str(blocked))
    with pytest.raises(UsageError, match="COPILOT4D_CACHE"):
        open_dataset("street-v1/val")["val_000"]


def test_a_damaged_drive_says_how_to_mend_it(tmp_path):
    folder = write_simulated(simulate_drive(seed=1, seconds=0.3, options=SMALL, name="x"), tmp_path)
    drive = read_simulated(folder)
    next((folder / "sweeps").iterdir()).unlink()
    with pytest.raises(DataError, match="simulate the drive again"):
        list(drive)
    whole = (folder / "truth.npz").read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 0xFF
    renamed = whole.replace(b"follower.npy", b"fallower.npy")
    for damaged in (b"nonsense", b"", whole[: len(whole) // 2], bytes(flipped), renamed):
        (folder / "truth.npz").write_bytes(damaged)
        with pytest.raises(DataError, match="simulate the drive again"):
            read_simulated(folder)


@pytest.mark.parametrize("size", [16 * 100, 16 * 100 + 5, 0])
def test_a_shortened_sweep_is_noticed_also_where_it_ends_between_two_points(tmp_path, size):
    folder = write_simulated(simulate_drive(seed=1, seconds=0.3, options=SMALL, name="x"), tmp_path)
    drive = read_simulated(folder)
    os.truncate(sorted((folder / "sweeps").iterdir())[1], size)
    assert len(drive[0].points) == len(drive.truth(0).object_ids)
    with pytest.raises(DataError, match="simulate the drive again") as caught:
        drive[1]
    assert caught.value.path.parent.name == "sweeps"


@pytest.mark.parametrize("where", ["points", "intensity"])
def test_changed_bytes_of_a_sweep_are_noticed(written, tmp_path, where):
    """Zeros in the middle of a file, as a crash leaves them: the file has its size, and its numbers are numbers."""
    folder = shutil.copytree(written, tmp_path / "x")
    path = sorted((folder / "sweeps").iterdir())[1]
    content = bytearray(path.read_bytes())
    at = len(content) // 32 * 16 + (0 if where == "points" else 12)
    content[at : at + 4] = bytes(4)
    path.write_bytes(content)
    drive = read_simulated(folder)
    assert len(drive[0]) > 0
    with pytest.raises(DataError, match=rf"{path.name}: sha256.*simulate the drive again"):
        drive[1]


def test_a_damaged_drive_of_the_cache_is_made_again_with_a_remark(cache, quick):
    drive = open_dataset("street-v1/val")["val_003"]
    whole = [sweep.points.copy() for sweep in drive]
    path = sorted(cache.rglob("*.bin"))[2]
    path.write_bytes(bytes(len(path.read_bytes())))
    with pytest.warns(Copilot4dWarning, match=r"val_003 is damaged .*sha256.*made again"):
        again = list(drive)
    for sweep, points in zip(again, whole, strict=True):
        np.testing.assert_array_equal(sweep.points, points)
    assert quick == ["val_003", "val_003"]
    (path.parent.parent / "truth.npz").write_bytes(b"nonsense")
    with pytest.warns(Copilot4dWarning, match=r"val_003 is damaged .*truth.*made again"):
        assert len(list(open_dataset("street-v1/val")["val_003"])) == 5
    list(open_dataset("street-v1/val")["val_003"])  # and no remark any more
    assert len(quick) == 3
    assert not list(cache.rglob(".partial*"))


def test_a_drive_of_the_cache_that_cannot_be_made_whole_says_so(cache, quick, monkeypatch):
    """A disk that damages what is written to it: no endless making again."""
    drive = open_dataset("street-v1/val")["val_003"]
    path = min(cache.rglob("*.bin"))
    path.write_bytes(b"")
    monkeypatch.setattr(simulated, "write_simulated", lambda drive, root: (root / drive.name).mkdir())
    with pytest.warns(Copilot4dWarning, match="made again"), pytest.raises(DataError, match="a file for time"):
        drive[0]


def test_drives_without_checksums_are_read_as_before(written, tmp_path):
    folder = shutil.copytree(written, tmp_path / "x")
    with np.load(folder / "truth.npz") as file:
        arrays = {name: file[name] for name in file.files if name != "sweep_sha256"}
    np.savez_compressed(folder / "truth.npz", **arrays)
    assert len(list(read_simulated(folder))) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("world_from_lidar", np.eye(4)), ("timestamps_ns", np.arange(3)[::-1]), ("timestamps_ns", np.array(3)),
        ("first_point", np.array([0, 10**9, 5, 7])), ("object_ids", np.zeros((2, 2), int)), ("ego_box", np.zeros(5)),
        ("agent_poses", np.zeros((3, 1))), ("agent_kinds", np.array("car")), ("name", np.array([1, 2])),
        ("moment_frame", np.array("soon")), ("truth_version", np.zeros(3)), ("moving", np.zeros(4)),
        ("world_from_lidar", np.full((3, 4, 4), np.nan)), ("sweep_sha256", np.array(["x"])),
        ("world_from_lidar", np.zeros((3, 4, 4))), ("agent_speeds_m_s", np.array(["fast"])),
    ],
)  # fmt: skip
def test_a_truth_whose_arrays_do_not_fit_is_refused(written, tmp_path, name, value):
    folder = shutil.copytree(written, tmp_path / "x")
    with np.load(folder / "truth.npz") as file:
        arrays = {key: file[key] for key in file.files}
    np.savez_compressed(folder / "truth.npz", **{**arrays, name: value})
    with pytest.raises(DataError, match=rf"truth\.npz.*{name}"):
        read_simulated(folder)


def test_written_drives_open_as_any_other_data_set(tmp_path):
    drive = simulate_drive(seed=1, seconds=0.4, options=SMALL, name="000001")
    write_simulated(drive, tmp_path / "folder")
    write_simulated(drive, tmp_path / "kitti", "kitti")
    for form in ("folder", "kitti"):
        found = open_dataset(tmp_path / form)["000001"]
        assert len(found) == 4
        np.testing.assert_array_equal(found[2].points, drive[2].points)
        np.testing.assert_allclose(found.world_from_lidar, drive.world_from_lidar, atol=1e-6)
    assert (tmp_path / "kitti" / "sequences" / "000001" / "truth.npz").is_file()
    with pytest.raises(UsageError, match="two lidars"):
        write_simulated(simulate_drive(seed=1, sensor="vls_pair", seconds=0.2, options=SMALL), tmp_path / "k", "kitti")


@pytest.mark.parametrize("sensor", ["hdl32", "mini32"])
def test_the_ego_box_of_a_drive_in_kitti_format_holds_all_of_the_own_body(tmp_path, sensor):
    drive = simulate_drive(seed=1, sensor=sensor, seconds=0.2, options=SMALL, name="000001")
    folder = write_simulated(drive, tmp_path, "kitti")
    found = open_dataset(tmp_path)["000001"]
    np.testing.assert_array_equal(found.ego_box, drive.ego_box)
    own = 0
    for i, sweep in enumerate(found):
        body = sweep.points[drive.truth(i).object_ids == MOVING_BASE]
        own += len(body)
        left = {tuple(point) for point in sweep.without_box(found.ego_box).points.tolist()}
        assert not left & {tuple(point) for point in body.tolist()}
    assert own > 0
    write_ego_box(folder, -drive.ego_box)
    with pytest.raises(DataError, match=r"ego_box\.txt.*xmin"):
        open_dataset(tmp_path)["000001"]

from __future__ import annotations

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.datasets import simulated
from copilot4d.datasets.simulated_files import read_simulated, write_simulated
from copilot4d.datasets.simulated_generation import Generation, generate, unfinished
from copilot4d.errors import DataError, UsageError
from copilot4d.simulator import simulate_drive
from copilot4d.simulator.roads import StreetOptions

SMALL = StreetOptions(columns=2, rows=2, cars=8, cyclists=1, pedestrians=6)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COPILOT4D_CACHE", str(tmp_path))
    return tmp_path


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
    (folder / "truth.npz").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="simulate the drive again"):
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


def contents(folder):
    return {
        p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix != ".npz"
    }


def test_generation_resumes_and_does_not_touch_what_is_finished(tmp_path):
    made = Generation(drives=2, seed=3, seconds=0.2)
    folders = generate(made, tmp_path / "out")
    assert [f.name for f in folders] == ["000003000000", "000003000001"]
    assert unfinished(made, tmp_path / "out") == []
    stamp = (folders[0] / "poses.txt").stat().st_mtime_ns
    before = contents(folders[1])
    # An interrupted run leaves a part beside the place; the drive is made again and the part is gone.
    folders[1].rename(tmp_path / "out" / ".partial-000003000001-99")
    assert unfinished(made, tmp_path / "out") == [1]
    generate(made, tmp_path / "out")
    assert (folders[0] / "poses.txt").stat().st_mtime_ns == stamp
    assert contents(folders[1]) == before
    assert not list((tmp_path / "out").glob(".partial*"))
    assert len(open_dataset(tmp_path / "out")) == 2


@pytest.mark.slow
def test_any_number_of_workers_writes_the_same_bytes(tmp_path):
    made = Generation(drives=3, seed=4, seconds=0.3)
    alone = generate(made, tmp_path / "one", workers=1)
    together = generate(made, tmp_path / "two", workers=2)
    for a, b in zip(alone, together, strict=True):
        assert contents(a) == contents(b)
        with np.load(a / "truth.npz") as first, np.load(b / "truth.npz") as second:
            for key in first.files:
                np.testing.assert_array_equal(first[key], second[key])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drives": 0}, "--drives"), ({"sensor": "hdl65"}, "hdl65"), ({"seed": -1}, "--seed"),
        ({"seconds": -2.0}, "--seconds"), ({"rate_hz": 11.0}, "--rate-hz"),
        ({"sensor": "vls_pair", "format": "kitti"}, "two lidars"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused_with_the_flag_in_the_message(options, message):
    with pytest.raises(UsageError, match=message):
        Generation(**{"drives": 1, **options})


def test_a_folder_of_other_settings_is_not_mixed_with(tmp_path):
    generate(Generation(drives=1, seconds=0.2), tmp_path / "out")
    with pytest.raises(UsageError, match=r"other settings \(seed\): seed=0"):
        generate(Generation(drives=1, seconds=0.2, seed=1), tmp_path / "out")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("important")
    with pytest.raises(UsageError, match="something else"):
        generate(Generation(drives=1, seconds=0.2), tmp_path / "taken")
    with pytest.raises(UsageError, match="--workers"):
        generate(Generation(drives=1, seconds=0.2), tmp_path / "out", workers=0)

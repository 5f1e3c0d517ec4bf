"""Drives simulated into a folder: parts, workers, resuming, settings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.datasets import simulated_files
from copilot4d.datasets.simulated_files import read_simulated, write_simulated
from copilot4d.datasets.simulated_generation import Generation, generate, unfinished
from copilot4d.errors import DataError, UsageError
from copilot4d.simulator import simulate_drive
from copilot4d.simulator.roads import StreetOptions

SMALL = StreetOptions(columns=2, rows=2, cars=8, cyclists=1, pedestrians=6)


def process_that_is_gone():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_parts_of_living_processes_stay_and_those_of_dead_ones_go(tmp_path):
    living = [tmp_path / f".partial-x-abc-{os.getpid()}", tmp_path / f".partial-x-{os.getppid()}"]
    other = [tmp_path / ".partial-x-notes", tmp_path / f".partial-y-{process_that_is_gone()}"]
    dead = tmp_path / f".partial-x-{process_that_is_gone()}"
    for folder in (*living, *other, dead):
        folder.mkdir()
        (folder / "part").write_text("of a drive")
    write_simulated(simulate_drive(seed=1, seconds=0.2, options=SMALL, name="x"), tmp_path)
    assert {path for path in tmp_path.iterdir() if path.name.startswith(".")} == {*living, *other}
    assert all((folder / "part").exists() for folder in (*living, *other))


def test_whoever_finishes_first_gives_the_drive(tmp_path):
    drive = simulate_drive(seed=1, seconds=0.3, options=SMALL, name="x")

    def read(frame):
        if frame == 2:  # meanwhile, another process makes the same drive
            write_simulated(drive, tmp_path)
            (tmp_path / "x" / "first").touch()
        return drive.read(frame)

    folder = write_simulated(replace(drive, read=read), tmp_path)
    assert (folder / "first").exists()
    assert len(list(read_simulated(folder))) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("lost", ["sweeps/*.bin", "truth.npz"])
def test_a_part_that_lost_files_is_not_put_into_place(tmp_path, monkeypatch, lost):
    written = simulated_files._write

    def write_and_lose(*arguments):
        folder = written(*arguments)
        next(folder.glob(lost)).unlink()
        return folder

    monkeypatch.setattr(simulated_files, "_write", write_and_lose)
    with pytest.raises(DataError, match="3 sweeps"):
        write_simulated(simulate_drive(seed=1, seconds=0.3, options=SMALL, name="x"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def contents(folder):
    return {
        p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix != ".npz"
    }


def test_generation_resumes_and_does_not_touch_what_is_finished(tmp_path):
    made = Generation(count=2, seed=3, seconds=0.2)
    folders = generate(made, tmp_path / "out")
    assert [f.name for f in folders] == ["000003000000", "000003000001"]
    assert unfinished(made, tmp_path / "out") == []
    stamp = (folders[0] / "poses.txt").stat().st_mtime_ns
    before = contents(folders[1])
    # An interrupted run leaves a part beside the place; the drive is made again and the part is gone.
    folders[1].rename(tmp_path / "out" / f".partial-000003000001-{process_that_is_gone()}")
    assert unfinished(made, tmp_path / "out") == [1]
    generate(made, tmp_path / "out")
    assert (folders[0] / "poses.txt").stat().st_mtime_ns == stamp
    assert contents(folders[1]) == before
    assert not list((tmp_path / "out").glob(".partial*"))
    assert len(open_dataset(tmp_path / "out")) == 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
def test_workers_end_with_a_parent_that_was_killed(tmp_path):
    out = tmp_path / "out"
    script = (
        "from pathlib import Path\n"
        "from copilot4d.datasets.simulated_generation import Generation, generate\n"
        "if __name__ == '__main__':\n"
        f"    generate(Generation(count=4, seconds=60.0), Path({str(out)!r}), workers=2)\n"
    )
    (tmp_path / "run.py").write_text(script)
    parent = subprocess.Popen([sys.executable, str(tmp_path / "run.py")], start_new_session=True)
    try:
        wait_until(lambda: len(list(out.glob(".partial-*"))) == 2)  # both workers are at it, for a long time
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    try:
        wait_until(lambda: not members(parent.pid))
    finally:
        for process in members(parent.pid):
            os.kill(process, signal.SIGKILL)


def members(session):
    """The processes of a session that are still running."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:  # gone meanwhile
            continue
        if int(its_session) == session and state != "Z":
            found.append(int(folder.name))
    return found


def wait_until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("still not so after a minute")


@pytest.mark.slow
def test_any_number_of_workers_writes_the_same_bytes(tmp_path):
    made = Generation(count=3, seed=4, seconds=0.3)
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
        ({"count": 0}, "`count`"), ({"sensor": "hdl65"}, "hdl65"), ({"seed": -1}, "`seed`"),
        ({"seconds": -2.0}, "`seconds`"), ({"rate_hz": 11.0}, "`rate_hz`"),
        ({"seconds": float("inf")}, "`seconds`"), ({"seconds": float("nan")}, "`seconds`"),
        ({"seconds": 0.09}, "`seconds` 0.09 holds no sweep at 10 Hz"), ({"seconds": 1.9, "rate_hz": 0.5}, "at 0.5 Hz"),
        ({"sensor": "vls_pair", "format": "kitti"}, "two lidars"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused_with_the_name_in_the_message(options, message):
    with pytest.raises(UsageError, match=message):
        Generation(**{"count": 1, **options})


def test_a_folder_of_other_settings_is_not_mixed_with(tmp_path):
    generate(Generation(count=1, seconds=0.2), tmp_path / "out")
    with pytest.raises(UsageError, match=r"other settings \(seed\): seed=0"):
        generate(Generation(count=1, seconds=0.2, seed=1), tmp_path / "out")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("important")
    with pytest.raises(UsageError, match="something else"):
        generate(Generation(count=1, seconds=0.2), tmp_path / "taken")
    with pytest.raises(UsageError, match="`workers`"):
        generate(Generation(count=1, seconds=0.2), tmp_path / "out", workers=0)


@pytest.mark.parametrize("damage", ['{"simulator_ver', "", "[1, 2]", "\udcff"])
def test_damaged_settings_say_what_to_do(tmp_path, damage):
    made = Generation(count=1, seconds=0.1)
    generate(made, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["000000000000", "simulation.json"]
    (tmp_path / "out" / "simulation.json").write_bytes(damage.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=r"simulation\.json.*To fix it: remove"):
        generate(made, tmp_path / "out")


def test_a_run_that_ended_before_its_settings_were_whole_does_not_lock_the_folder(tmp_path):
    (tmp_path / ".simulation.json-7").write_text('{"simul')
    assert len(generate(Generation(count=1, seconds=0.1), tmp_path)) == 1

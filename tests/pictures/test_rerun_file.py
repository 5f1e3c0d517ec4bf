"""A forecast as a .rrd file: what was written is read back with rerun's own reader, chunk by chunk."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from copilot4d.geometry import Sweep, se3
from copilot4d.pictures.rerun_file import INSTALL, error_colors, write_rerun
from tests.datasets.trees import small_drive

FIRST_NS = 1_700_000_000_000_000_000


def rows_of(path):
    """{entity: {time in ns: {component: its values}}} of a file; a component that was cleared is an empty list."""
    chunk = pytest.importorskip("rerun.chunk")
    found = {}
    for part in chunk.RrdReader(path).stream().to_chunks():
        if part.is_static or "time" not in part.timeline_names:
            continue
        batch = part.to_record_batch()
        times = np.array(batch.column("time")).astype("datetime64[ns]").astype(np.int64)
        for name in batch.schema.names:
            if ":" in name:
                for time, values in zip(times.tolist(), batch.column(name).to_pylist(), strict=True):
                    found.setdefault(part.entity_path, {}).setdefault(time, {})[name.split(":")[-1]] = values
    return found


@pytest.fixture
def written(tmp_path):
    pytest.importorskip("rerun")
    drive = small_drive(5, points=50)
    far = se3.from_yaw(0.3, (4e6, 2e6, 9.0))  # a map's world: too far for float32
    sweeps = [
        Sweep(
            points=s.points, world_from_lidar=se3.compose(far, s.world_from_lidar),
            timestamp_ns=FIRST_NS + s.timestamp_ns,
        )
        for s in drive
    ]  # fmt: skip
    past, future = sweeps[:2], sweeps[2:]
    guess = [Sweep(points=s.points + 1, world_from_lidar=s.world_from_lidar, timestamp_ns=0) for s in future]
    path = write_rerun(
        tmp_path / "new" / "x.rrd", past=past, futures=[guess, guess], truth=future[:2],
        timestamps_ns=[s.timestamp_ns for s in future],
    )  # fmt: skip
    return path, sweeps, guess


def test_everything_reads_back(written):
    path, sweeps, guess = written
    read = rows_of(path)
    assert set(read) == {"/lidar", *(f"/lidar/{n}" for n in ("past", "truth", "forecast", "forecast_2", "difference"))}
    times = [s.timestamp_ns for s in sweeps]
    assert sorted(read["/lidar"]) == times

    def cloud(name, time):
        return np.array(read[f"/lidar/{name}"][time]["positions"], np.float32)

    np.testing.assert_array_equal(cloud("past", times[1]), sweeps[1].points)
    np.testing.assert_array_equal(cloud("truth", times[3]), sweeps[3].points)
    for name in ("forecast", "forecast_2", "difference"):
        np.testing.assert_array_equal(cloud(name, times[2]), guess[0].points)
    assert sorted(read["/lidar/past"]) == times, "it is cleared where the future begins"
    assert sorted(read["/lidar/truth"]) == times[2:]
    assert not read["/lidar/truth"][times[4]].get("positions"), "there is no third true sweep"
    place = read["/lidar"][times[3]]["translation"][0]
    expected = se3.relative_motion(sweeps[1].world_from_lidar, sweeps[3].world_from_lidar)[:3, 3]
    np.testing.assert_allclose(place, expected, atol=1e-4)
    assert not list(path.parent.glob(".*")), "nothing else is left"


def test_errors_by_hand():
    """At the truth, half a metre off, nowhere near it."""
    found = error_colors(np.array([0.0, 0.5, np.inf], np.float32)).tolist()
    assert found == [[0, 200, 0], [128, 100, 0], [255, 0, 0]]


def test_forecast_with_rerun(tmp_path, capsys):
    pytest.importorskip("rerun")
    from copilot4d.cli.main import main
    from copilot4d.datasets import write_folder

    write_folder(small_drive(21, points=300), tmp_path / "d")
    base = ["forecast", "--model", "copy_last", "--data", str(tmp_path / "d"), "--out", str(tmp_path / "f")]
    assert main([*base, "--rerun", str(tmp_path / "x.rrd")]) == 0
    assert "x.rrd" in capsys.readouterr().out
    assert "/lidar/difference" in rows_of(tmp_path / "x.rrd")
    assert (tmp_path / "f" / "future_01.ply").is_file()
    assert main([*base, "--rerun", str(tmp_path / "x.mcap")]) == 2
    assert "ends in .rrd" in " ".join(capsys.readouterr().err.split())


def test_without_the_extra_the_error_is_one_sentence(tmp_path):
    program = (
        "import sys; sys.modules['rerun'] = None\nfrom copilot4d.cli.main import main\n"
        "sys.exit(main(['forecast', '--model', 'copy_last', '--data', 'd', '--out', 'f', '--rerun', 'x.rrd']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert " ".join(done.stderr.split()) == (
        f"copilot4d: writing .rrd files needs rerun-sdk, which is not installed: {INSTALL}"
    )

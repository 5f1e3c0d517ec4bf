"""Times in another unit, files of another number of columns: what they look like, and the line that fixes it."""

import re

import numpy as np
import pytest

from copilot4d.datasets import open_dataset
from copilot4d.doctor import examine
from copilot4d.errors import Copilot4dWarning, DataError
from tests.doctor.own_logs import describe, tum_rows, write_own, write_tum_rows

START_S = 1_700_000_000


def unix(folder, *, names_in=None, poses_in=1.0):
    """Give the log Unix times: names in `names_in` units a second (None: 000000.bin), poses in `poses_in` of them."""
    rows = tum_rows(folder)
    for i, path in enumerate(sorted((folder / "sweeps").iterdir())):
        name = f"{i:06d}" if names_in is None else f"{round((START_S + rows[i, 0]) * names_in)}"
        path.rename(path.with_name(f"{name}.bin"))
    rows[:, 0] = (rows[:, 0] + START_S) * poses_in
    np.savetxt(folder / "poses.txt", rows, fmt=["%.3f", *["%.12g"] * 7])


def remedy_line(text):
    found = re.search(r"`([a-z_]+: [^`]*)`", text)
    assert found, text
    return found[1]


def healthy_with(folder, line):
    describe(folder, line)
    return examine(folder).healthy


def test_milliseconds_in_the_poses_beside_names_in_nanoseconds(tmp_path):
    folder = write_own(tmp_path / "log", times="")
    unix(folder, names_in=10**9, poses_in=1000.0)
    (finding,) = [f for f in examine(folder).findings if f.severity == "problem"]
    assert "looks like ms" in finding.evidence
    assert remedy_line(finding.remedy) == "pose_time_unit: ms"
    assert healthy_with(folder, "pose_time_unit: ms")


def test_milliseconds_from_zero_in_the_poses(tmp_path):
    folder = write_own(tmp_path / "log", times="")
    rows = tum_rows(folder)
    for i, path in enumerate(sorted((folder / "sweeps").iterdir())):
        path.rename(path.with_name(f"{i:06d}.bin"))
    rows[:, 0] *= 1000
    write_tum_rows(folder, rows)
    (finding,) = [f for f in examine(folder).findings if f.code == "clock-unit"]
    assert "look like milliseconds" in finding.evidence
    assert remedy_line(finding.remedy) == "pose_time_unit: ms"
    assert healthy_with(folder, "pose_time_unit: ms")


def test_poses_in_seconds_and_names_in_milliseconds_from_zero(tmp_path):
    folder = write_own(tmp_path / "log", times="timestamps: {filename: us}")
    for path in sorted((folder / "sweeps").iterdir()):
        path.rename(path.with_name(f"{int(path.stem) // 10**6:08d}.bin"))
    (finding,) = [f for f in examine(folder).findings if f.severity == "problem"]
    assert remedy_line(finding.remedy) == "timestamps: {filename: ms}"
    assert healthy_with(folder, "timestamps: {filename: ms}")


def test_unix_milliseconds_in_file_names_are_read_as_such(tmp_path):
    folder = write_own(tmp_path / "log", times="")
    unix(folder, names_in=1000)
    report = examine(folder)
    assert report.healthy
    assert report.drives[0].clock.rate_hz == pytest.approx(5.0)


def test_names_that_rise_by_a_hundred_look_like_milliseconds(tmp_path):
    folder = write_own(tmp_path / "log", times="")
    (folder / "poses.txt").unlink()
    for i, path in enumerate(sorted((folder / "sweeps").iterdir())):
        path.rename(path.with_name(f"{100 * i:06d}.bin"))
    with pytest.warns(Copilot4dWarning, match=r"looks like ms: write `timestamps: \{filename: ms\}`"):
        open_dataset(folder, require_poses=False)["log"]


def test_milliseconds_in_a_file_of_times(tmp_path):
    folder = write_own(tmp_path / "log", times="")
    unix(folder)
    times_ms = tum_rows(folder)[:, 0] * 1000
    np.savetxt(folder / "times.txt", times_ms, fmt="%.0f")
    with pytest.raises(DataError, match=r"looks like ms.*`timestamps: \{file: times.txt, unit: ms\}`"):
        open_dataset(folder)["log"]
    assert healthy_with(folder, "timestamps: {file: times.txt, unit: ms}")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (7, "without its time"),
        (13, "a time and a KITTI matrix"),
        (16, "4x4 matrices"),
        (10, "8 numbers a line"),
    ],
)
def test_a_wrong_number_of_columns_in_the_poses(tmp_path, columns, words):
    folder = write_own(tmp_path / "log")
    write_tum_rows(folder, np.ones((14, columns)))
    with pytest.raises(DataError, match=words):
        open_dataset(folder)["log"]


@pytest.mark.parametrize("count", [3, 5, 6])
def test_a_wrong_number_of_columns_in_the_sweeps(tmp_path, count):
    """Also where every file happens to be a whole number of rows of four: then the loader cannot see it."""
    folder = write_own(tmp_path / "log")
    for path in (folder / "sweeps").iterdir():
        rows = np.fromfile(path, "<f4").reshape(-1, 4)
        rows = rows[: len(rows) // 4 * 4]  # so that every number of columns leaves whole rows of four
        more = [np.full(len(rows), k, np.float32) + np.arange(len(rows)) % 24 for k in range(2)]
        np.column_stack([rows, *more])[:, :count].astype("<f4").tofile(path)
    (finding,) = [f for f in examine(folder).findings if f.severity == "problem"]
    assert finding.code == "columns"
    assert f"{count} columns, not 4" in finding.title
    line = remedy_line(finding.remedy)
    assert healthy_with(folder, f"timestamps: {{filename: ns}}\n{line}")


def test_a_file_that_is_no_whole_number_of_rows_says_what_it_looks_like(tmp_path):
    folder = write_own(tmp_path / "log")
    for path in (folder / "sweeps").iterdir():
        rows = np.fromfile(path, "<f4").reshape(-1, 4)
        rows = rows[: len(rows) // 4 * 4 - 3]
        np.column_stack([rows, np.arange(len(rows)) % 24]).astype("<f4").tofile(path)
    with pytest.raises(DataError, match=r"looks like 5 columns, not 4: write `columns: x y z intensity _`"):
        open_dataset(folder)["log"][0]

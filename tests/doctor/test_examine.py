"""`examine` on trees on disk: a healthy one, damaged copies, and ones that cannot be opened."""

import shutil

import numpy as np
import pytest

from copilot4d.datasets import write_folder, write_kitti
from copilot4d.doctor import examine
from copilot4d.doctor.examine import spread
from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from tests.doctor.logs import healthy_log, with_points, with_poses
from tests.support.scenes import make_drive

LOG = healthy_log()


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    root = tmp_path_factory.mktemp("healthy")
    write_kitti(LOG, root, name="08")
    return root


@pytest.fixture
def tree(healthy, tmp_path):
    return shutil.copytree(healthy, tmp_path / "tree")


def codes(report):
    return [f.code for f in report.findings if not f.code.startswith("windows")]


def test_the_healthy_tree(healthy):
    report = examine(healthy)
    assert report.healthy
    assert codes(report) == []
    assert (report.format, report.names, report.splits) == ("kitti_odometry", ("08",), {"test": 1})
    (drive,) = report.drives
    assert (drive.sweeps, drive.clock.rate_hz, drive.clock.gaps) == (14, pytest.approx(5.0), ())
    assert drive.windows == {"1s": 5, "3s": 0}  # 14 sweeps, 4 before and 5 after the reference


def test_truncated_files_are_found_without_reading_them_all(tree):
    velodyne = tree / "sequences" / "08" / "velodyne"
    for number, keep in ((3, -7), (6, 0), (9, -160_000)):  # broken point, nothing left, a whole number of points
        path = velodyne / f"{number:06d}.bin"
        content = path.read_bytes()
        path.write_bytes(content[:keep] if keep > -160_000 else content[: len(content) // 32 * 16])
    report = examine(tree, sweeps=2)
    by_file = {f.where.rpartition("/")[2]: f for f in report.problems}
    assert set(by_file) == {"000003.bin", "000006.bin", "000009.bin"}
    assert by_file["000009.bin"].code == "sweep-cut"
    assert by_file["000003.bin"].code == by_file["000006.bin"].code == "sweep-unusable"
    assert all("cop" in f.remedy for f in by_file.values())
    assert report.drives[0].poses.verdict.startswith("fit")  # the rest was examined all the same


def test_a_missing_sweep_leaves_a_gap(tree):
    (tree / "sequences" / "08" / "velodyne" / "000005.bin").unlink()
    (finding,) = examine(tree).problems
    assert finding.code == "sweeps-missing"
    assert "1 after frame 4" in finding.evidence


def test_the_same_sweep_twice(tree):
    velodyne = tree / "sequences" / "08" / "velodyne"
    shutil.copy(velodyne / "000002.bin", velodyne / "000011.bin")
    found = [f for f in examine(tree).problems if f.code == "sweeps-duplicate"]
    assert "000011.bin is 000002.bin" in found[0].evidence


def test_nan_points_name_their_file(tree):
    path = tree / "sequences" / "08" / "velodyne" / "000000.bin"
    points = np.fromfile(path, dtype=np.float32)
    points[40] = np.nan
    points.tofile(path)
    (finding,) = examine(tree).problems
    assert finding.where.endswith("000000.bin")
    assert finding.code == "sweep-unusable"


def test_every_sweep_is_read_when_asked(tree):
    path = tree / "sequences" / "08" / "velodyne" / "000001.bin"
    points = np.fromfile(path, dtype=np.float32)
    points[40] = np.inf
    points.tofile(path)
    assert len(examine(tree, every_sweep=True).problems) == 1


@pytest.mark.parametrize("damage", ["swapped times", "too few poses", "no rotation"])
def test_a_drive_that_cannot_be_opened_does_not_hide_the_others(tree, damage):
    write_kitti(make_drive(2), tree, name="09")
    folder = tree / "sequences" / "08"
    if damage == "swapped times":
        lines = (folder / "times.txt").read_text().splitlines()
        lines[4], lines[5] = lines[5], lines[4]
        (folder / "times.txt").write_text("\n".join(lines))
    elif damage == "too few poses":
        lines = (folder / "poses.txt").read_text().splitlines()
        (folder / "poses.txt").write_text("\n".join(lines[:-2]))
    else:
        (folder / "poses.txt").write_text("1 2 3 4 5 6 7 8 9 10 11 12\n" * 14)
    report = examine(tree)
    assert codes(report) == ["drive-unusable"]
    assert [d.drive.name for d in report.drives] == ["09"]
    assert not report.healthy


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda d: with_poses(d, se3.invert(d.world_from_lidar)), "poses-inverted"),
        (lambda d: with_points(d, lambda p: p[:, [1, 0, 2]]), "axes-mirrored"),
        (lambda d: with_points(d, lambda p: p * 1000), "units-millimetres"),
    ],
)
def test_damage_is_found_in_own_data_too(tmp_path, damage, code):
    write_folder(damage(LOG), tmp_path / "log", suffix=".npz")
    assert codes(examine(tmp_path / "log")) == [code]


def test_cut_npz_and_feather_files_of_own_data(tmp_path):
    for suffix in (".npz", ".feather"):
        out = write_folder(make_drive(4), tmp_path / suffix, suffix=suffix)
        path = sorted((out / "sweeps").iterdir())[1]
        path.write_bytes(path.read_bytes()[:-200])
        (finding,) = examine(out, sweeps=1).problems
        assert finding.where.endswith(path.name)


def test_what_cannot_be_opened_is_a_finding_and_a_wrong_drive_is_wrong_usage(tmp_path, healthy):
    report = examine(tmp_path)
    assert (report.format, codes(report), report.healthy) == (None, ["data-set-unusable"], False)
    with pytest.raises(UsageError, match="no drive 99"):
        examine(healthy, drives=["99"])


def test_the_sample_of_drives_is_spread():
    assert spread([str(i) for i in range(5)], 9) == ("0", "1", "2", "3", "4")
    assert spread([str(i) for i in range(101)], 3) == ("0", "50", "100")

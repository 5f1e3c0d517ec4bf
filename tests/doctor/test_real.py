"""The doctor on real sweeps: no false alarm on any real drive, and damage is found there as well."""

import shutil

import numpy as np
import pytest

from copilot4d.datasets.pose_files import read_kitti_poses, write_kitti_poses
from copilot4d.doctor import examine
from copilot4d.doctor.estimate import write_estimated_poses
from copilot4d.geometry import se3
from tests.doctor.logs import degrees_as_radians, scaled, shifted
from tests.support.real_data import real_data, unpack_drive

FIXTURES = {  # what may be remarked or is truly so; everything else would be a false alarm
    "kitti_odometry": {"poses-coarse"},
    "kitti_raw": set(),
    "av2": set(),
    "nuscenes_genuine_one_sample": {"poses-missing"},
    "nuscenes_scene0006_rebuilt": set(),
}


@pytest.mark.parametrize(("name", "allowed"), FIXTURES.items())
def test_the_fixtures_raise_no_false_alarm(name, allowed):
    report = examine(real_data("fixtures", name))
    found = {f.code for f in report.findings if not f.code.startswith(("windows", "motion-in-sweeps"))}
    assert report.drives
    assert found <= allowed
    for drive in report.drives:
        assert drive.ground is not None
        assert drive.ground.up == "+z"
        assert 1.4 < drive.ground.origin_height < 2.1
        assert drive.unit.name == "metres"


def test_two_lidars_have_two_origins():
    (drive,) = examine(real_data("fixtures", "av2")).drives
    assert len(drive.clouds[0].origins) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["train_0001", "train_0002", "train_0009a", "train_0009b", "train_0011", "train_0013", "val_0005"]
)
def test_the_real_drives_are_healthy(name, tmp_path):
    report = examine(unpack_drive(name, tmp_path))
    assert report.findings == ()
    assert report.drives[0].trajectory.forward == "+x"
    assert report.drives[0].windows["3s"] > 0


@pytest.fixture(scope="module")
def street(tmp_path_factory):
    return unpack_drive("val_0005", tmp_path_factory.mktemp("street"), sweeps=16)


DAMAGE = {
    "inverted": (se3.invert, "poses-inverted"),
    "one late": (lambda p: shifted(p, -1), "poses-off-by-one"),
    "one early": (lambda p: shifted(p, 1), "poses-off-by-one"),
    "degrees for radians": (degrees_as_radians, "poses-degrees-for-radians"),
    "millimetres": (lambda p: scaled(p, 1000), "poses-millimetres"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "code"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_poses_of_a_real_street(street, tmp_path, damage, code):
    tree = shutil.copytree(street, tmp_path / "tree")
    file = tree / "sequences" / "val_0005" / "poses.txt"
    write_kitti_poses(file, damage(read_kitti_poses(file)))
    assert [f.code for f in examine(tree).problems] == [code]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "code"),
    [(np.eye(3)[[1, 0, 2]], "axes-mirrored"), (np.diag([1.0, -1, 1]), "axes-mirrored"),
     (np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1.0]]), "axes-turned"), (np.eye(3) * 1000, "units-millimetres")],
    ids=["swapped", "mirrored", "turned", "millimetres"],
)  # fmt: skip
def test_damaged_points_of_a_real_street(street, tmp_path, change, code):
    tree = shutil.copytree(street, tmp_path / "tree")
    for path in (tree / "sequences" / "val_0005" / "velodyne").iterdir():
        points = np.fromfile(path, dtype=np.float32).reshape(-1, 4)
        points[:, :3] = points[:, :3] @ change.T.astype(np.float32)
        points.tofile(path)
    assert [f.code for f in examine(tree).problems] == [code]


def test_estimated_poses_agree_with_the_ones_given(tmp_path):
    pytest.importorskip("kiss_icp", reason="the extra `poses` is not installed")
    tree = unpack_drive("train_0011", tmp_path, sweeps=8)
    (written,) = write_estimated_poses(tree)
    given, estimated = (read_kitti_poses(written.parent / name) for name in ("poses.txt", written.name))
    off = se3.relative_motion(se3.relative_motion(given[0], given), se3.relative_motion(estimated[0], estimated))
    assert np.linalg.norm(off[-1, :3, 3]) < 0.03 * np.linalg.norm(given[-1, :3, 3] - given[0, :3, 3]) + 0.1

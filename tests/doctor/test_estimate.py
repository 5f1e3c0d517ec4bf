"""Poses from the sweeps: near the truth, written where the format looks, never over what is there."""

import builtins

import numpy as np
import pytest
import yaml

from copilot4d.datasets import open_dataset, write_folder, write_kitti
from copilot4d.datasets.pose_files import read_tum_poses
from copilot4d.doctor.estimate import write_estimated_poses
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import se3
from tests.doctor.logs import thicket_log

pytest.importorskip("kiss_icp", reason="the extra `poses` is not installed")
LOG = thicket_log()
TRUE = se3.relative_motion(LOG.world_from_lidar[0], LOG.world_from_lidar)


def assert_near_truth(poses):
    off = se3.relative_motion(TRUE, se3.relative_motion(poses[0], poses))
    assert np.linalg.norm(off[:, :3, 3], axis=1).max() < 0.1  # standing still would be 10 m off
    assert np.rad2deg(se3.rotation_angle(off)).max() < 0.5


def test_kitti_poses_go_through_the_calibration(tmp_path):
    folder = write_kitti(LOG, tmp_path, name="08")
    (folder / "poses.txt").unlink()
    rotation = "0 -1 0 0.1 0 0 -1 -0.2 1 0 0 -0.3"  # camera axes, some way off the lidar
    (folder / "calib.txt").write_text(f"Tr: {rotation}\n")
    assert write_estimated_poses(tmp_path) == [folder / "poses.txt"]
    assert_near_truth(open_dataset(tmp_path)["08"].world_from_lidar)


def test_a_sweep_that_is_missing_keeps_its_line(tmp_path):
    folder = write_kitti(LOG, tmp_path, name="08")
    (folder / "poses.txt").unlink()
    (folder / "velodyne" / "000003.bin").unlink()
    write_estimated_poses(tmp_path)
    assert len((folder / "poses.txt").read_text().splitlines()) == 8
    poses = open_dataset(tmp_path)["08"].world_from_lidar
    assert poses[-1, 0, 3] == pytest.approx(TRUE[-1, 0, 3], abs=0.4)


def test_own_data_gets_poses_in_its_own_axes_and_units(tmp_path):
    """The files are in millimetres with x right, y forward; the poses must be so as well."""
    out = write_folder(LOG, tmp_path / "log")
    for path in (out / "sweeps").iterdir():
        points = np.fromfile(path, dtype=np.float32).reshape(-1, 4)
        turned = np.stack([-points[:, 1], points[:, 0], points[:, 2]], axis=1) * 1000
        np.concatenate([turned, points[:, 3:]], axis=1).astype(np.float32).tofile(path)
    keys = yaml.safe_load((out / "copilot4d.yaml").read_text())
    keys |= {"axes": "x right, y forward, z up", "units": "mm"}
    (out / "copilot4d.yaml").write_text(yaml.safe_dump(keys))
    (out / "poses.txt").unlink()
    write_estimated_poses(out)
    assert_near_truth(open_dataset(out)["town"].world_from_lidar)


def test_poses_that_exist_are_left_alone(tmp_path):
    folder = write_kitti(LOG, tmp_path, name="08")
    before = (folder / "poses.txt").read_text()
    assert write_estimated_poses(tmp_path) == [folder / "poses_estimated.txt"]
    assert (folder / "poses.txt").read_text() == before


def test_poses_beside_the_data_set(tmp_path):
    folder = write_kitti(LOG, tmp_path / "tree", name="08")
    (written,) = write_estimated_poses(tmp_path / "tree", out=tmp_path / "poses")
    assert written == tmp_path / "poses" / "08.txt"
    assert_near_truth(read_tum_poses(written).poses)
    assert not (folder / "poses_estimated.txt").exists()


def test_a_missing_calibration_is_told_before_the_work(tmp_path):
    folder = write_kitti(LOG, tmp_path, name="08")
    (folder / "poses.txt").unlink()
    (folder / "calib.txt").unlink()
    with pytest.raises(DataError, match=r"calib\.txt"):
        write_estimated_poses(tmp_path)


def test_without_the_extra_the_error_says_what_to_install(tmp_path, monkeypatch):
    real_import = builtins.__import__

    def without_kiss_icp(name, *args, **kwargs):
        if name.startswith("kiss_icp"):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_kiss_icp)
    with pytest.raises(UsageError, match=r"pip install 'copilot4d\[poses\]'"):
        write_estimated_poses(tmp_path)

"""Poses from the sweeps: near the truth, written where the format looks, never over what is there."""

import builtins

import numpy as np
import pytest
import yaml

from copilot4d.datasets import open_dataset, write_folder, write_kitti
from copilot4d.datasets.point_files import write_points
from copilot4d.datasets.pose_files import read_tum_poses, write_kitti_poses
from copilot4d.datasets.sweep_files import KITTI_EGO_BOX
from copilot4d.doctor import estimate
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


def in_other_axes(tmp_path):
    """Own data whose files are in millimetres with x right, y forward."""
    out = write_folder(LOG, tmp_path / "log")
    for path in (out / "sweeps").iterdir():
        points = np.fromfile(path, dtype=np.float32).reshape(-1, 4)
        turned = np.stack([-points[:, 1], points[:, 0], points[:, 2]], axis=1) * 1000
        np.concatenate([turned, points[:, 3:]], axis=1).astype(np.float32).tofile(path)
    keys = yaml.safe_load((out / "copilot4d.yaml").read_text())
    keys |= {"axes": "x right, y forward, z up", "units": "mm"}
    (out / "copilot4d.yaml").write_text(yaml.safe_dump(keys))
    return out


def test_own_data_gets_poses_in_its_own_axes_and_units(tmp_path):
    """The poses must be in the files' axes and units as well."""
    out = in_other_axes(tmp_path)
    (out / "poses.txt").unlink()
    write_estimated_poses(out)
    assert_near_truth(open_dataset(out)["town"].world_from_lidar)


def test_poses_that_exist_are_left_alone(tmp_path):
    folder = write_kitti(LOG, tmp_path, name="08")
    before = (folder / "poses.txt").read_text()
    assert write_estimated_poses(tmp_path) == [folder / "poses_estimated.txt"]
    assert (folder / "poses.txt").read_text() == before


@pytest.mark.parametrize("opened", ["root", "drive"])
def test_a_description_above_the_drives_counts(tmp_path, opened):
    drive = in_other_axes(tmp_path)
    keys = yaml.safe_load((drive / "copilot4d.yaml").read_text())
    keys = {key: value for key, value in keys.items() if key not in ("name", "split")}
    (drive / "copilot4d.yaml").rename(tmp_path / "copilot4d.yaml")
    path = tmp_path if opened == "root" else drive
    (tmp_path / "copilot4d.yaml").write_text(yaml.safe_dump(keys))
    assert write_estimated_poses(path) == [drive / "poses_estimated.txt"]
    (tmp_path / "copilot4d.yaml").write_text(yaml.safe_dump(keys | {"poses": "poses_estimated.txt"}))
    assert_near_truth(open_dataset(path)["log"].world_from_lidar)


@pytest.mark.parametrize("mounting", [None, [0.5, 0.2, 1.8]])
def test_own_data_with_poses_gets_others_that_mean_the_same(tmp_path, mounting):
    """x right, y forward, z up, in millimetres, with poses of the file's lidar or of a vehicle that carries it."""
    out = in_other_axes(tmp_path)
    keys = yaml.safe_load((out / "copilot4d.yaml").read_text())
    if mounting is not None:
        motion = {"translation": [1000 * v for v in mounting], "quaternion_wxyz": [0.6, 0, 0, 0.8]}
        keys |= {"pose_frame": "world_from_ego", "ego_from_lidar": motion}
    (out / "copilot4d.yaml").write_text(yaml.safe_dump(keys))
    assert write_estimated_poses(out) == [out / "poses_estimated.txt"]
    (out / "copilot4d.yaml").write_text(yaml.safe_dump(keys | {"poses": "poses_estimated.txt"}))
    assert_near_truth(open_dataset(out)["town"].world_from_lidar)


@pytest.mark.parametrize("pose_format", [None, "tum", "kitti"])
@pytest.mark.parametrize("named", [None, "odometry/mine.txt"])
def test_own_data_gets_the_file_and_the_format_that_its_description_names(tmp_path, named, pose_format, monkeypatch):
    """A poses.txt that nothing would read helps nobody."""
    monkeypatch.setattr(estimate, "estimate_poses", lambda drive, track: TRUE)
    out = in_other_axes(tmp_path)
    (out / "poses.txt").unlink()
    keys = yaml.safe_load((out / "copilot4d.yaml").read_text())
    keys |= {"timestamps": {"rate_hz": 10}}  # poses in KITTI's format carry no times
    keys |= {key: value for key, value in (("poses", named), ("pose_format", pose_format)) if value}
    (out / "copilot4d.yaml").write_text(yaml.safe_dump(keys))
    before = set(out.rglob("*"))
    target = out / (named or "poses.txt")
    assert write_estimated_poses(out) == [target]
    assert {path for path in out.rglob("*") if path.is_file()} - before == {target}
    assert_near_truth(open_dataset(out)["town"].world_from_lidar)


def test_estimated_poses_beside_others_have_their_format(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "estimate_poses", lambda drive, track: TRUE)
    out = in_other_axes(tmp_path)
    keys = yaml.safe_load((out / "copilot4d.yaml").read_text()) | {"timestamps": {"rate_hz": 10}}
    write_kitti_poses(out / "poses.txt", read_tum_poses(out / "poses.txt").poses)
    (out / "copilot4d.yaml").write_text(yaml.safe_dump(keys | {"pose_format": "kitti"}))
    write_estimated_poses(out)
    keys |= {"pose_format": "kitti", "poses": "poses_estimated.txt"}
    (out / "copilot4d.yaml").write_text(yaml.safe_dump(keys))
    assert_near_truth(open_dataset(out)["town"].world_from_lidar)


def test_a_named_file_that_has_no_place_is_told_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "estimate_poses", no_work)
    out = write_folder(LOG, tmp_path / "log")
    (out / "poses.txt").unlink()
    (out / "afile").write_text("mine")
    keys = yaml.safe_load((out / "copilot4d.yaml").read_text()) | {"poses": "afile/poses.txt"}
    (out / "copilot4d.yaml").write_text(yaml.safe_dump(keys))
    with pytest.raises(UsageError, match=r"afile/poses\.txt cannot be written"):
        write_estimated_poses(out)
    assert (out / "afile").read_text() == "mine"


NAMES = ("2011_09_26_drive_0001_sync", "2011_09_26_drive_0002_sync")


def raw_tree(root, names=NAMES[:1]):
    """KITTI raw without oxts."""
    for name in names:
        folder = root / "2011_09_26" / name
        (folder / "velodyne_points" / "data").mkdir(parents=True)
        for i, sweep in enumerate(LOG):
            write_points(folder / "velodyne_points" / "data" / f"{i:010d}.bin", sweep.points, sweep.intensity)
        times = "".join(f"2011-09-26 13:04:32.{time_ns:09d}\n" for time_ns in (LOG.timestamps_ns // 2).tolist())
        (folder / "velodyne_points" / "timestamps.txt").write_text(times)
    return root / "2011_09_26"


@pytest.mark.parametrize("opened", ["", "2011_09_26", f"2011_09_26/{NAMES[0]}"])
def test_kitti_raw_uses_what_was_estimated(tmp_path, opened):
    date = raw_tree(tmp_path)
    assert write_estimated_poses(tmp_path / opened) == [date / NAMES[0] / "poses.txt"]
    for path in (tmp_path, date, date / NAMES[0]):
        dataset = open_dataset(path)
        assert (dataset.format, dataset.names) == ("kitti_raw", NAMES[:1])
        assert_near_truth(dataset[NAMES[0]].world_from_lidar)
        np.testing.assert_array_equal(dataset[NAMES[0]].ego_box, KITTI_EGO_BOX)
    assert not list(tmp_path.rglob("copilot4d.yaml"))


def standing_still(drive, track):
    return se3.identity((len(drive),))


def no_work(drive, track):
    raise AssertionError("the files must be looked at before the work")


def test_a_file_that_was_edited_by_hand_is_never_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "estimate_poses", standing_still)
    folder = raw_tree(tmp_path) / NAMES[0]
    write_estimated_poses(tmp_path)
    (folder / "poses.txt").write_text("# mine\n" + (folder / "poses.txt").read_text())
    assert write_estimated_poses(tmp_path) == [folder / "poses_estimated.txt"]
    (folder / "poses_estimated.txt").write_text("mine")
    monkeypatch.setattr(estimate, "estimate_poses", no_work)
    with pytest.raises(
        UsageError, match=r"poses_estimated\.txt exists and is not replaced: .*write_estimated_poses.out"
    ):
        write_estimated_poses(tmp_path)
    assert (folder / "poses.txt").read_text().startswith("# mine")
    assert (folder / "poses_estimated.txt").read_text() == "mine"


def test_all_files_are_looked_at_before_the_first_drive(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "estimate_poses", no_work)
    raw_tree(tmp_path / "raw", NAMES)
    out = tmp_path / "poses"
    out.mkdir()
    (out / f"{NAMES[1]}.txt").write_text("mine")
    with pytest.raises(UsageError, match=rf"{NAMES[1]}\.txt exists and is not replaced"):
        write_estimated_poses(tmp_path / "raw", out=out)
    assert [path.name for path in out.iterdir()] == [f"{NAMES[1]}.txt"]


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

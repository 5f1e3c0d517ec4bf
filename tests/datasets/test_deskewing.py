"""Own data whose points have times: a moving lidar's sweeps come out as if it had stood still while it turned."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from copilot4d import open_dataset
from copilot4d.datasets.point_files import read_points
from copilot4d.datasets.pose_files import write_kitti_poses, write_tum_poses
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import se3
from copilot4d.simulator import simulate_drive

START_NS = 1_700_000_000_000_000_000
FRAMES = range(3, 9)  # with poses on both sides: at the ends the last motion goes on


@pytest.fixture(scope="module")
def drives():
    """The same street with the motion left in and compensated."""
    options = {"seed": 5, "seconds": 1.2}
    return simulate_drive(**options, motion_compensated=False), simulate_drive(**options)


def columns_of(sweep, times_ns, name, unit):
    offsets = times_ns - sweep.timestamp_ns
    times = {
        "ns": offsets.astype(np.int32), "s": (offsets * 1e-9).astype(np.float32),
        "unix s": (times_ns + START_NS) * 1e-9,
    }[unit]  # fmt: skip
    return dict(zip("xyz", sweep.points.T, strict=True)) | {name: times}


def write_sweep(path, columns):
    points = np.stack([columns[axis] for axis in "xyz"], axis=1)
    match path.suffix:
        case ".npz":
            np.savez(path, **({"points": points} | {k: v for k, v in columns.items() if k not in "xyz"}))
        case ".npy":
            rows = np.empty(len(points), dtype=[(name, values.dtype) for name, values in columns.items()])
            for name, values in columns.items():
                rows[name] = values
            np.save(path, rows)
        case ".feather":
            pa.feather.write_feather(pa.table({k: np.ascontiguousarray(v) for k, v in columns.items()}), str(path))
        case ".bin":
            np.stack([v.astype(np.float32) for v in columns.values()], axis=1).tofile(path)
        case ".ply" | ".pcd":
            rows = np.empty(len(points), dtype=[(name, values.dtype) for name, values in columns.items()])
            for name, values in columns.items():
                rows[name] = values
            path.write_bytes(header_of(path.suffix, rows) + rows.tobytes())


def header_of(suffix, rows):
    kinds = {np.dtype("f4"): "float", np.dtype("f8"): "double", np.dtype("i4"): "int"}
    names = rows.dtype.names
    if suffix == ".ply":
        lines = "".join(f"property {kinds[rows.dtype[name]]} {name}\n" for name in names)
        return f"ply\nformat binary_little_endian 1.0\nelement vertex {len(rows)}\n{lines}end_header\n".encode()
    sizes, types = ([str(rows.dtype[n].itemsize) for n in names], [rows.dtype[n].kind.upper() for n in names])
    return (
        f"VERSION 0.7\nFIELDS {' '.join(names)}\nSIZE {' '.join(sizes)}\nTYPE {' '.join(types)}\n"
        f"COUNT {' '.join('1' * len(names))}\nWIDTH {len(rows)}\nHEIGHT 1\nPOINTS {len(rows)}\nDATA binary\n"
    ).encode()


def write_log(folder, drive, *, suffix=".npz", name="t", unit="ns", keys="deskew: true", poses="tum"):
    (folder / "sweeps").mkdir(parents=True)
    for i, sweep in enumerate(drive):
        path = folder / "sweeps" / f"{sweep.timestamp_ns + START_NS:019d}{suffix}"
        write_sweep(path, columns_of(sweep, drive.truth(i).times_ns, name, unit))
    if poses == "tum":
        write_tum_poses(folder / "poses.txt", drive.timestamps_ns + START_NS, drive.world_from_lidar)
    else:
        write_kitti_poses(folder / "poses.txt", drive.world_from_lidar)
    (folder / "copilot4d.yaml").write_text(f"version: 1\nname: log\ntimestamps: {{filename: ns}}\n{keys}\n")
    return folder


@pytest.mark.parametrize(("suffix", "name", "unit", "keys"), [
    (".npz", "t", "ns", ""), (".npy", "timestamp", "unix s", ""), (".feather", "offset_ns", "ns", ""),
    (".ply", "timestamp", "unix s", ""), (".pcd", "Time", "s", ""),
    (".bin", "when", "s", "columns: x y z when\ntime_field: when\ntime_unit: s"),
])  # fmt: skip
def test_a_moving_lidar_s_sweeps_are_those_of_a_compensated_one(tmp_path, drives, suffix, name, unit, keys):
    skewed, true = drives
    log = write_log(tmp_path / "log", skewed, suffix=suffix, name=name, unit=unit, keys=f"deskew: true\n{keys}")
    read, raw = (open_dataset(log, deskew=choice)["log"] for choice in (None, False))
    for i in FRAMES:
        sweep, expected = read[i], true[i]
        assert np.abs(skewed[i].points - expected.points).max() > 0.2, "there is motion to take out"
        assert np.abs(sweep.points - expected.points).max() < 0.02
        assert 0.1 < np.abs(sweep.origins).max() < 1.0, "the starts of the rays follow the lidar"
        assert sweep.timestamp_ns == raw[i].timestamp_ns
        np.testing.assert_array_equal(raw[i].points, skewed[i].points)
        assert raw[i].origins is None


def test_own_data_is_not_moved_unless_it_is_asked_for(tmp_path, drives):
    skewed, _ = drives
    log = write_log(tmp_path / "log", skewed, keys="")
    np.testing.assert_array_equal(open_dataset(log)["log"][4].points, skewed[4].points)
    assert np.abs(open_dataset(log, deskew=True)["log"][4].points - skewed[4].points).max() > 0.2


def test_poses_without_times_serve_too_and_a_worker_reads_the_same(tmp_path, drives):
    skewed, true = drives
    drive = open_dataset(write_log(tmp_path / "log", skewed, poses="kitti"))["log"]
    assert np.abs(drive[5].points - true[5].points).max() < 0.02
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(drive)).read(5).points, drive[5].points)


def test_all_poses_of_a_dense_pose_file_are_used(tmp_path):
    """A lidar that brakes hard between two sweeps: only the poses in between tell how."""
    way = lambda t: 20.0 * t - 50.0 * np.maximum(t - 0.1, 0.0) ** 2  # noqa: E731 - metres after seconds
    (tmp_path / "sweeps").mkdir()
    wall, offsets = 40.0, np.linspace(0.0, 0.1, 50)
    for k in range(3):
        measured = np.stack([wall - way(0.1 * k + offsets), np.zeros(50), np.zeros(50)], axis=1).astype(np.float32)
        write_sweep(tmp_path / "sweeps" / f"{k}.npz", dict(zip("xyz", measured.T, strict=True)) | {"time": offsets})
    dense = np.arange(0, 401) * 1_000_000
    write_tum_poses(
        tmp_path / "poses.txt", dense, se3.from_yaw(np.zeros(401), np.array([[way(t), 0, 0] for t in dense * 1e-9]))
    )
    (tmp_path / "copilot4d.yaml").write_text("version: 1\nname: a\ndeskew: true\ntimestamps: {rate_hz: 10}\n")
    sweep = open_dataset(tmp_path)["a"][1]
    np.testing.assert_allclose(sweep.points[:, 0], wall - way(0.1), atol=2e-3)
    np.testing.assert_allclose(sweep.origins[:, 0], way(0.1 + offsets) - way(0.1), atol=2e-3)


def test_units_and_axes_of_the_file_are_turned_before(tmp_path, drives):
    """x right, y forward, in millimetres."""
    skewed, true = drives
    log = write_log(tmp_path / "log", skewed, keys="deskew: true\nunits: mm\naxes: x right, y forward, z up")
    for i, path in enumerate(sorted((log / "sweeps").iterdir())):
        x, y, z = 1000 * skewed[i].points.T
        write_sweep(
            path, {"x": -y, "y": x, "z": z, "t": (skewed.truth(i).times_ns - skewed[i].timestamp_ns).astype("i4")}
        )
    turn = se3.from_rotation_translation(np.array([[0.0, 1, 0], [-1, 0, 0], [0, 0, 1]]), np.zeros(3))
    poses = se3.compose(skewed.world_from_lidar, turn)
    poses[:, :3, 3] *= 1000
    write_tum_poses(log / "poses.txt", skewed.timestamps_ns + START_NS, poses)
    assert np.abs(open_dataset(log)["log"][5].points - true[5].points).max() < 0.02


@pytest.mark.parametrize(("times", "keys", "words"), [
    (None, "", r"expected a column such as t, time.*found none.*time_field"),
    (np.full(30, 5.0), "", "one and the same for all points"),
    (np.linspace(0, 5, 30), "", "in no unit"),
    (np.linspace(0, 50, 30), "time_unit: s", r"50 s apart|neither offsets"),
    (np.linspace(0, 0.1, 30), "time_field: when", "found none"),
])  # fmt: skip
def test_times_that_are_none_are_told_with_the_file(tmp_path, times, keys, words):
    (tmp_path / "sweeps").mkdir()
    points = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    for k in range(2):
        np.savez(tmp_path / "sweeps" / f"{k}.npz", points=points, **({} if times is None else {"time": times}))
    write_kitti_poses(tmp_path / "poses.txt", se3.identity((2,)))
    (tmp_path / "copilot4d.yaml").write_text(f"version: 1\nname: a\ntimestamps: {{rate_hz: 10}}\n{keys}\n")
    with pytest.raises(DataError, match=rf"1\.npz: times of points.*({words})"):
        open_dataset(tmp_path, deskew=True)["a"][1]
    assert len(open_dataset(tmp_path)["a"][1].points) == 30


def test_times_stay_with_their_points_where_invalid_ones_are_dropped(tmp_path):
    points = np.ones((4, 3), np.float32)
    points[1] = np.nan
    np.savez(tmp_path / "a.npz", points=points, t=np.arange(4))
    assert read_points(tmp_path / "a.npz", drop_invalid=True, time_names=("t",)).times.tolist() == [0, 2, 3]
    np.savez(tmp_path / "b.npz", points=np.ones((4, 3), np.float32), t=np.arange(3))
    with pytest.raises(DataError, match=r"t: expected shape \(4,\), found shape \(3,\)"):
        read_points(tmp_path / "b.npz", time_names=("t",))


@pytest.mark.parametrize("line", ["deskew: maybe", "deskew: 1", "time_unit: min", "time_field: 3"])
def test_wrong_keys_are_refused(tmp_path, drives, line):
    log = write_log(tmp_path / "log", drives[0][:2], keys=line)
    with pytest.raises(DataError, match=line.split(":", maxsplit=1)[0]):
        open_dataset(log)


def test_published_data_sets_are_read_as_they_are(tmp_path):
    from tests.datasets.trees import kitti_tree, small_drive

    tree = kitti_tree(tmp_path, small_drive())
    with pytest.raises(UsageError, match="kitti_odometry, whose files are read as they were published"):
        open_dataset(tree, deskew=True)
    assert "08" in open_dataset(tree, deskew=False)

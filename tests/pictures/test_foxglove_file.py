"""A forecast as an MCAP file: what was written is read back with the `mcap` package, message by message."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from copilot4d.cli.main import main
from copilot4d.datasets import write_folder
from copilot4d.geometry import Sweep, se3
from copilot4d.pictures.foxglove_file import INSTALL, distances, write_foxglove
from tests.datasets.trees import small_drive

foxglove = pytest.importorskip("foxglove")
mcap_reader = pytest.importorskip("mcap.reader")


def messages(path):
    with path.open("rb") as file:
        return [(c.topic, s.name, m.log_time, m.data) for s, c, m in mcap_reader.make_reader(file).iter_messages()]


def fields(data):
    """Protobuf by hand: {number: [values]} of one message; enough to check what stands in it."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
            value = data[at : at + size]
            at += size
        found.setdefault(key >> 3, []).append(value)
    return found


def cloud(data):
    """foxglove.PointCloud: frame_id 2, stride 4 (fixed32), fields 5, data 6."""
    parts = fields(data)
    names = [fields(f)[1][0].decode() for f in parts[5]]
    stride = int.from_bytes(parts[4][0], "little")
    assert stride == 4 * len(names)
    rows = np.frombuffer(parts[6][0], "<f4").reshape(-1, len(names))
    return parts[2][0].decode(), names, rows


def test_everything_reads_back(tmp_path):
    drive = small_drive(5, points=50)
    past, future = [drive[0], drive[1]], [drive[2], drive[3], drive[4]]
    guess = [Sweep(points=s.points + 1, world_from_lidar=s.world_from_lidar, timestamp_ns=0) for s in future]
    times = [s.timestamp_ns for s in future]
    path = write_foxglove(
        tmp_path / "new" / "x.mcap", past=past, futures=[guess, guess], truth=future[:2], timestamps_ns=times
    )  # fmt: skip
    read = messages(path)
    counts = {topic: sum(t == topic for t, *_ in read) for topic in {t for t, *_ in read}}
    assert counts == {"/tf": 5, "/past": 2, "/forecast": 3, "/forecast_2": 3, "/truth": 2, "/difference": 2}
    by_topic = {(topic, time): data for topic, _, time, data in read}
    assert {name for topic, name, *_ in read if topic == "/past"} == {"foxglove.PointCloud"}
    frame, names, rows = cloud(by_topic["/past", 100_000_000])
    assert (frame, names) == ("lidar", ["x", "y", "z", "intensity"])
    np.testing.assert_array_equal(rows, np.column_stack([past[1].points, past[1].intensity]))
    _, names, rows = cloud(by_topic["/difference", 200_000_000])
    assert names == ["x", "y", "z", "error_m"]
    np.testing.assert_array_equal(rows[:, :3], guess[0].points)
    np.testing.assert_array_equal(rows[:, 3], distances(guess[0], future[0]))
    moved = fields(by_topic["/tf", 300_000_000])
    place = [np.frombuffer(value[0], "<f8")[0] for _, value in sorted(fields(moved[4][0]).items())]
    np.testing.assert_allclose(place, drive.world_from_lidar[3, :3, 3])
    assert not list(path.parent.glob(".*")), "nothing else is left"


def test_distances_by_hand():
    """A true point at 10 m, seen 1 m further on: 9 m ahead. Predicted at 9 m: 0 m off; at 12 m: 3 m off."""
    true = Sweep(points=np.array([[10, 0, 0]], np.float32), world_from_lidar=np.eye(4), timestamp_ns=0)
    ahead = Sweep(
        points=np.array([[9, 0, 0], [12, 0, 0]], np.float32), world_from_lidar=se3.from_yaw(0.0, (1, 0, 0)),
        timestamp_ns=0,
    )  # fmt: skip
    np.testing.assert_allclose(distances(ahead, true), [0, 3], atol=1e-6)
    empty = true.select(np.zeros(1, bool))
    assert np.isinf(distances(ahead, empty)).all()
    assert len(distances(empty, true)) == 0


def test_forecast_out_mcap(tmp_path, capsys):
    write_folder(small_drive(21, points=300), tmp_path / "d")
    base = ["forecast", "--model", "copy_last", "--data", str(tmp_path / "d")]
    assert main([*base, "--out", str(tmp_path / "x.mcap")]) == 0
    topics = {topic for topic, *_ in messages(tmp_path / "x.mcap")}
    assert topics == {"/tf", "/past", "/truth", "/forecast", "/difference"}
    assert "x.mcap" in capsys.readouterr().out
    assert main([*base, "--out", str(tmp_path / "x.mcap"), "--pictures"]) == 2
    assert "--pictures go into a folder" in capsys.readouterr().err


def test_without_the_extra_the_error_is_one_sentence():
    program = (
        "import sys; sys.modules['foxglove'] = None\nfrom copilot4d.cli.main import main\n"
        "sys.exit(main(['forecast', '--model', 'copy_last', '--data', 'd', '--out', 'x.mcap']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert " ".join(done.stderr.split()) == (
        f"copilot4d: writing .mcap files needs foxglove-sdk, which is not installed: {INSTALL}"
    )

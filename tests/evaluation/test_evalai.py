"""The challenge's files: queries of true rays are answered by depths, the same tree in the same order."""

from __future__ import annotations

import json

import numpy as np
import pytest

from copilot4d.cli.main import main
from copilot4d.errors import DataError, UsageError
from copilot4d.evaluation.evalai import answer, read_queries, reference_of
from copilot4d.forecaster import Forecast, PlainForecaster
from copilot4d.geometry import Drive, Sweep, se3
from tests.datasets.argoverse2_logs import LOG, tiny_drive
from tests.support.argoverse2_tree import write_argoverse2


class Wall(PlainForecaster):
    """Answers each ray by where it meets the plane x = 20 of the world."""

    name = "wall"

    def forecast(self, past, future_poses, rays=None, **_):
        depths, sweeps = [], []
        for pose, given in zip(future_poses, rays, strict=True):
            world = given.transformed(pose)
            depths.append((20 - world.origins[:, 0]) / world.directions[:, 0])
            sweeps.append(Sweep(points=np.zeros((1, 3), np.float32), world_from_lidar=pose, timestamp_ns=0))
        return Forecast(sweeps=tuple(sweeps), depths=tuple(depths))


def test_rays_are_asked_in_the_reference_frame_and_answered_in_metres():
    """The ego looks along -x of the world from x = 30 ... and the rays come from where the future lidar is."""
    reference = se3.from_yaw(0.0, (2.0, 0, 0))
    future = np.stack([se3.from_yaw(0.3, (3.0 + k, 0, 0)) for k in range(2)])
    past = (Sweep(points=np.ones((1, 3), np.float32), world_from_lidar=reference, timestamp_ns=0),)
    rows = [np.array([[1.0 + k, 0, 0, 1, 0, 0], [1.0 + k, 0, 0, 0.5, 0.5, 0]]) for k in range(2)]
    depths = answer(Wall(), past, future, rows)
    np.testing.assert_allclose(depths[0], [17, 17 * np.sqrt(2)])
    np.testing.assert_allclose(depths[1], [16, 16 * np.sqrt(2)])
    with pytest.raises(UsageError, match="ask for 3 future frames"):
        answer(Wall(), past, future, [*rows, rows[0]])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"queries": {}}', '{"queries": [{"horizon": "2s", "rays": {}}]}',
                                  '{"queries": [{"horizon": "3s", "rays": {"a": []}}]}'])  # fmt: skip
def test_files_that_are_no_queries(tmp_path, text):
    (tmp_path / "q.json").write_text(text)
    with pytest.raises(DataError, match=r"queries: expected .*To fix it: take the query file"):
        read_queries(tmp_path / "q.json")


def test_frames_are_names_of_sweeps(tmp_path):
    sweeps = [
        Sweep(points=np.ones((1, 3), np.float32), world_from_lidar=np.eye(4), timestamp_ns=10**17 + k) for k in (0, 5)
    ]
    drive = Drive.from_sweeps("a", sweeps)
    assert reference_of(drive, f"{10**17 + 5}.feather", tmp_path) == 1
    assert reference_of(drive, f"{10**17}", tmp_path) == 0
    for wrong in ("7.feather", "x", "9" * 30):
        with pytest.raises(DataError, match="names of its sweeps"):
            reference_of(drive, wrong, tmp_path)


def test_the_verb(tmp_path, capsys):
    log = write_argoverse2(tmp_path / "val" / LOG, tiny_drive(61))
    names = sorted(path.name for path in (log / "sensors" / "lidar").iterdir())
    ray = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    frame = names[24]
    queries = {"queries": [{"horizon": "3s", "rays": {log.name: {frame: [[ray, ray]] * 5}}}]}
    (tmp_path / "q.json").write_text(json.dumps(queries))
    base = ["evaluate", "--model", "copy_last", "--data", str(tmp_path / "val"), "--setting", "3s"]
    out = tmp_path / "submission.json"
    assert main([*base, "--submission", "evalai", "--queries", str(tmp_path / "q.json"), "--out", str(out)]) == 0
    rays = json.loads(out.read_text())["queries"][0]["rays"][log.name][frame]
    assert [len(row) for row in rays] == [2] * 5
    assert all(len(depth) == 1 and depth[0] > 0 for row in rays for depth in row)
    capsys.readouterr()
    assert main([*base, "--submission", "evalai", "--out", str(out)]) == 2
    assert "--queries FILE go together" in capsys.readouterr().err
    queries["queries"][0]["rays"] = {"elsewhere": {}}
    (tmp_path / "q.json").write_text(json.dumps(queries))
    assert main([*base, "--submission", "evalai", "--queries", str(tmp_path / "q.json"), "--out", str(out)]) == 2
    assert "elsewhere first" in capsys.readouterr().err

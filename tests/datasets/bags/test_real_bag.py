"""A real KITTI drive as a bag gives the scores of the tree that it was made from."""

from __future__ import annotations

import json

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.cli.main import main
from copilot4d.datasets import write_folder
from tests.support.bags import START_NS, write_bag
from tests.support.real_data import unpack_drive


@pytest.mark.slow
def test_a_real_drive_as_a_bag_has_the_scores_of_the_tree(tmp_path):
    tree = open_dataset(unpack_drive("train_0011", tmp_path / "kitti", sweeps=12))
    drive = tree[tree.names[0]]
    write_folder(drive, tmp_path / "tree")
    path = write_bag(tmp_path, drive, name="bag")
    box = ", ".join(str(value) for value in drive.ego_box).replace("inf", ".inf")
    (tmp_path / "bag.copilot4d.yaml").write_text(f"version: 1\nego_box: [{box}]\n")
    read = open_dataset(path)["bag"]
    for i in (0, 7):
        np.testing.assert_array_equal(read[i].points, drive[i].points)
    np.testing.assert_array_equal(read.timestamps_ns - START_NS, drive.timestamps_ns)
    np.testing.assert_allclose(read.world_from_lidar, drive.world_from_lidar, atol=1e-9)
    scores = []
    for data in (tmp_path / "tree", path):
        out = tmp_path / f"{data.stem}.json"
        options = ["--model", "copy_last", "--setting", "1s", "--every", "5", "--limit", "2"]
        assert main(["evaluate", *options, "--data", str(data), "--out", str(out)]) == 0
        scores.append(json.loads(out.read_text())["metrics"])
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)

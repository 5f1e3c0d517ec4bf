"""The page 'from a bag to a forecast in five minutes', run: every command but the one that opens a browser."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields

import numpy as np
import pytest
import yaml

from copilot4d.cli.main import main
from copilot4d.datasets.bags.description import BagDescription
from copilot4d.simulator import simulate_drive
from copilot4d.simulator.sensors import LidarSensor, SpinningHead
from tests.support.bags import START_NS, write_bag
from tests.support.real_data import REPOSITORY

PAGE = (REPOSITORY / "docs" / "bags.md").read_text()
SENSOR = LidarSensor(
    name="small", heads=(SpinningHead(elevations_deg=tuple(np.linspace(3, -22, 16).tolist()), columns=360),)
)  # fmt: skip


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A moving lidar with its motion left in, stamped at the middle of each sweep, with absolute times per point."""
    skewed = simulate_drive(seed=5, seconds=2.6, sensor=SENSOR, motion_compensated=False)
    by_stamp = {s.timestamp_ns: skewed.truth(i).times_ns for i, s in enumerate(skewed)}

    def columns(sweep):
        times = (by_stamp[sweep.timestamp_ns] + START_NS) * 1e-9
        return {"x": sweep.points[:, 0], "y": sweep.points[:, 1], "z": sweep.points[:, 2], "timestamp": times}

    root = tmp_path_factory.mktemp("page")
    write_bag(root, skewed, columns=columns)
    return root


@pytest.mark.slow
def test_every_command_of_the_page_runs(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("copilot4d ")]
    assert [shlex.split(line)[1] for line in lines] == [
        "doctor", "doctor", "forecast", "evaluate", "evaluate", "compare", "view", "evaluate",
    ]  # fmt: skip
    for line in lines:
        words = shlex.split(line)[1:]
        if words[0] == "view":  # serves until Ctrl-C: its own tests open it
            continue
        code = main(words)
        said = capsys.readouterr()
        assert code == 0, f"{line}: {said.out}{said.err}"
        if words[0] == "doctor":
            assert "ros_bag, 1 drive" in said.out
            assert "deskewed" in said.out
    assert (folder / "forecast" / "future_05.ply").is_file()
    assert (folder / "scores" / "resampled.json").is_file()


def test_every_program_of_the_page_runs(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for program in blocks("python"):
        exec(compile(program, "bags.md", "exec"), {})


def test_every_key_is_documented():
    rows = re.findall(r"^\| `(\w+)` \|", PAGE[PAGE.index("## The description") :], re.MULTILINE)
    assert rows == [field.name for field in fields(BagDescription)]
    for block in blocks("yaml"):
        assert yaml.safe_load(block)["version"] == 1

"""The programs in the documentation of data sets do what they say."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import yaml

from copilot4d import open_dataset
from copilot4d.datasets.folder_config import _PARSERS
from copilot4d.simulator import simulate_drive
from tests.support.real_data import REPOSITORY


def code_blocks(page: str, language: str) -> list[str]:
    text = (REPOSITORY / "docs" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_worked_example_prints_what_it_says(tmp_path):
    program = next(block for block in code_blocks("own_data.md", "python") if "morning" in block)
    promised = re.findall(r"^print\(.*?\)\s+# (.*)$", program, re.MULTILINE)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == promised
    assert len(promised) == 3


def test_the_log_of_the_fifteen_minutes_opens_as_it_was_recorded(tmp_path):
    program = next(block for block in code_blocks("own_data.md", "python") if "convert.py" in block)
    assert "seconds=12.0" in program
    shorter = program.replace("seconds=12.0", "seconds=0.3")
    done = subprocess.run([sys.executable, "-c", shorter], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    dataset = open_dataset(tmp_path / "my_logs")
    assert dict(dataset.splits) == {"train": ("monday",), "val": ("tuesday",)}
    recorded = simulate_drive(seed=2, seconds=0.3)
    drive = dataset["tuesday"]
    assert len(drive) == len(recorded) == 3
    np.testing.assert_array_equal(drive[1].points, recorded[1].points)
    np.testing.assert_array_equal(drive[1].intensity, recorded[1].intensity)
    np.testing.assert_allclose(drive[2].world_from_lidar, recorded[2].world_from_lidar, atol=1e-9)
    assert drive[1].timestamp_ns - drive[0].timestamp_ns == 100_000_000
    box = recorded.ego_box
    assert (drive.ego_box[:3] <= box[:3]).all()
    assert (drive.ego_box[3:] >= box[3:] - 1e-9).all(), "the own body's returns are left out"


def test_every_key_is_documented():
    text = (REPOSITORY / "docs" / "own_data.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert rows == ["version", *_PARSERS]


def test_descriptions_in_the_page_are_yaml():
    assert code_blocks("own_data.md", "yaml")
    for block in code_blocks("own_data.md", "yaml"):
        assert yaml.safe_load(block)["version"] == 1

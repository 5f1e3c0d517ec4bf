"""The programs in the documentation of data sets do what they say."""

from __future__ import annotations

import re
import subprocess
import sys

import yaml

from copilot4d.datasets.folder_config import _PARSERS
from tests.support.real_data import REPOSITORY


def code_blocks(page: str, language: str) -> list[str]:
    text = (REPOSITORY / "docs" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_worked_example_prints_what_it_says(tmp_path):
    program = next(block for block in code_blocks("own_data.md", "python") if "my_log" in block)
    promised = re.findall(r"^print\(.*?\)\s+# (.*)$", program, re.MULTILINE)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == promised
    assert len(promised) == 3


def test_every_key_is_documented():
    text = (REPOSITORY / "docs" / "own_data.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert rows == ["version", *_PARSERS]


def test_descriptions_in_the_page_are_yaml():
    for block in code_blocks("own_data.md", "yaml"):
        assert yaml.safe_load(block)["version"] == 1

"""A thousand actions, invalid ones, forks and resets: nothing breaks, nothing grows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.real_data import REPOSITORY


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
@pytest.mark.parametrize("model", ["dreamer", "ray_tracing"])
def test_a_thousand_events(model):
    run = subprocess.run(
        [sys.executable, "-m", "tests.environment.marathon", model],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert sum(told["counts"].values()) == 1000
    assert min(told["counts"].values()) >= 10  # every kind of event happened
    assert told["memory"]["1000"] <= 1.1 * told["memory"]["100"]

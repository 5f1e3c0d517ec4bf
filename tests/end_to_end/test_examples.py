"""The examples run from the first cell to the last, on simulated logs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.real_data import REPOSITORY


def run_example(name: str, *words: str, folder) -> str:
    command = [sys.executable, str(REPOSITORY / "examples" / name), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_forecast_your_log(tmp_path):
    told = run_example("forecast_your_log.py", "--model", "ray_tracing", "--out", "out", folder=tmp_path)
    assert "frame 5:" in told
    assert "3 reference frames" in told
    assert (tmp_path / "out" / "forecast.png").stat().st_size > 10_000
    again = run_example("forecast_your_log.py", "--data", "out/log", "--model", "copy_last", folder=tmp_path)
    assert "copy_last: ROI Chamfer" in again


def test_what_if(tmp_path):
    told = run_example("what_if.py", "--model", "ray_tracing", folder=tmp_path)
    ways = {
        line.split(":")[0]: float(line.split("moves ")[1].split(" m")[0])
        for line in told.splitlines()
        if "moves" in line
    }
    assert ways["braking"] < 0.7 * ways["as recorded"]
    assert ways["one metre to the left"] > 0.9 * ways["as recorded"]
    assert (tmp_path / "what_if.png").stat().st_size > 10_000


@pytest.mark.slow
def test_train_on_your_data(tmp_path):
    told = run_example("train_on_your_data.py", folder=tmp_path)
    assert "train on ['monday'] and hold out tuesday" in told
    assert (tmp_path / "train_on_your_data" / "tuned.json").is_file()
    assert "$ copilot4d compare" in told

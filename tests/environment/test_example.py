"""The example in examples/ runs as its docstring says, and finds what it promises."""

from __future__ import annotations

import re
import subprocess
import sys

import PIL.Image

from tests.support.real_data import REPOSITORY


def test_the_what_if_planner_brakes_behind_a_car_that_stops(tmp_path):
    picture = tmp_path / "plans.png"
    script = REPOSITORY / "examples" / "what_if_planner.py"
    run = subprocess.run(
        [sys.executable, str(script), str(picture)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "best: brake" in run.stdout
    nearest = {name: float(m) for name, m in re.findall(r"^(\w+) +reward .* nearest +([\d.]+) m$", run.stdout, re.M)}
    assert nearest["keep"] < 0.5 < 5 < nearest["brake"]  # into the car, and well behind it
    with PIL.Image.open(picture) as image:
        assert image.width > 1600
    assert [file.name for file in tmp_path.iterdir()] == ["plans.png"]

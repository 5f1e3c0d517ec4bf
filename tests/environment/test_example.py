"""The example in examples/ runs as its docstring says, and finds what it promises."""

from __future__ import annotations

import re
import subprocess
import sys

import PIL.Image
import pytest

from tests.support.real_data import REPOSITORY
from tests.support.shipped import shipped_mini


def planned(tmp_path, *model):
    """What the script says: the best plan, and {plan: (reward, nearest)}. It leaves its picture and nothing else."""
    picture = tmp_path / "plans.png"
    script = REPOSITORY / "examples" / "what_if_planner.py"
    run = subprocess.run(
        [sys.executable, str(script), str(picture), *model], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    rows = re.findall(r"^(\w+) +reward +([-\d.]+), nearest +([\d.]+) m$", run.stdout, re.M)
    with PIL.Image.open(picture) as image:
        assert image.width > 1600
    assert [file.name for file in tmp_path.iterdir()] == ["plans.png"]
    [best] = re.findall(r"^best: (\w+)$", run.stdout, re.M)
    return best, {name: (float(reward), float(nearest)) for name, reward, nearest in rows}


def test_the_what_if_planner_brakes_behind_a_car_that_stops(tmp_path):
    best, plans = planned(tmp_path, "copy_last")
    assert best == "brake"
    assert plans["keep"][1] < 0.5 < 5 < plans["brake"][1]  # into the car, and well behind it


@pytest.mark.slow
def test_the_what_if_planner_plans_in_what_the_shipped_model_imagines(tmp_path):
    shipped_mini()
    best, plans = planned(tmp_path)
    assert plans.keys() == {"keep", "brake", "swerve"}
    assert plans[best][0] == max(reward for reward, _ in plans.values())

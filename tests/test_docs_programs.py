"""The Python of the pages runs: every block of a page, one after another, on a small drive in place of a data set."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import copilot4d
from copilot4d import load_forecaster, presets
from copilot4d.datasets import Dataset
from copilot4d.datasets.windows import read_clip, window_at
from copilot4d.geometry import se3
from copilot4d.tokenizer import Tokenizer
from tests.support.real_data import REPOSITORY
from tests.support.scenes import make_drive

PAGES = ["library", "forecast", "windows", "datasets", "scoring", "pictures", "environment", "tokenizer", "world_model"]
SMALLER = {'"mini"': '"copy_last"', "presets.mini()": "presets.tiny()"}  # shipped weights would take a minute


def blocks(page: str) -> list[str]:
    text = (REPOSITORY / "docs" / f"{page}.md").read_text()
    for large, small in SMALLER.items():
        text = text.replace(large, small)
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the pages take as given."""
    drive = make_drive(140, rings=6, azimuths=60)
    clip = read_clip(drive, window_at(drive, 40, "1s"))
    last = clip.past[-1].world_from_lidar
    poses = np.stack([sweep.world_from_lidar for sweep in (*clip.past, *clip.future)])
    future = load_forecaster("ray_tracing").forecast(clip.past, clip.future_poses)
    config = presets.tiny().world_model
    return {
        "drive": drive, "sweep": drive[0], "sweeps": [drive[0], drive[1]], "points": drive[0].points,
        "past": clip.past, "true_future": clip.future, "future_poses": clip.future_poses, "future": future,
        "rays": [sweep.rays()[0] for sweep in clip.future],
        "next_pose": clip.future_poses[0], "pose_if_braking": last, "pose_if_not": clip.future_poses[1],
        "my_model": load_forecaster("copy_last"),
        "predicted_points": drive[1].points, "true_points": drive[1].points, "origin": np.zeros(3),
        "roi": np.array([-70, -70, -4.5, 70, 70, 4.5]),
        "poses": se3.relative_motion(np.broadcast_to(last, poses.shape), poses),
        "past_s": [-0.8, -0.6, -0.4, -0.2, 0.0], "future_s": [0.2, 0.4, 0.6, 0.8, 1.0],
        "gymnasium": gymnasium, "actions": np.zeros((8, 2), dtype=np.float32),
        "past_tokens": torch.zeros(1, 2, *config.tokens, dtype=torch.int64), "past_poses": poses[None, :2],
    }  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_every_program_of_the_page_runs(page, names, monkeypatch, tmp_path):
    given = dict(names)
    if page == "world_model":
        given["future_poses"] = names["future_poses"][None, :2]
    drive = names["drive"]
    dataset = Dataset(
        format="memory", root=Path("here"), names=("08", "val_000", "val_012"), open_drive=lambda _: drive,
        splits={"val": ("08",)},
    )  # fmt: skip
    monkeypatch.setattr(copilot4d, "open_dataset", lambda _: dataset)
    tokenizer = SimpleNamespace(tokenizer=Tokenizer(presets.tiny().tokenizer).eval())
    monkeypatch.setattr("copilot4d.checkpoints.load_tokenizer.load_tokenizer", lambda _: tokenizer)
    monkeypatch.chdir(tmp_path)
    programs = blocks(page)
    assert programs, "a page of this list has programs"
    for number, program in enumerate(programs):
        given_before = dict(given)
        try:
            exec(compile(program, f"docs/{page}.md, block {number}", "exec"), given)
        except Exception as error:
            raise AssertionError(f"docs/{page}.md, block {number}:\n{program}") from error
        for name in ("past", "future", "future_poses"):  # a block's own results do not change what the next is given
            given[name] = given_before.get(name)

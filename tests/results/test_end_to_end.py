"""The whole plan at the size of a toy: every command runs, a second call runs nothing, and the tables fill."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import failures
import floor
import make
import pytest
import render
from budgets import Budget, Data, Training
from plan import results_plan

from copilot4d.cli.main import main as copilot4d
from copilot4d.datasets import write_folder
from tests.support.scenes import make_drive

TABLES = ["main", "sampling", "tokenizers", "tokenizer_ablation", "futures", "failures", "token_frames"]
QUICK = Training(steps=1, core_minutes=0.1, options=("--workers", "0", "--log-every", "1"))


def write_drives(folder: Path, *names: str, **properties) -> None:
    for k, name in enumerate(names):
        drive = make_drive(12, rate_hz=5.0, speed=3.0 + k, rings=8, azimuths=60, name=name, **properties)
        write_folder(drive, folder / name)


def toy_budget(data: Path) -> Budget:
    def scored(name: str, path: str, *drives: str, report: bool = False) -> Data:
        return Data(name=name, path=path, title=name, references=12, drives=drives, report=report)

    every = dict.fromkeys(
        ("every", "test_every", "ablation_every", "sampling_every", "futures_every", "tokenizer_every"), 12
    )
    scoring = {**every, "settings": ("1s",), "roi_half_m": 16.0}
    trained = {"--evaluate-every": "1", "--held-out-clips": "1"}
    occupancy = replace(QUICK, changes="future_frames: 5\npast_frames: 5\n")  # the protocol's, not the tiny preset's
    world = replace(QUICK, options=(*QUICK.options, *(w for pair in trained.items() for w in pair)))
    return Budget(
        preset="tiny", **scoring, sampling_steps=(2,), guidances=(0.0, 1.0), futures=2,
        street_train=str(data / "train"), token_train=str(data / "train"), own_train=str(data / "train"),
        tokenizer_held_out=("val_a",), token_held_out=("val_a",), kitti_train=("k_train",),
        val=scored("val", str(data / "val")), test=scored("test", str(data / "test"), report=True),
        fresh=scored("fresh", str(data / "test"), report=True), fresh_every=12,
        kitti_choice=scored("k_choice", "KITTI", "k_choice"),
        kitti_report=scored("k_report", "KITTI", "k_report", report=True),
        other_sensor=scored("other", str(data / "other")),
        tokenizer_options=("--batch", "2", "--held-out-sweeps", "1"), street_rays=32, kitti_rays=32,
        streets_1=QUICK, streets=QUICK, kitti=QUICK,
        tokenizer_modes=dict.fromkeys(("full", "no_skipping", "voxel_centres"), QUICK),
        reference_every=2, own_intervals=(1,), world_options=("--batch", "2"),
        gate_train=str(data / "train"), gate_drives=("train_a",), gate_forecasts=(5,),
        kitti_gate_forecasts=(5,), gate_options=("--updates", "2", "--top-k", "1"),
        world_models=(world, replace(world, gathered_past=True)),
        kitti_world_model=world, token_frames=world, occupancy=occupancy, kitti_occupancy=occupancy,
    )  # fmt: skip


class InProcess:
    """Runs a command here: a new process for each would import torch a hundred times."""

    def __init__(self):
        self.ran = 0

    def __call__(self, command) -> int:
        self.ran += 1
        if command[1:3] == ["-m", "copilot4d.cli.main"]:
            return copilot4d(command[3:])
        module = {"floor.py": floor, "failures.py": failures}[Path(command[1]).name]
        return module.main(command[2:])


@pytest.mark.slow
@pytest.mark.timeout(3600)  # a minute of work, on a machine that may have other things to do
def test_the_whole_plan_at_the_size_of_a_toy(tmp_path, capsys):
    write_drives(tmp_path / "train", "train_a", split="train")
    write_drives(tmp_path / "val", "val_a", split="val")
    write_drives(tmp_path / "test", "test_a", "test_b", split="test")
    write_drives(tmp_path / "other", "other_a")
    write_drives(tmp_path / "kitti", "k_train", "k_choice", "k_report")
    plan, execute = results_plan(toy_budget(tmp_path)), InProcess()
    where = ["--work", str(tmp_path / "results")]
    words = [*where, "--kitti", str(tmp_path / "kitti"), "--only", *TABLES, "--report"]
    assert make.main(words, plan=plan, execute=execute) == 0, capsys.readouterr().err
    ran = execute.ran
    assert ran == len(plan.in_order(plan.chosen(TABLES)))  # each once
    assert ran > 40
    assert make.main(words, plan=plan, execute=execute) == 0
    assert execute.ran == ran  # all is there

    capsys.readouterr()
    assert render.main([*where, "--only", "main"], plan=plan) == 0
    text = capsys.readouterr().out
    rows = [line for line in text.splitlines() if line.startswith(("| test, 1s |", "| k_report, 1s |"))]
    counts = {"test": 8, "k_report": 8}  # models, 4D-Occ read in two ways, and the floor
    assert len(rows) == sum(n + n + (n - 1) for n in counts.values())  # all columns, per horizon, ratios
    bare = [line for line in rows if line.endswith("| - |")]
    assert [line.split(" | ")[0] for line in bare] == ["| k_report, 1s"] * 7  # one reference has no interval
    assert "†" not in text

    page = tmp_path / "page.md"
    page.write_text("\n".join(f"<!-- results:{name} -->\n<!-- /results:{name} -->" for name in TABLES))
    assert render.main([*where, "--update", str(page)], plan=plan) == 0
    assert len(list((tmp_path / "images").iterdir())) >= 2
    assert "| own |" in page.read_text()
    frames = list(csv.DictReader((tmp_path / "data" / "main.csv").read_text().splitlines()))
    ahead = [row["ahead"] for row in frames if row["on"] in ("test, 1s", "k_report, 1s")]
    assert len(ahead) == 5 * sum(counts.values())  # all columns for each frame ahead

"""A run that is killed again and again ends bit-identical to one that is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from copilot4d.training import open_checkpoint, train
from tests.training.killing import assert_same_end, run_to_end, steps_for, train_and_kill
from tests.training.processes import run_ranks
from tests.training.toy import ToyTask, toy_config

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("kills", "in_save"), [(2, 1), pytest.param(10, 4, marks=pytest.mark.slow)], ids=["2 kills", "10 kills"]
)
def test_a_killed_run_ends_like_one_that_is_left_alone(kills, in_save, tmp_path):
    steps = steps_for(kills)
    assert run_to_end(tmp_path / "reference", workers=0, steps=steps) == 0
    tally = train_and_kill(tmp_path / "killed", kills, seed=1)
    assert tally.kills == kills
    assert tally.in_save >= in_save
    assert assert_same_end(tmp_path / "killed", tmp_path / "reference", steps) > 30


def torchrun(run: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1",
               "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "-m", "tests.training.toy_run", str(run),
               *flags]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, env=environment, timeout=200)


@pytest.mark.slow
def test_torchrun_restarts_a_dead_rank_and_the_run_goes_on(tmp_path):
    """One rank dies of SIGKILL at step 12, once; torchrun starts both again and they resume from step 10."""
    run_ranks(2, lambda rank: train(ToyTask(), toy_config(tmp_path / "calm")).step)
    killed = torchrun(tmp_path / "killed", "--die-once", "12")
    assert killed.returncode == 0, killed.stderr
    assert "going on from step 10" in killed.stdout
    a, b = (open_checkpoint(tmp_path / r / "checkpoints" / "step_000000020") for r in ("calm", "killed"))
    for file in ("model", "optimizer"):
        left, right = a.tensors(file), b.tensors(file)
        assert all((left[name] == right[name]).all() for name in left)

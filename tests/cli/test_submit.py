"""`--submit`: what a job runs, what is refused, and a training that is interrupted in its job and goes on."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from copilot4d.cli import submit as submitting
from copilot4d.cli.main import main
from copilot4d.cli.options.cluster_options import ClusterOptions
from copilot4d.cli.submitted_job import WITHIN_JOB, SubmittedJob
from copilot4d.errors import UsageError
from tests.tokens.moving_drives import make, moving_drive

WORDS = ("train", "tokenizer", "--run", "runs/a")


def train_words(folder: Path, *more: object) -> list[str]:
    words = ["train", "world-model", "--preset", "tiny", "--tokens", folder / "tokens", "--run", folder / "run",
             "--workers", 0, "--precision", "fp32", "--log-every", 1, "--evaluate-every", "None", *more]  # fmt: skip
    return [str(word) for word in words]


def test_one_process_runs_the_verb_and_several_run_torchrun():
    assert SubmittedJob(WORDS, 1, 1).command("h", "7") == [sys.executable, "-m", "copilot4d.cli.main", *WORDS]
    one = SubmittedJob(WORDS, 1, 8).command("h", "7")
    assert one[1:3] == ["-m", "torch.distributed.run"]
    assert "--standalone" in one
    two = shlex.join(SubmittedJob(WORDS, 2, 8).command("node4", "7"))
    assert "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint node4:29500 --rdzv-id 7 --nproc-per-node 8" in two
    assert two.endswith("-m -- copilot4d.cli.main train tokenizer --run runs/a")


def test_a_node_runs_a_process_for_each_gpu():
    assert ClusterOptions(gpus=8).processes_of_a_node == 8
    assert ClusterOptions().processes_of_a_node == 1
    assert ClusterOptions(processes=2).processes_of_a_node == 2
    with pytest.raises(UsageError, match=r"`cluster.nodes` must be at least 1, got 0"):
        ClusterOptions(nodes=0)
    with pytest.raises(UsageError, match=r"three minutes"):
        ClusterOptions(hours=float("nan"))


def test_without_the_extra_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "submitit", None)
    (tmp_path / "tokens").mkdir()
    assert main(train_words(tmp_path, "--submit", "local")) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "`submit` (--submit) local needs submitit" in said
    assert "pip install 'copilot4d[cluster]'" in said
    assert not (tmp_path / "run").exists()


def test_slurm_where_there_is_none_and_two_nodes_of_this_machine_are_refused(tmp_path, monkeypatch, capsys):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "tokens").mkdir()
    assert main(train_words(tmp_path, "--submit", "slurm")) == 2
    assert "needs Slurm's commands (sbatch, srun)" in " ".join(capsys.readouterr().err.split())
    assert main(train_words(tmp_path, "--submit", "local", "--cluster.nodes", 2)) == 2
    assert "`cluster.nodes` (--cluster.nodes) is 2" in " ".join(capsys.readouterr().err.split())


def test_what_is_asked_of_slurm(tmp_path, monkeypatch, capsys):
    """With commands that only take note, as no Slurm is here."""
    pytest.importorskip("submitit")
    for name, line in (("srun", "exit 0"), ("sbatch", f'cp "$1" {tmp_path}/asked.sh; echo Submitted batch job 41')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "tokens").mkdir()
    cluster = ("--cluster.nodes", 2, "--cluster.gpus", 8, "--cluster.cpus", 64, "--cluster.hours", 12,
               "--cluster.partition", "big")  # fmt: skip
    assert main(train_words(tmp_path, "--submit", "slurm", *cluster)) == 0
    said = capsys.readouterr().out
    assert f"job 41 is submitted; it trains in {tmp_path / 'run'}" in " ".join(said.split())
    assert "scancel 41" in said
    asked = dict(re.findall(r"#SBATCH --([a-z-]+)=(\S+)", (tmp_path / "asked.sh").read_text()))
    expected = {"nodes": "2", "gpus-per-node": "8", "cpus-per-task": "64", "time": "720", "partition": "big",
                "ntasks-per-node": "1", "signal": "USR2@120", "job-name": "copilot4d_run"}  # fmt: skip
    assert {name: asked.get(name) for name in expected} == expected
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho no such partition >&2; exit 1\n")
    assert main(train_words(tmp_path, "--submit", "slurm")) == 2
    assert "the job was not accepted" in capsys.readouterr().err


def test_within_the_job_the_same_words_train(monkeypatch):
    options = submitting.RunOptions(run=Path("runs/a"), submit="slurm")
    monkeypatch.delenv(WITHIN_JOB, raising=False)
    assert submitting.is_to_be_submitted(options)
    assert not submitting.is_to_be_submitted(submitting.RunOptions(run=Path("runs/a")))
    monkeypatch.setenv(WITHIN_JOB, "1")
    assert not submitting.is_to_be_submitted(options)


def wait_for(what, seconds: float = 500.0):
    """The first true answer of `what`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def steps_of(run: Path) -> list[int]:
    log = run / "log.jsonl"
    lines = log.read_text().splitlines() if log.is_file() else []
    return [json.loads(line)["step"] for line in lines if '"step"' in line]


@pytest.mark.slow
def test_a_job_that_is_interrupted_saves_and_goes_on(tmp_path, monkeypatch, capsys):
    """As on a cluster whose time limit comes near: the signal, a checkpoint, the same job again, the end."""
    pytest.importorskip("submitit")
    monkeypatch.delenv(WITHIN_JOB, raising=False)
    make(tmp_path / "tokens", [moving_drive(40)])
    (tmp_path / "changes.yaml").write_text("frames: 5\npast_frames: 3\n")
    updates = 120
    assert main(train_words(tmp_path, "--config", tmp_path / "changes.yaml", "--updates", updates, "--save-every", 1000,
                            "--pictures-every", "None", "--submit", "local")) == 0  # fmt: skip
    job = int(re.search(r"job (\d+) is submitted", capsys.readouterr().out)[1])
    log = tmp_path / "run" / "jobs" / f"{job}_0_log.out"
    wait_for(lambda: len(steps_of(tmp_path / "run")) > 2)
    (task,) = Path(f"/proc/{job}/task/{job}/children").read_text().split()
    os.kill(int(task), signal.SIGUSR2)
    wait_for(lambda: (tmp_path / "run" / "jobs" / f"{job}_0_result.pkl").exists())
    said = log.read_text()
    (saved,) = re.findall(r"going on from step (\d+)", said)
    assert 2 < int(saved) < updates
    assert f"Requeued job {job}" in said
    assert f"{updates} steps done" in said
    assert "Job completed successfully" in said
    assert steps_of(tmp_path / "run") == list(range(1, updates + 1)), "no step twice, none left out"

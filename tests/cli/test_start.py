"""How a verb starts: help and wrong arguments come before anything heavy is loaded, and idle threads sleep.

What is loaded is counted, not the time that it takes: torch alone takes seconds, and numba, scipy and matplotlib each
about half of one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np

from copilot4d.cli.main import VERBS, options_of
from copilot4d.datasets.folder_writer import write_folder
from copilot4d.geometry import Drive, Sweep

HEAVY = ("torch", "numba", "scipy", "matplotlib", "pyarrow", "viser", "pykdtree")


def run_all(commands: list[list[str]], folder: Path) -> tuple[list[tuple[int, str]], list[str]]:
    """Exit code and message of each command, one after another in one process; and what heavy was loaded by then."""
    code = (
        "import contextlib, io, json, sys\nfrom copilot4d.cli.main import main\nfound = []\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):\n"
        "        try:\n            code = main(command)\n"
        "        except SystemExit as done:\n            code = int(done.code or 0)\n"
        "    found.append([code, said.getvalue()])\n"
        f"print(json.dumps([found, [name for name in {HEAVY} if name in sys.modules]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)], capture_output=True, text=True, check=True, cwd=folder
    )
    found, loaded = json.loads(done.stdout)
    return [tuple(row) for row in found], loaded


def test_help_of_every_verb_loads_nothing_heavy(tmp_path):
    found, loaded = run_all([[*verb.split(), "--help"] for verb in VERBS], tmp_path)
    assert [code for code, _ in found] == [0] * len(VERBS)
    assert loaded == []


WRONG = [
        (["evaluate", "--model", "mini", "--data", "nowhere", "--setting", "1s", "--out", "scores.json"], "nowhere"),
        (["forecast", "--model", "mini", "--data", "nowhere", "--frame", "3", "--out", "made"], "nowhere"),
        (["forecast", "--model", "mini", "--data", "nowhere", "--sampling-steps", "0", "--out", "made"], "steps must"),
        (["demo", "--data", "nowhere", "--out", "made"], "nowhere"),
        (["view", "--data", "nowhere"], "nowhere"),
        (["train", "tokenizer", "--data", "nowhere", "--run", "made"], "nowhere"),
        (["train", "occupancy-4d", "--data", "nowhere", "--run", "made"], "nowhere"),
        (["train", "baseline", "st3dcnn", "--data", "nowhere", "--run", "made"], "nowhere"),
        (["train", "world-model", "--tokens", "nowhere", "--tokenizer", "t", "--run", "made"], "--tokenizer t"),
        (["tokenize", "--tokenizer", "t", "--data", "nowhere", "--out", "made"], "nowhere"),
        (["evaluate-tokenizer", "--model", "m", "--data", "street-v1/val", "--out", "made"], "--model m"),
        (["export", "--tokenizer", "t", "--out", "made"], "--tokenizer t"),
        (["evaluate", "--modle", "mini"], "modle"),
]  # fmt: skip


def test_wrong_arguments_are_found_before_torch_is_loaded(tmp_path):
    times_ns, poses = np.arange(12) * 200_000_000, np.tile(np.eye(4), (12, 1, 1))
    sweeps = [
        Sweep(points=np.ones((5, 3), dtype=np.float32), world_from_lidar=poses[i], timestamp_ns=int(times_ns[i]))
        for i in range(12)
    ]
    drive = Drive(name="log", world_from_lidar=poses, timestamps_ns=times_ns, read=sweeps.__getitem__)
    write_folder(drive, tmp_path / "log")
    command = ["forecast", "--data", "log", "--out", "made"]
    cases = [*WRONG, ([*command, "--model", "mini", "--frame", "500"], "500"), ([*command, "--model", "nini"], "nini")]
    found, loaded = run_all([arguments for arguments, _ in cases], tmp_path)
    for (arguments, told), (code, message) in zip(cases, found, strict=True):
        assert code in (1, 2), arguments
        assert told in message, arguments
    assert "torch" not in loaded
    assert not (tmp_path / "made").exists()


def test_idle_threads_sleep_unless_told_otherwise():
    code = "import os; from copilot4d.cli.main import main; main(['--version']); print(os.environ['OMP_WAIT_POLICY'])"
    clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    for environment, expected in ((clean, "passive"), ({**clean, "OMP_WAIT_POLICY": "active"}, "active")):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.split()[-1] == expected


def test_the_verbs_modules_run_the_options_that_are_parsed():
    for name, verb in VERBS.items():
        assert import_module(f"copilot4d.cli.{verb.module}").Options is options_of(name), name


def test_choices_are_the_librarys():
    """Options name choices themselves, so that they need not import what they choose between."""
    from copilot4d.tokenizer.config import Mode
    from copilot4d.tokens.tokenize_drives import BATCH
    from copilot4d.training.precision import PrecisionName
    from copilot4d.world_model.actions import TokenFrame
    from copilot4d.world_model.objectives import Process

    def choices(verb: str, option: str) -> tuple[str, ...]:
        hint = get_type_hints(options_of(verb))[option]
        return get_args(hint) if all(isinstance(c, str) for c in get_args(hint)) else get_args(get_args(hint)[0])

    assert choices("train tokenizer", "mode") == get_args(Mode)
    assert choices("train tokenizer", "precision") == get_args(PrecisionName)
    assert choices("tokenize", "token_frame") == get_args(TokenFrame)
    assert choices("train world-model", "process") == get_args(Process)
    assert options_of("tokenize").batch == BATCH

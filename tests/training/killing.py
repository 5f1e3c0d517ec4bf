"""Kills training processes with SIGKILL at random moments, many of them inside a save, and lets them go on.

Saves are slowed down here, by an fsync that takes its time, so that kills find them; the library knows nothing of it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from copilot4d.checkpoints.checkpoint import TENSOR_FILES
from copilot4d.training import open_checkpoint, train
from tests.training.toy import ToyTask, toy_config, toy_recipe

SLOW_FSYNC_S = 0.02


def steps_for(kills: int) -> int:
    """Long enough that the run is not over before the last kill."""
    return 24 + 12 * kills


@dataclass(kw_only=True)
class Tally:
    """Where the kills fell."""

    in_save: int = 0
    elsewhere: int = 0

    @property
    def kills(self) -> int:
        return self.in_save + self.elsewhere


def start(run: Path, *, workers: int, steps: int) -> int:
    """A training process with slow saves; its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        os.setsid()
        torch.set_num_threads(1)
        real = os.fsync
        os.fsync = lambda descriptor: (time.sleep(SLOW_FSYNC_S), real(descriptor))[1]
        task = ToyTask(order_file=run.with_suffix(".order"))
        recipe = toy_recipe(cosine_steps=steps - 3, ema_decay=0.95)
        code = train(task, toy_config(run, recipe=recipe, workers=workers, save_every=4, keep_last=2)).exit_code
    finally:
        os._exit(code)


def is_running(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG) == (0, 0)


def train_and_kill(run: Path, kills: int, seed: int) -> Tally:
    """Start, kill and start again, `kills` times; then train to the end. Stops early if the run is over before."""
    rng, tally, steps = random.Random(seed), Tally(), steps_for(kills)
    for _ in range(kills):
        pid = start(run, workers=rng.choice([0, 2]), steps=steps)
        saves = f".writing-step_*-{pid}"  # of this process: older ones are leftovers of earlier kills
        if rng.random() < 0.65:
            while not any((run / "checkpoints").glob(saves)) and is_running(pid):
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 6 * SLOW_FSYNC_S))
        else:
            time.sleep(rng.uniform(0.02, 0.8))
        try:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            break
        if any((run / "checkpoints").glob(saves)):
            tally.in_save += 1
        else:
            tally.elsewhere += 1
    assert run_to_end(run, workers=2, steps=steps) == 0
    return tally


def run_to_end(run: Path, *, workers: int, steps: int) -> int:
    """Train without a kill; the exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(start(run, workers=workers, steps=steps), 0)[1])


def sample_order(run: Path) -> dict[int, list[int]]:
    """The items of each step; a step that was done again must have had the same ones."""
    order: dict[int, list[int]] = {}
    for line in run.with_suffix(".order").read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # cut short by a kill
        assert order.setdefault(record["step"], record["items"]) == record["items"], f"step {record['step']}"
    return order


def assert_same_end(run: Path, reference: Path, steps: int) -> int:
    """Bit-identical weights, moments, average and sample order; returns how many tensors were compared."""
    a, b = (open_checkpoint(r / "checkpoints" / f"step_{steps:09d}") for r in (run, reference))
    compared = 0
    for file in TENSOR_FILES:
        left, right = a.tensors(file), b.tensors(file)
        assert left.keys() == right.keys()
        for name in left:
            assert torch.equal(left[name], right[name]), f"{file}/{name}"
        compared += len(left)
    assert a.state["order"] == b.state["order"]
    assert sample_order(run) == sample_order(reference)
    assert list(sample_order(run)) == list(range(steps))
    return compared

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

from copilot4d.training import open_checkpoint, train
from copilot4d.training.checkpoint import TENSOR_FILES
from tests.training.toy import ToyTask, toy_config, toy_recipe

STEPS = 60
SLOW_FSYNC_S = 0.03


@dataclass(kw_only=True)
class Tally:
    """Where the kills fell."""

    in_save: int = 0
    elsewhere: int = 0
    ended_before: int = 0  # the process was done before its kill came

    @property
    def kills(self) -> int:
        return self.in_save + self.elsewhere


def start(run: Path, *, workers: int, steps: int = STEPS) -> int:
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
    """Start, kill and start again until `kills` kills have hit; then train to the end."""
    rng, tally = random.Random(seed), Tally()
    checkpoints = run / "checkpoints"
    while tally.kills < kills:
        # A run that is done would not be hit any more: the recipe is long enough for all kills.
        pid = start(run, workers=rng.choice([0, 2]), steps=STEPS)
        deadline = time.monotonic() + 60
        if rng.random() < 0.65:
            while not any(checkpoints.glob(".writing-step*")) and time.monotonic() < deadline and is_running(pid):
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 6 * SLOW_FSYNC_S))
        else:
            time.sleep(rng.uniform(0.02, 0.8))
        try:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            tally.ended_before += 1
            return tally
        if any(checkpoints.glob(".writing-step*")):
            tally.in_save += 1
        else:
            tally.elsewhere += 1
    pid = start(run, workers=2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return tally


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


def assert_same_end(run: Path, reference: Path) -> int:
    """Bit-identical weights, moments, average and sample order; returns how many tensors were compared."""
    a, b = (open_checkpoint(r / "checkpoints" / f"step_{STEPS:09d}") for r in (run, reference))
    compared = 0
    for file in TENSOR_FILES:
        left, right = a.tensors(file), b.tensors(file)
        assert left.keys() == right.keys()
        for name in left:
            assert torch.equal(left[name], right[name]), f"{file}/{name}"
        compared += len(left)
    assert a.state["order"] == b.state["order"]
    assert sample_order(run) == sample_order(reference)
    assert list(sample_order(run)) == list(range(STEPS))
    return compared

"""A training command for torchrun: `torchrun ... -m tests.training.toy_run RUN [--die-once STEP]`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

import torch

from copilot4d.training import train
from tests.training.toy import ToyTask, toy_config


class Printing:
    def on_log(self, record) -> None:
        print(record.line(), flush=True)

    def on_message(self, message: str) -> None:
        print(message, flush=True)


class Dying(ToyTask):
    """The last rank is killed at a step, the first time that it gets there."""

    die_at: int | None = None
    mark: Path

    def before_step(self, context) -> None:
        world = context.world
        if context.counter.step == self.die_at and world.rank == world.size - 1 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--die-once", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    task = Dying()
    task.die_at, task.mark = options.die_once, options.run.with_suffix(".died")
    return train(task, toy_config(options.run), Printing()).exit_code


if __name__ == "__main__":
    sys.exit(main())

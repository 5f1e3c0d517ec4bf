"""A training process to be hurt by tests: `python -m tests.training.toy_run RUN [--flag value ...]`.

Exits with the run's code, or prints the error and exits 1. `--slow-save` makes every fsync take a while, so that kills
find a save in progress; this lives here, not in the library.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from pathlib import Path

import torch

from copilot4d.errors import Copilot4dError
from copilot4d.training import train
from tests.training.toy import ToyTask, toy_config, toy_recipe


class Printing:
    def on_log(self, record) -> None:
        print(record.line(), flush=True)

    def on_message(self, message: str) -> None:
        print(message, flush=True)


class SlowTask(ToyTask):
    step_s = 0.0

    def before_step(self, context) -> None:
        time.sleep(self.step_s)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--step-s", type=float, default=0.0)
    parser.add_argument("--slow-save", type=float, default=0.0)
    parser.add_argument("--file-limit", type=int)
    parser.add_argument("--die", type=int)
    parser.add_argument("--parallel", default="ddp")
    parser.add_argument("--ema", type=float)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.slow_save:
        real = os.fsync
        os.fsync = lambda descriptor: (time.sleep(options.slow_save), real(descriptor))[1]
    task = SlowTask(order_file=options.run.with_suffix(".order"), die=options.die)
    task.step_s = options.step_s
    recipe = toy_recipe(cosine_steps=options.steps - 3, ema_decay=options.ema)
    config = toy_config(
        options.run, recipe=recipe, max_steps=options.max_steps, workers=options.workers,
        save_every=options.save_every, parallel=options.parallel,
    )  # fmt: skip
    if options.file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.file_limit, options.file_limit))
    try:
        return train(task, config, Printing()).exit_code
    except Copilot4dError as error:
        print(f"error: {error}", flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())

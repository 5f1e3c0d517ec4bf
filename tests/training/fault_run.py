"""A small training as a command, with one fault in it: `python -m tests.training.fault_run RUN FAULT`.

FAULT: none; stop (the loader worker of step 6 stops, as under a debugger); large (batches of 4 MB, to fill /dev/shm).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch

from copilot4d.cli.console import errors_console
from copilot4d.errors import Copilot4dError
from copilot4d.training import train
from tests.training.toy import ToyTask, toy_config
from tests.training.toy_run import Printing

STOPS_AT = 6


class Faulty(ToyTask):
    """The toy task with a fault."""

    fault = "none"

    def sample(self, key):
        if self.fault == "stop" and key.step == STOPS_AT:
            print(f"stopping {os.getpid()}", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().sample(key)

    def collate(self, samples):
        batch = super().collate(samples)
        return {**batch, "large": torch.zeros(1_000_000)} if self.fault == "large" else batch


def main() -> int:
    run, fault, timeout_s = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    torch.set_num_threads(1)
    task = Faulty()
    task.fault = fault
    workers = 0 if fault == "none" else 2
    try:
        config = toy_config(run, workers=workers, save_every=4, loader_timeout_s=timeout_s)
        return train(task, config, Printing()).exit_code
    except Copilot4dError as error:
        errors_console.print(str(error), markup=False)
        return 1


if __name__ == "__main__":
    sys.exit(main())

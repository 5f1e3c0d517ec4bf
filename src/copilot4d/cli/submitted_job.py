"""What runs inside a job of a cluster: the same command as on the command line, and a saved run before the job ends.

submitit sends the job's first task a signal before its time is over or when it is preempted, and asks `checkpoint` what
to queue again. The training processes are children of their own, which SIGTERM makes save and end.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from copilot4d.errors import TrainingError

WITHIN_JOB = "COPILOT4D_WITHIN_JOB"  # set for the command inside, which then trains instead of being submitted again
SAVES_WITHIN_S = 100.0  # of the signal; the job is killed after `SIGNAL_DELAY_S`
SIGNAL_DELAY_S = 120
QUEUED_AGAIN_WITHIN_S = 60.0  # of a SIGTERM: Slurm preempts by that, and then sends the signal to queue again
PORT = 29500


@dataclass
class SubmittedJob:
    """A verb and its arguments, as typed, and on how many processes they run. Called by submitit, once a node."""

    words: tuple[str, ...]  # train tokenizer --preset ...
    nodes: int
    processes: int  # of a node
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _ended: int | None = None  # the child's exit code
    _told_to_end: bool = False  # by SIGTERM

    def __call__(self) -> int:
        """Train to the end: 0. Anything else is a TrainingError, and the job's log says why."""
        command = self.command(_head(), os.environ.get("SLURM_JOB_ID", "local"))
        print(shlex.join(command), flush=True)
        # The signal to queue again reaches all processes of a job, and would end those that do not know it.
        preemption = os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2")
        deaf = ["/bin/sh", "-c", f'trap "" {preemption}; exec "$@"', "sh", *command]
        signal.signal(signal.SIGTERM, self._end)
        self._child = subprocess.Popen(deaf, env={**os.environ, WITHIN_JOB: "1"})
        threading.Thread(target=self._wait_for, args=(self._child,), daemon=True).start()
        while self._ended is None:  # no lock is held here when a signal comes
            time.sleep(0.1)
        if self._ended and self._told_to_end and "SLURM_JOB_ID" in os.environ:
            time.sleep(QUEUED_AGAIN_WITHIN_S)
        if self._ended:
            raise TrainingError(
                f"training ended with exit code {self._ended}; the lines above say why. The same command goes on from "
                "the last checkpoint"
            )
        return 0

    def checkpoint(self) -> Any:
        """Called by submitit's signal handler: end the training, which saves, and say what to queue again."""
        from submitit.helpers import DelayedSubmission

        if self._child is not None and self._ended is None:
            self._child.send_signal(signal.SIGTERM)
            give_up = time.monotonic() + SAVES_WITHIN_S
            while self._ended is None and time.monotonic() < give_up:
                time.sleep(0.1)
            if self._ended is None:
                print(f"training did not save within {SAVES_WITHIN_S:.0f} s; it goes on from the checkpoint before")
        return DelayedSubmission(SubmittedJob(self.words, self.nodes, self.processes))

    def command(self, head: str, job: str) -> list[str]:
        """What is run on each node: the verb itself, or torchrun with it."""
        verb = ["copilot4d.cli.main", *self.words]
        if self.nodes == self.processes == 1:
            return [sys.executable, "-m", *verb]
        meet = ["--standalone"] if self.nodes == 1 else [
            "--nnodes", str(self.nodes), "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{head}:{PORT}",
            "--rdzv-id", job,
        ]  # fmt: skip
        torchrun = ["torch.distributed.run", *meet, "--nproc-per-node", str(self.processes), "--max-restarts", "3"]
        return [sys.executable, "-m", *torchrun, "-m", "--", *verb]

    def _wait_for(self, child: subprocess.Popen[bytes]) -> None:
        self._ended = child.wait()

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._told_to_end = True
        if self._child is not None and self._ended is None:
            self._child.send_signal(signal.SIGTERM)


def _head() -> str:
    """The first node of the job."""
    from submitit import JobEnvironment

    return str(JobEnvironment().hostnames[0])

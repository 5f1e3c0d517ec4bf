"""`--submit slurm` and `--submit local`: hand a training to a cluster, or to the background of this machine."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

from copilot4d.cli.console import console, next_step
from copilot4d.cli.options.training_options import RunOptions
from copilot4d.cli.submitted_job import SIGNAL_DELAY_S, WITHIN_JOB, SubmittedJob
from copilot4d.errors import UsageError

INSTALL = "pip install 'copilot4d[cluster]'"
LOGS = "jobs"  # in the run's folder


def is_to_be_submitted(options: object) -> bool:
    """Whether these options ask for a job, and this is not the job itself."""
    return isinstance(options, RunOptions) and options.submit is not None and WITHIN_JOB not in os.environ


def submit(verb: str, arguments: Sequence[str], options: RunOptions) -> int:
    """Submit the verb with its arguments as they were typed; the job's folder is in the run's."""
    cluster = options.cluster
    job_function = SubmittedJob((*verb.split(), *arguments), cluster.nodes, cluster.processes_of_a_node)
    executor = _executor(options)
    folder = options.run / LOGS
    asked: dict[str, Any] = {
        "name": f"copilot4d_{options.run.name}", "timeout_min": max(1, math.ceil(60 * cluster.hours)),
        "nodes": cluster.nodes, "tasks_per_node": 1, "cpus_per_task": cluster.cpus, "gpus_per_node": cluster.gpus,
        "stderr_to_stdout": True,
    }  # fmt: skip
    if options.submit == "slurm":
        named = {"partition": cluster.partition, "account": cluster.account, "signal_delay_s": SIGNAL_DELAY_S}
        asked |= {f"slurm_{name}": value for name, value in named.items() if value is not None}
        if not cluster.gpus:
            del asked["gpus_per_node"]
    executor.update_parameters(**asked)
    try:
        job = executor.submit(job_function)
    except Exception as error:  # submitit's own kinds; what sbatch wrote is in them
        if type(error).__module__.startswith("submitit"):
            raise UsageError(f"the job was not accepted: {' '.join(str(error).split())}") from error
        raise
    log = folder / f"{job.job_id}_0_log.out"
    console.print(f"job {job.job_id} is submitted; it trains in {options.run} and writes {log}", highlight=False)
    stop = f"scancel {job.job_id}" if options.submit == "slurm" else f"kill {job.job_id}"
    console.print(f"To end it: {stop}. The same command then goes on from its last checkpoint.", highlight=False)
    next_step(f"tail -F {log}")
    return 0


def _executor(options: RunOptions) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise UsageError(
            f"`submit` {options.submit} needs submitit, which is not installed: {INSTALL}; or use a script of your "
            "own, see docs/costs.md"
        ) from error
    if options.submit == "local" and options.cluster.nodes > 1:
        raise UsageError(f"`submit` local has one node, this one; `cluster.nodes` is {options.cluster.nodes}")
    given = {"slurm_max_num_timeout": options.cluster.requeues, "local_max_num_timeout": options.cluster.requeues}
    try:
        return submitit.AutoExecutor(folder=options.run / LOGS, cluster=options.submit, **given)
    except RuntimeError as error:  # no srun
        raise UsageError(
            "`submit` slurm needs Slurm's commands (sbatch, srun), and they are not found: submit from a login node "
            "of the cluster, or try the same with `submit` local"
        ) from error

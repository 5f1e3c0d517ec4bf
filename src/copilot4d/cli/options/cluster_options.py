"""What a job of a cluster gets, where a training is submitted instead of run here."""

from __future__ import annotations

from dataclasses import dataclass

from copilot4d.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """What a job of --submit gets."""

    nodes: int = 1
    """Nodes that train together; their ranks share --batch."""
    gpus: int = 0
    """GPUs of a node, one training process each. 0: a node without."""
    processes: int | None = None
    """Training processes of a node; by default one for each GPU, else one."""
    cpus: int = 8
    """Cores of a node: for the training processes and their loader processes."""
    hours: float = 24.0
    """After so long the job saves and is queued again."""
    partition: str | None = None
    """Slurm's partition."""
    account: str | None = None
    """Slurm's account."""
    requeues: int = 100
    """How often a job may reach its time limit before it is given up."""

    def __post_init__(self) -> None:
        for name, least in (("nodes", 1), ("gpus", 0), ("cpus", 1), ("requeues", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"`cluster.{name}` must be at least {least}, got {getattr(self, name)}")
        if self.processes is not None and self.processes < 1:
            raise UsageError(f"`cluster.processes` must be at least 1 or left out, got {self.processes}")
        if not 0.05 <= self.hours <= 10_000:
            raise UsageError(f"`cluster.hours` must lie between 0.05 (three minutes) and 10000, got {self.hours}")

    @property
    def processes_of_a_node(self) -> int:
        """How many training processes a node runs."""
        return self.processes or max(1, self.gpus)

"""What all `copilot4d train ...` verbs share: the options of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.cluster_options import ClusterOptions


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of every training run."""

    run: Path
    """The run's folder. An existing run is resumed."""
    preset: Literal["paper", "mini", "tiny"] = "mini"
    """Sizes and recipe: paper, mini (a 2-core machine), tiny (tests)."""
    config: Path | None = None
    """YAML with changes to the preset's model."""
    updates: int | None = None
    """Updates of the whole schedule (warm-up and cosine). By default the preset's."""
    batch: int | None = None
    """Samples per update, over all processes. By default the preset's."""
    learning_rate: float | None = None
    """Peak learning rate. By default the preset's."""
    ema_decay: float | None = None
    """Also keep a moving average of the weights, and use it for scoring."""
    init_from: Path | None = None
    """Start from the weights of this run, checkpoint or model folder."""
    max_updates: int | None = None
    """Stop after this many updates; the schedule does not change."""
    accumulation: int = 1
    """Forward and backward passes per update. More passes need less memory; the result is the same."""
    workers: int = 1
    """Processes that load data."""
    loader_timeout_s: float = 600.0
    """Save and end after this many seconds without a batch, and name the loader process that is stuck. 0: never."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: test whether bf16 works and is faster, otherwise fp32."""
    compile: bool = False
    """Compile the blocks with torch.compile. Useful on a GPU."""
    parallel: Literal["ddp", "fully_shard"] = "ddp"
    """How the processes of torchrun share the model."""
    seed: int = 0
    """The random seed of weights, data order, augmentation and noise."""
    log_every: int = 20
    """Updates between two lines of the log."""
    save_every: int = 500
    """Updates between two checkpoints."""
    keep_last: int = 3
    """How many of the newest checkpoints to keep. The best one is kept too."""
    checkpoints_to: str | None = None
    """A URL (s3://bucket/runs/a) to copy each checkpoint to. A run without checkpoints on this machine resumes from
    there."""
    evaluate_every: int | None = 500
    """Updates between two scorings of the held-out data."""
    pictures_every: int | None = 500
    """Updates between two pictures of the held-out data."""
    dry_run: bool = False
    """Only estimate the memory, time and disk that the run needs."""
    submit: Literal["slurm", "local"] | None = None
    """Run as a job of a cluster, which is queued again until the run is finished. local: in the background, on this
    machine."""
    cluster: ClusterOptions = field(default_factory=ClusterOptions)
    """Resources of the job."""

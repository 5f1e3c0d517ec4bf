"""What all `copilot4d train ...` verbs share: the options of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.cluster_options import ClusterOptions


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run is carried out, whatever it trains."""

    run: Path
    """The run's folder. A run that is already there goes on."""
    preset: Literal["paper", "mini", "tiny"] = "mini"
    """Sizes and recipe: paper, mini (a 2-core machine), tiny (tests)."""
    config: Path | None = None
    """YAML with changes to the preset's model."""
    updates: int | None = None
    """Updates of the whole schedule, warm-up and cosine; by default the preset's."""
    batch: int | None = None
    """Samples of one update, over all processes."""
    learning_rate: float | None = None
    """The peak; by default the preset's."""
    ema_decay: float | None = None
    """Also keep a moving average of the weights, and use it for scoring."""
    init_from: Path | None = None
    """Start from the weights of this run or checkpoint."""
    max_updates: int | None = None
    """Stop earlier, without changing the schedule."""
    accumulation: int = 1
    """Passes that share one update: less memory."""
    workers: int = 1
    """Loader processes."""
    loader_timeout_s: float = 600.0
    """Seconds without a batch after which the run saves, ends, and names the loader process that is stuck; 0: never."""
    device: str = "auto"
    """cpu, cuda, cuda:1."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto probes whether bf16 works."""
    compile: bool = False
    """Compile the blocks with torch.compile: worth it on a GPU."""
    parallel: Literal["ddp", "fully_shard"] = "ddp"
    """How processes of torchrun share the model."""
    seed: int = 0
    """Of weights, data order, augmentation, noise."""
    log_every: int = 20
    """Updates between two lines of the log."""
    save_every: int = 500
    """Updates between two checkpoints."""
    keep_last: int = 3
    """Checkpoints that stay, beside the best."""
    checkpoints_to: str | None = None
    """A URL (s3://bucket/runs/a) that each checkpoint is copied to; a run that has none here goes on from there."""
    evaluate_every: int | None = 500
    """Updates between two scorings of the held-out data."""
    pictures_every: int | None = 500
    """Updates between two pictures of it."""
    dry_run: bool = False
    """Only say what the run would cost."""
    submit: Literal["slurm", "local"] | None = None
    """Run as a job of a cluster, which is queued again until the run is finished; local: in the background, here."""
    cluster: ClusterOptions = field(default_factory=ClusterOptions)
    """What the job gets."""

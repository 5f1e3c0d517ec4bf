"""`TrainingConfig`: how a run is carried out; what it optimises is the `Recipe`, what it trains is the task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot4d.errors import UsageError
from copilot4d.training.optimizer import Recipe
from copilot4d.training.precision import PrecisionName


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """One run. `recipe` and `seed` are its identity; all else may change when it is resumed."""

    recipe: Recipe
    run: Path  # the run's folder; a run that is already there goes on
    seed: int = 0
    max_steps: int | None = None  # stop earlier than the recipe, without changing its schedule
    accumulation: int = 1  # passes per update: the global batch is split over them and over the ranks
    workers: int = 2  # loader processes per rank
    prefetch: int = 2  # batches that each worker keeps ready
    loader_timeout_s: float = 600.0  # for one batch, before a worker counts as stalled; 0: for ever
    device: str = "auto"
    precision: PrecisionName = "auto"
    compile: bool = False
    parallel: Literal["ddp", "fully_shard"] = "ddp"
    init_from: Path | None = None  # a checkpoint, run, model or pretrained folder to take the first weights from
    log_every: int = 20
    save_every: int = 1000
    evaluate_every: int | None = 2000
    pictures_every: int | None = None
    keep_last: int = 3  # checkpoints, beside the best
    tensorboard: bool = True
    checkpoints_to: str | None = None  # a URL that every checkpoint is copied to, and fetched from by a run without
    dry_run: bool = False  # stop after the estimate

    def __post_init__(self) -> None:
        for name in ("accumulation", "prefetch", "log_every", "save_every", "keep_last"):
            if getattr(self, name) < 1:
                raise UsageError(f"training.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("evaluate_every", "pictures_every", "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"training.{name} must be at least 1 or left out, got {value}")
        if not 0 <= self.loader_timeout_s < float("inf"):
            raise UsageError(
                f"training.loader_timeout_s must be 0 (wait for ever) or more, got {self.loader_timeout_s}"
            )
        if self.workers < 0:
            raise UsageError(f"training.workers must not be negative, got {self.workers}")

    @property
    def steps(self) -> int:
        """Updates of this run."""
        return self.recipe.steps if self.max_steps is None else min(self.recipe.steps, self.max_steps)

    def batch_per_pass(self, ranks: int) -> int:
        """Samples that one rank holds at once; the global batch must divide evenly."""
        parts = ranks * self.accumulation
        if self.recipe.batch % parts:
            raise UsageError(
                f"training.recipe.batch {self.recipe.batch} must divide by ranks x training.accumulation = {ranks} x "
                f"{self.accumulation}; change one of them or the number of processes"
            )
        return self.recipe.batch // parts

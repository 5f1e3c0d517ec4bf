"""The one training loop: tokenizer, world model and learned baselines all go through `train`.

    result = train(task, TrainingConfig(recipe=paper_recipe("tokenizer"), run=Path("runs/tokenizer")))

The same call works alone and under torchrun, and goes on where a killed run stopped.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from copilot4d.checkpoints.checkpoint import Checkpoint, CheckpointStore, RunIdentity
from copilot4d.checkpoints.remote_checkpoints import CopiedStore, RemoteCheckpoints
from copilot4d.config import save_config
from copilot4d.training.distributed import World, open_world
from copilot4d.training.ema import Ema
from copilot4d.training.estimate import Estimate, estimate
from copilot4d.training.journal import Observer, Silent
from copilot4d.training.malloc import keep_freed_memory
from copilot4d.training.optimizer import make_optimizer
from copilot4d.training.parallel import Parallel
from copilot4d.training.precision import Precision
from copilot4d.training.run_lock import run_held
from copilot4d.training.settings import TrainingConfig
from copilot4d.training.setup import (
    Lineage,
    agree_on_precision,
    build_model,
    checkpoint_to_resume,
    initialise_from,
    part_of,
    run_identity,
)
from copilot4d.training.state import TrainingState
from copilot4d.training.task import TrainingTask
from copilot4d.training.trainer import Trainer

KEEPS_FREED_MEMORY = 10_000_000  # parameters; the tensors of larger models leave holes that double a process's memory


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """How a run ended. `signal` is set where it was asked to stop; `exit_code` is what a command should return."""

    step: int
    finished: bool
    checkpoint: Path | None  # the newest one
    estimate: Estimate
    signal: int | None = None

    @property
    def exit_code(self) -> int:
        """0 when done (or dry), 128 + the signal's number when stopped: 130 for SIGINT, 143 for SIGTERM."""
        return 0 if self.signal is None else 128 + self.signal


def train(task: TrainingTask, config: TrainingConfig, observer: Observer | None = None) -> TrainingResult:
    """Train until the recipe's end, a stop signal or a fault. Faults raise `TrainingError`; checkpoints stay intact."""
    with open_world(config.device) as world, contextlib.ExitStack() as held:
        if not config.dry_run:
            held.enter_context(run_held(config.run, world))
        heard = observer if observer is not None and world.is_first else Silent()
        trainer, cost = make_trainer(task, config, world, heard)
        if trainer is None:
            return TrainingResult(step=0, finished=False, checkpoint=None, estimate=cost)
        with trainer:
            signal = trainer.run()
        store, step = trainer.store, trainer.state.step
        if isinstance(store, CopiedStore) and world.is_first:
            store.finish()
        steps = store.steps()
        return TrainingResult(
            step=step,
            finished=step >= config.steps,
            checkpoint=store.path(steps[-1]) if steps else None,
            estimate=cost,
            signal=signal,
        )


def open_store(config: TrainingConfig, observer: Observer) -> CheckpointStore:
    """The run's checkpoints, copied to a URL where one is given."""
    folder, report = config.run / "checkpoints", observer.on_message
    if config.checkpoints_to is None:
        return CheckpointStore(folder=folder, keep_last=config.keep_last, report=report)
    remote = RemoteCheckpoints(config.checkpoints_to, report=report)
    return CopiedStore(folder=folder, keep_last=config.keep_last, report=report, remote=remote)


def make_trainer(
    task: TrainingTask, config: TrainingConfig, world: World, observer: Observer
) -> tuple[Trainer | None, Estimate]:
    """Everything that comes before the first step; no trainer for a dry run."""
    config.batch_per_pass(world.size)  # refuses a batch that cannot be split
    store = open_store(config, observer)
    identity = run_identity(task, config)
    checkpoint, first_step = checkpoint_to_resume(store, identity, world)
    model = build_model(task, config, world)
    if world.device.type == "cpu" and sum(p.numel() for p in model.parameters()) <= KEEPS_FREED_MEMORY:
        keep_freed_memory()
    recorded = world.broadcast_json(None if checkpoint is None else checkpoint.state.get("precision"))
    precision = agree_on_precision(config, recorded, world, observer.on_message)
    lineage = Lineage()
    if first_step == 0 and config.init_from is not None:
        lineage = initialise_from(model, part_of(config.init_from, task.name), world, observer.on_message)
    cost = estimate(task, model, config, world, precision, first_step)
    observer.on_message(cost.text())
    if config.dry_run:
        return None, cost
    parallel = Parallel(task, model, config, world)
    try:
        return _trainer(
            task, config, world, observer, parallel, store, identity, precision, checkpoint, first_step, lineage
        ), cost
    except BaseException:
        parallel.close()
        raise


def _trainer(
    task: TrainingTask, config: TrainingConfig, world: World, observer: Observer, parallel: Parallel,
    store: CheckpointStore, identity: RunIdentity, precision: Precision, checkpoint: Checkpoint | None, first_step: int,
    lineage: Lineage,
) -> Trainer:  # fmt: skip
    """The state, fresh or restored, and the trainer that carries it on."""
    model = parallel.model
    decay = config.recipe.ema_decay
    state = TrainingState(
        model=model,
        optimizer=make_optimizer(model, config.recipe),
        ema=None if decay is None else Ema(model, decay),
        precision=precision.name,
        draw_seed=lineage.draw_seed(config.seed),
        updates_before=lineage.updates,
    )
    if first_step:
        state.restore(checkpoint, world)
        state.precision = precision.name
        observer.on_message(f"going on from step {first_step} of {config.run}")
    if world.is_first:
        config.run.mkdir(parents=True, exist_ok=True)
        save_config(config, config.run / "config.yaml")
    return Trainer(
        task=task, config=config, world=world, observer=observer, state=state, parallel=parallel,
        precision=precision, store=store, identity=identity,
    )  # fmt: skip

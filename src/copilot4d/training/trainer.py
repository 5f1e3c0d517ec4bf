"""`Trainer`: the steps of a run, and what happens between them: logs, evaluations, pictures, checkpoints, faults."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch

from copilot4d.checkpoints.checkpoint import CheckpointStore, RunIdentity
from copilot4d.counter import StepCounter, counter_seed, seed_torch, slots_of
from copilot4d.errors import TrainingError
from copilot4d.training.data import Batches, LoadedBatch
from copilot4d.training.distributed import World, check_ranks_agree
from copilot4d.training.faults import BadStep, bad_gradients, faults_explained
from copilot4d.training.journal import Journal, LogRecord, Observer, Stopwatch
from copilot4d.training.loader_watch import StalledLoaderError
from copilot4d.training.optimizer import learning_rate, set_learning_rate
from copilot4d.training.parallel import Parallel
from copilot4d.training.precision import Precision
from copilot4d.training.settings import TrainingConfig
from copilot4d.training.start_score import compare_with_start, note_start
from copilot4d.training.state import TrainingState
from copilot4d.training.stop_signals import STOP_SIGNALS, StopNow, StopSignals
from copilot4d.training.task import StepContext, TrainingTask

STOP_TOGETHER_S = 20.0  # for a batch after a stop was asked for, where the update must be finished to be saved


class Trainer:
    """Carries a `TrainingState` from its step to the last one. Use it as a context: it owns loader workers and logs."""

    def __init__(
        self, *, task: TrainingTask, config: TrainingConfig, world: World, observer: Observer, state: TrainingState,
        parallel: Parallel, precision: Precision, store: CheckpointStore, identity: RunIdentity,
    ) -> None:  # fmt: skip
        self.task, self.config, self.world, self.observer = task, config, world, observer
        self.state, self.parallel, self.precision = state, parallel, precision
        self.store, self.identity = store, identity
        self.watch = Stopwatch()
        self._signals = StopSignals()
        self.batches = Batches(
            task, world, seed=state.draw_seed, batch=config.recipe.batch, accumulation=config.accumulation,
            first_step=state.step, last_step=config.steps, workers=config.workers, prefetch=config.prefetch,
            patience_s=config.loader_timeout_s, asked_to_stop=self._asked_to_stop, report=observer.on_message,
        )  # fmt: skip
        slots = slots_of(config.recipe.batch, world.size, world.rank, config.accumulation)
        self._my_indices = tuple(i for part in slots for i in part)
        self._journal: Journal | None = None
        self._half_done = False  # an update was begun: what is in memory is not what a checkpoint may hold
        self._stop: int | None = None  # the signal that all ranks have heard of
        self._saved_step = state.step if state.step else None
        self._logged_step = state.step
        self._recent: Mapping[str, torch.Tensor] = {}
        self._numbers: Mapping[str, float] = {}
        self._gradient_norm = 0.0

    def __enter__(self) -> Trainer:
        if self.world.is_first:
            self._journal = Journal(
                self.config.run, first_step=self.state.step, tensorboard=self.config.tensorboard
            )  # fmt: skip
        self.batches.__enter__()
        self.watch.restart()
        return self

    def __exit__(self, *exception: object) -> None:
        self.batches.__exit__()
        self.parallel.close()
        if self._journal is not None:
            self._journal.close()

    def run(self) -> int | None:
        """Train to the end or to a stop signal, whose number is returned; saves in both cases."""
        explained = faults_explained(
            self.config, self.world, self.precision.name, step=lambda: self.state.step,
            last_checkpoint=self.last_checkpoint,
        )  # fmt: skip
        with self._signals, explained:
            try:
                self._steps()
            except StopNow:
                self._stop = self._signals.received
            if self._half_done or (self._stop is not None and self.world.size > 1 and self.batches.gave_up):
                # Half an update, or ranks that are not at the same place: neither can be saved.
                self.observer.on_message(f"step {self.state.step}: stopped without saving; {self.last_checkpoint()}")
            else:
                self.save()
            compare_with_start(self.config.run, self.store if self.world.is_first else None, self.observer)
        return self._stop if self.state.step < self.config.steps else None

    def _steps(self) -> None:
        if self.state.step == 0 and self.config.init_from is not None and self.config.evaluate_every is not None:
            self.score_start()
        while self.state.step < self.config.steps:
            self.step()
            self.between_steps()
            if self.world.size == 1:
                self._stop = self._signals.received
            if self._stop is not None:
                return

    def step(self) -> None:
        """One update: gradients of the global batch, clipping, check, AdamW, moving average, hooks."""
        state, recipe = self.state, self.config.recipe
        first = self._first_batch()
        self._half_done = True
        state.score = None  # it belonged to the weights before
        counter = StepCounter(seed=state.draw_seed, step=state.step, indices=self._my_indices)
        context = StepContext(
            model=state.model, optimizer=state.optimizer, counter=counter, world=self.world, ema=state.ema
        )  # fmt: skip
        # What draws from torch's global generator (dropout) depends on the step too, not on what came before.
        seed_torch(counter_seed(self.state.draw_seed, "torch", state.step, self.world.rank), self.world.device)
        self.task.before_step(context)
        losses = self._accumulate_gradients(first)
        norm = self.parallel.gradient_norm()
        self._check_finite(losses, norm)
        if self._gradient_norm > recipe.clip_norm:
            self.parallel.clip_gradients(recipe.clip_norm, norm)
        set_learning_rate(state.optimizer, learning_rate(recipe, state.step))
        state.optimizer.step()
        state.optimizer.zero_grad(set_to_none=True)
        state.note_samples(state.step, recipe.batch, state.draw_seed)
        state.step += 1
        if state.ema is not None:
            state.ema.update(state.model, state.step)
        self._numbers = self.task.after_step(context)
        self._recent = losses
        self._half_done = False

    def _first_batch(self) -> LoadedBatch:
        """The first micro-batch of a step. Nothing of the step is done yet: a stop here loses nothing."""
        alone = self.world.size == 1
        try:
            with self._signals.interrupting(alone):
                return self.batches.fetch(stop_after_s=0.0 if alone else STOP_TOGETHER_S)
        except StalledLoaderError as error:
            if alone:
                self.save()
            raise StalledLoaderError(f"{error}; {self.last_checkpoint()}") from error

    def _asked_to_stop(self) -> bool:
        return self._signals.received is not None

    def _accumulate_gradients(self, first: LoadedBatch) -> dict[str, torch.Tensor]:
        passes = self.config.accumulation
        losses: dict[str, torch.Tensor] = {}
        for i in range(passes):
            batch = first if i == 0 else self.batches.fetch(stop_after_s=STOP_TOGETHER_S)
            assert batch.step == self.state.step, f"the loader is at step {batch.step}, not {self.state.step}"
            counter = StepCounter(seed=self.state.draw_seed, step=batch.step, indices=batch.indices)
            with self.parallel.gradients(synchronised=i == passes - 1):
                with self.precision.autocast(self.world.device):
                    parts = self.parallel.loss(batch.data, counter)
                (parts["total"] / passes).backward()  # type: ignore[no-untyped-call]
            for name, value in parts.items():
                value = value.detach() / passes
                losses[name] = losses[name] + value if name in losses else value
        return losses

    def _check_finite(self, losses: Mapping[str, torch.Tensor], norm: torch.Tensor) -> None:
        total, self._gradient_norm = torch.stack([losses["total"].float(), norm.float()]).tolist()
        finite = abs(total) + abs(self._gradient_norm) < float("inf")  # False for NaN
        if not self._agree(bad=not finite):
            return
        bad = BadStep(
            step=self.state.step,
            seed=self.state.draw_seed,
            batch=self.config.recipe.batch,
            indices=self._my_indices,
            losses={name: float(value) for name, value in losses.items()},
            gradient_norm=self._gradient_norm,
            bad_gradients=bad_gradients(self.state.model),
        )
        raise bad.error(bad.write(self.config.run, self.task, self.world), self.last_checkpoint())

    def _agree(self, *, bad: bool) -> bool:
        """Whether the step is bad on any rank; in the same message, whether any rank was told to stop."""
        signal = self._signals.received
        if self.world.size == 1:
            self._stop = signal
            return bad
        told = [signal == number for number in STOP_SIGNALS]
        anyone = (self.world.sum(torch.tensor([bad, *told])) > 0).tolist()
        self._stop = next((number for number, heard in zip(STOP_SIGNALS, anyone[1:], strict=True) if heard), None)
        return bool(anyone[0])

    def between_steps(self) -> None:
        """Logs, evaluations, pictures and checkpoints that are due after the update just done."""
        step, config = self.state.step, self.config
        last = step == config.steps
        if step % config.log_every == 0 or last or self._logged_step == 0:
            self.log()
        better = False
        if self._stop is not None and not last:  # scores and pictures can wait, a scheduler does not
            return
        if config.evaluate_every is not None and (step % config.evaluate_every == 0 or last):
            better = self.evaluate()
        if config.pictures_every is not None and (step % config.pictures_every == 0 or last):
            self.draw()
        if step % config.save_every == 0 or better:
            self.save()

    def log(self) -> None:
        """One line for people, one for machines."""
        step, seconds = self.state.step, self.watch.seconds
        done = step - self._logged_step
        self.state.seconds += seconds
        record = LogRecord(
            step=step,
            steps=self.config.steps,
            losses=self.world.mean({n: float(v) for n, v in self._recent.items()}),
            numbers=dict(self._numbers),
            learning_rate=learning_rate(self.config.recipe, step - 1),
            gradient_norm=self._gradient_norm,
            samples_per_s=done * self.config.recipe.batch / seconds,
            waiting=min(1.0, self.batches.waited_s / seconds),
            eta_s=(self.config.steps - step) * seconds / done,
        )
        if self._journal is not None:
            self._journal.log(record)
        self.observer.on_log(record)
        self._logged_step, self.batches.waited_s = step, 0.0
        self.watch.restart()

    def evaluate(self) -> bool:
        """Score the (averaged) weights; True if this is the best so far."""
        with self._in_evaluation_mode(), self._signals.interrupting(self.world.size == 1):
            scores = self.world.mean(self.task.evaluate(self.state.model, self.world))
        value = scores.get(self.task.score) if self.task.score is not None else None
        before = self.store.best_score() if self.world.is_first else None
        best = value is not None and (before is None or self._signed(value) < before)
        best = bool(self.world.broadcast_json(best))
        self.state.score = None if value is None else self._signed(value)
        if self._journal is not None and scores:
            self._journal.scores(self.state.step, scores, best=best)
        if scores:
            shown = "  ".join(f"{n} {v:.5g}" for n, v in scores.items())
            self.observer.on_message(f"step {self.state.step}: {shown}{'  (best so far)' if best else ''}")
        return best

    def score_start(self) -> None:
        """Score the weights that the run starts from and keep them: what training makes worse is never the best."""
        self.evaluate()
        if self.state.score is not None:
            self.save()
            note_start(self.config.run, self.task.score, self.state.score)

    def draw(self) -> None:
        """Pictures of what the (averaged) weights can do."""
        with self._in_evaluation_mode(), self._signals.interrupting(self.world.size == 1):
            pictures = self.task.pictures(self.state.model, self.world)
        if self._journal is not None and pictures:
            paths = self._journal.pictures(self.state.step, pictures)
            self.observer.on_message(f"step {self.state.step}: {len(paths)} pictures in {paths[0].parent}")

    def save(self) -> None:
        """Write a checkpoint, unless this step has one."""
        if self._saved_step == self.state.step:
            return
        self.watch.pause()
        check_ranks_agree(self.state.model, self.world)
        tensors = self.state.tensors(self.world)
        trouble = ""
        if self.world.is_first:
            try:
                plain = self.state.plain() | {"seconds": self.state.seconds + self.watch.seconds}
                path = self.store.save(self.identity, plain, tensors)
                self.observer.on_message(f"step {self.state.step}: saved {path}")
            except TrainingError as error:
                if self.world.size == 1:
                    raise
                trouble = str(error)
        if trouble := self.world.broadcast_json(trouble):
            raise TrainingError(trouble)
        self._saved_step = self.state.step
        self.watch.resume()

    def last_checkpoint(self) -> str:
        """Where training can go on from, in words."""
        steps = self.store.steps()
        return f"the last checkpoint is {self.store.path(steps[-1])}" if steps else "there is no checkpoint yet"

    def _signed(self, value: float) -> float:
        return value if self.task.lower_is_better else -value

    @contextlib.contextmanager
    def _in_evaluation_mode(self) -> Iterator[None]:
        """Evaluation mode with the averaged weights, no gradients, the clock stopped."""
        self.watch.pause()
        model, ema = self.state.model, self.state.ema
        model.eval()
        try:
            averaged = contextlib.nullcontext() if ema is None else ema.applied(model)
            with averaged, self.parallel.whole(), torch.no_grad(), self.precision.autocast(self.world.device):
                yield
        finally:
            model.train()
        self.watch.resume()

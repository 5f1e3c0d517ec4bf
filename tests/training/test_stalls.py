"""Loaders that stand still: the worker is named, signals are answered, and nothing that was done is lost."""

from __future__ import annotations

import os
import resource
import signal
import time

import pytest
import torch

from copilot4d.errors import TrainingError, UsageError
from copilot4d.training import CheckpointStore, loader_watch, train
from copilot4d.training.loader_watch import FIRST_REMARK_S, LoaderWatch, StalledLoaderError
from tests.training.processes import child, exit_code
from tests.training.test_signals import Telling
from tests.training.toy import Heard, ToyTask, toy_config


class Stopping(ToyTask):
    """The worker that makes a step's batch stops as a debugger or a batch system stops it: it hears no SIGTERM."""

    def __init__(self, step: int, tell=lambda text: None) -> None:
        super().__init__()
        self.step, self.tell = step, tell

    def sample(self, key):
        if key.step == self.step:
            self.tell(f"stopping {os.getpid()}")
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().sample(key)


def newest(run):
    return CheckpointStore(folder=run / "checkpoints").newest().step


def ends(pid):
    """Whether a process has gone, seen from outside."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_stopped_worker_is_named_the_run_is_saved_and_goes_on_as_if_nothing_had_been(tmp_path, monkeypatch):
    monkeypatch.setattr(LoaderWatch, "is_stalled", lambda self, waited_s: "stopped" in self.doing())  # not by the clock
    with pytest.raises(
        StalledLoaderError, match=r"step \d: no batch.*loader worker [01] \(process \d+, stopped\).*step"
    ):
        train(Stopping(6), toy_config(tmp_path / "run", workers=2, save_every=100))
    assert newest(tmp_path / "run") <= 6  # batches that the worker still held are not to be had
    for run in ("run", "calm"):
        task = ToyTask(order_file=None)
        assert train(task, toy_config(tmp_path / run, save_every=100)).finished
    a, b = (tmp_path / run / "checkpoints" / "step_000000020" / "model.safetensors" for run in ("run", "calm"))
    assert a.read_bytes() == b.read_bytes()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_is_answered_while_a_worker_is_stopped(number, code, tmp_path):
    """Within the default patience of ten minutes; the process ends although a child of it is stopped."""
    config = toy_config(tmp_path, workers=1, save_every=100)
    with child(lambda tell: train(Stopping(4, tell), config, Telling(tell)).exit_code) as (pid, lines):
        worker = next(int(line.split()[1]) for line in lines if line.startswith("stopping"))
        os.kill(pid, number)
        rest = lines.read()
    assert exit_code(pid) == code, rest
    assert newest(tmp_path) <= 4  # batches that the worker still held are not to be had
    assert ends(worker)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_answered_while_the_training_process_itself_waits_for_data(number, tmp_path):
    class Waiting(ToyTask):
        def sample(self, key):
            if key.step == 3:
                os.kill(os.getpid(), number)
                time.sleep(500)
            return super().sample(key)

    result = train(Waiting(), toy_config(tmp_path, save_every=100))
    assert (result.step, result.signal) == (3, number)
    assert newest(tmp_path) == 3


@pytest.mark.parametrize("what", ["evaluate", "pictures"])
def test_a_signal_ends_a_long_evaluation(what, tmp_path):
    """The weights in use then are averaged ones: those that are saved must not be."""

    def slow(self, model, world):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(500)

    task = type("Slow", (ToyTask,), {what: slow})
    recipe = toy_config(tmp_path).recipe
    averaged = type(recipe)(**{**vars(recipe), "ema_decay": 0.9})
    every = {f"{what}_every" if what == "pictures" else "evaluate_every": 4}
    result = train(task(), toy_config(tmp_path / "run", recipe=averaged, save_every=100, **every))
    assert (result.step, result.exit_code) == (4, 143)
    train(ToyTask(), toy_config(tmp_path / "calm", recipe=averaged, max_steps=4))
    a, b = (tmp_path / r / "checkpoints" / "step_000000004" / "model.safetensors" for r in ("run", "calm"))
    assert a.read_bytes() == b.read_bytes()


def test_a_batch_that_does_not_fit_into_shared_memory_is_an_error_and_no_endless_wait(tmp_path):
    """The limit on file sizes holds for shared memory, too; a full /dev/shm comes to the same."""

    class Large(ToyTask):
        def collate(self, samples):
            return {**super().collate(samples), "large": torch.zeros(100_000)}

    def work(tell):
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        try:
            train(Large(), toy_config(tmp_path, workers=1))
        except TrainingError as error:
            tell(str(error))
            return 1
        return 0

    with child(work) as (pid, lines):
        said = lines.read()
    assert exit_code(pid) == 1
    assert "no room for its batch in shared memory" in said
    assert "training.workers" in said


def test_remarks_come_after_half_a_minute_and_each_time_that_the_wait_doubles():
    watch = LoaderWatch(2, patience_s=600)
    waits = [s for s in range(1, 601) if watch.remark(float(s), step=9)]
    assert waits == [FIRST_REMARK_S, 60, 120, 240, 480]
    watch.arrived()
    assert watch.remark(FIRST_REMARK_S, step=10) is not None
    assert "loader worker 1 has not begun" in watch.doing()
    with watch.at_work(1, 7):
        assert f"loader worker 1 (process {os.getpid()}) has been making a batch of step 7 for 0 s" in watch.doing()
    assert f"loader worker 1 (process {os.getpid()}) has handed over its last batch" in watch.doing()
    assert watch.is_stalled(600)
    assert not watch.is_stalled(599)
    assert not LoaderWatch(2, patience_s=0).is_stalled(1e9)


def test_a_slow_loader_is_remarked_on_and_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(loader_watch, "POLL_S", 0.02)
    monkeypatch.setattr(LoaderWatch, "remark", lambda self, waited_s, step: f"step {step}: waiting, {self.doing()}")

    class Slow(ToyTask):
        def sample(self, key):
            time.sleep(0.03)
            return super().sample(key)

    heard = Heard()
    assert train(Slow(), toy_config(tmp_path, workers=1, max_steps=2), heard).step == 2
    assert any("making a batch of step" in message for message in heard.messages)


def test_a_timeout_must_be_a_time(tmp_path):
    for value in (-1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match=r"training\.loader_timeout_s"):
            toy_config(tmp_path, loader_timeout_s=value)

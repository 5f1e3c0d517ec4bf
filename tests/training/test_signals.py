"""Signals: a run that is told to stop finishes its step, saves, and can go on."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from copilot4d.training import CheckpointStore, open_checkpoint, train
from copilot4d.training.data import _ignore_signals
from tests.training.processes import child, exit_code
from tests.training.toy import Heard, ToyTask, toy_config, toy_recipe


class Telling(Heard):
    """Passes on all it hears as text."""

    def __init__(self, tell) -> None:
        super().__init__()
        self.tell = tell

    def on_log(self, record) -> None:
        self.tell(record.line())

    def on_message(self, message: str) -> None:
        self.tell(message)


class SignalsItself(ToyTask):
    """Gets a signal in the middle of a step."""

    def __init__(self, number: int, step: int, times: int = 1) -> None:
        super().__init__()
        self.number, self.step, self.times = number, step, times

    def before_step(self, context):
        if context.counter.step == self.step:
            for _ in range(self.times):
                os.kill(os.getpid(), self.number)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_signal_finishes_the_step_saves_and_has_its_code(number, code, tmp_path):
    before = signal.getsignal(number)
    result = train(SignalsItself(number, step=6), toy_config(tmp_path, save_every=100))
    assert (result.step, result.finished, result.exit_code) == (7, False, code)
    assert open_checkpoint(result.checkpoint).step == 7
    assert signal.getsignal(number) == before
    assert train(ToyTask(), toy_config(tmp_path, save_every=100)).exit_code == 0


def test_a_signal_in_the_last_step_changes_nothing(tmp_path):
    result = train(SignalsItself(signal.SIGTERM, step=2), toy_config(tmp_path, max_steps=3))
    assert (result.finished, result.exit_code) == (True, 0)


def test_a_second_ctrl_c_stops_at_once(tmp_path):
    train(ToyTask(), toy_config(tmp_path, max_steps=2))
    with pytest.raises(KeyboardInterrupt):
        train(SignalsItself(signal.SIGINT, step=4, times=2), toy_config(tmp_path))
    assert CheckpointStore(folder=tmp_path / "checkpoints").newest().step == 2


def test_a_real_process_obeys_sigterm_with_workers(tmp_path):
    """The whole process group gets the signal, as from a scheduler; loader workers must not die of it."""
    recipe = toy_recipe(cosine_steps=100_000)
    config = toy_config(tmp_path, recipe=recipe, workers=2, save_every=100_000)
    with child(lambda tell: train(ToyTask(), config, Telling(tell)).exit_code) as (pid, lines):
        next(line for line in lines if line.startswith("step      3/100003"))
        os.killpg(pid, signal.SIGTERM)
        rest = lines.read()
    assert exit_code(pid) == 143, rest
    assert CheckpointStore(folder=tmp_path / "checkpoints").newest().step >= 3


def test_loader_workers_outlive_one_sigterm_but_not_two(tmp_path):
    """One comes from a scheduler; the second from Python at exit, which then waits for the worker."""

    def work(tell):
        _ignore_signals(0)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            tell("alive")
        return 0

    with child(work) as (pid, lines):
        assert lines.read() == "alive\n"
    assert exit_code(pid) == -signal.SIGTERM


def test_outside_the_main_thread_it_trains_without_handlers(tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(train(ToyTask(), toy_config(tmp_path, max_steps=2))))
    thread.start()
    thread.join()
    assert results[0].step == 2

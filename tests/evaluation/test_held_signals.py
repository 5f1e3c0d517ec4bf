"""Signals in the middle of what must be whole: answered, but only after it."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest

from copilot4d.baselines import CopyLast
from copilot4d.cli.held_output import Terminated, terminated_as_interrupted
from copilot4d.evaluation import evaluate_dataset
from copilot4d.evaluation.held_signals import signals_held
from copilot4d.evaluation.tally import Tally
from tests.support.scenes import make_drive


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_a_signal_waits_for_the_end(number, kind):
    done = []
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    def work():
        with terminated_as_interrupted(), signals_held():
            signal.raise_signal(number)
            done.append("first")
            signal.raise_signal(number)
            done.append("second")
        done.append("not reached")

    with pytest.raises(kind):
        work()
    assert done == ["first", "second"]
    assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))


def test_an_error_inside_is_not_replaced():
    with pytest.raises(ValueError, match="own"), signals_held():
        raise ValueError("own")


def test_other_threads_are_left_alone():
    done = []

    def work():
        with signals_held():
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]


@pytest.mark.parametrize("at", [1, 2, 7, 12])
def test_an_evaluation_that_is_interrupted_while_it_counts_has_the_scores_of_one_that_is_not(at, tmp_path, monkeypatch):
    """A window that is in the tally by half would be counted twice."""
    drives = {"a": make_drive(20, rings=6, azimuths=40)}
    options = {"setting": "1s", "limit": 4, "resume": tmp_path / "kept"}
    calm = evaluate_dataset(CopyLast(), drives, **options)
    (tmp_path / "kept").unlink()
    add, calls = Tally.add, []

    def interrupted(self, *given, **named):
        add(self, *given, **named)
        calls.append(1)
        if len(calls) == at:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Tally, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate_dataset(CopyLast(), drives, **options)
    again = evaluate_dataset(CopyLast(), drives, **options)
    assert again.metrics == calm.metrics
    assert again.frames_scored == calm.frames_scored
    assert again.frames_hash == calm.frames_hash
    assert [r.chamfer_roi for r in again.by_reference] == [r.chamfer_roi for r in calm.by_reference]
    assert not np.isnan(again.metrics["chamfer_roi"])

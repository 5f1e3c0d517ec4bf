"""The worker: newest wishes win, wishes are taken back between items and inside networks, failures are told."""

from __future__ import annotations

import threading

import pytest
import torch

from copilot4d.errors import ForecastError
from copilot4d.studio.worker import Worker


@pytest.fixture
def worker():
    made = Worker(settle_s=0.0)
    yield made
    made.close()


def nothing_failed(error):
    raise AssertionError(error)


def test_works_to_the_end_and_rests(worker):
    done = []

    def work():
        for k in range(3):
            done.append(k)
            yield

    worker.ask("a", work, nothing_failed)
    assert worker.wait_idle(10)
    assert done == [0, 1, 2]


def test_a_newer_wish_takes_back_the_running_one_between_items(worker):
    begun, go_on, items = threading.Event(), threading.Event(), []

    def old():
        for k in range(100):
            items.append(k)
            begun.set()
            go_on.wait(10)
            yield

    def new():
        items.append("new")
        yield

    wish = worker.ask("a", old, nothing_failed)
    assert begun.wait(10)
    worker.ask("a", new, nothing_failed)
    assert wish.cancelled.is_set()
    go_on.set()
    assert worker.wait_idle(10)
    assert items == [0, "new"]


def test_wishes_of_others_are_served_in_turn_and_one_at_a_time(worker):
    begun, go_on, order = threading.Event(), threading.Event(), []

    def blocking():
        order.append("a")
        begun.set()
        go_on.wait(10)
        order.append("a ends")
        yield

    def short(name):
        order.append(name)
        yield

    worker.ask("a", blocking, nothing_failed)
    assert begun.wait(10)
    worker.ask("b", lambda: short("b"), nothing_failed)
    worker.ask("c", lambda: short("c"), nothing_failed)
    assert worker.is_busy_with_others("b")
    assert not worker.is_busy_with_others("a")
    go_on.set()
    assert worker.wait_idle(10)
    assert order == ["a", "a ends", "b", "c"]


def test_cancel_says_whether_there_was_anything(worker):
    assert not worker.cancel("a")
    slow = Worker(settle_s=60.0)
    slow.ask("a", lambda: iter([None]), nothing_failed)
    assert slow.cancel("a")
    assert not slow.cancel("a")
    assert slow.wait_idle(1)
    slow.close()


def test_only_the_last_of_many_quick_wishes_is_begun():
    worker, begun = Worker(settle_s=0.2), []
    for k in range(50):
        worker.ask("slider", lambda k=k: iter([begun.append(k)]), nothing_failed)
    assert worker.wait_idle(10)
    assert begun == [49]
    worker.close()


def test_a_network_is_left_between_its_modules(worker):
    calls, inside = [], threading.Event()

    class Step(torch.nn.Module):
        def forward(self, x):
            calls.append(len(calls))
            if len(calls) == 3:
                worker.cancel("a")
            return x

    chain = torch.nn.Sequential(*[Step() for _ in range(10)])

    def work():
        inside.set()
        chain(torch.zeros(1))
        yield

    worker.ask("a", work, nothing_failed)
    assert worker.wait_idle(10)
    assert calls == [0, 1, 2], "the fourth module asks first whether the wish still stands"
    chain(torch.zeros(1))  # other threads, and later calls, are not stopped
    assert len(calls) == 13


@pytest.mark.parametrize("error", [ForecastError("no past"), RuntimeError("out of memory"), KeyError("x")])
def test_failures_are_told_and_the_next_wish_is_served(worker, error):
    told, served = [], []

    def fail():
        raise error
        yield

    worker.ask("a", fail, told.append)
    assert worker.wait_idle(10)
    assert told == [error]
    worker.ask("a", lambda: iter([served.append(1)]), nothing_failed)
    assert worker.wait_idle(10)
    assert served == [1]


def test_close_ends_the_thread_even_with_wishes_waiting():
    worker = Worker(settle_s=60.0)
    worker.ask("a", lambda: iter([None]), nothing_failed)
    worker.close()
    assert not worker._thread.is_alive()

"""The real networks, tiny and with random weights, in the studio: frames, shared draws, and a cancel within a frame."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d import load_forecaster, presets
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.studio.library import Library
from copilot4d.studio.plan import Plan
from copilot4d.studio.session import Session
from copilot4d.studio.worker import Worker
from copilot4d.tokenizer import Tokenizer
from copilot4d.world_model import WorldModel
from tests.studio.scripted import ToyLibrary, toy_dataset


@pytest.fixture
def session(tmp_path):
    config = presets.tiny()
    torch.manual_seed(5)
    model = Copilot4D(Tokenizer(config.tokenizer), WorldModel(config.world_model))
    worker = Worker(settle_s=0.0)
    made = Session(ToyLibrary(toy_dataset(tmp_path), model), worker, model="scripted")
    made.open("toy")
    made.choose_sampling(futures=2, steps=2)
    yield made
    made.close()
    worker.close()


def test_a_plan_gives_the_models_own_forecast(session):
    session.choose_plan(Plan(kind="brake"))
    run = session.ask()
    assert session.worker.wait_idle(120)
    assert run.error == ""
    assert run.state == "done"
    forecaster = session.library.forecaster("scripted")
    whole = forecaster.forecast(session.moment.past, run.poses, steps=2, seed=0, futures=2)
    for future, expected in enumerate(whole.futures):
        for frames, sweep in zip(run.frames, expected.sweeps, strict=True):
            np.testing.assert_array_equal(frames[future].sweep.points, sweep.points)
    again = session.ask()
    assert session.worker.wait_idle(120)
    np.testing.assert_array_equal(again.frames[-1][1].tokens, run.frames[-1][1].tokens)


def test_a_window_can_say_how_far_a_model_sees_once_it_is_loaded():
    config = presets.tiny()
    model = Copilot4D(Tokenizer(config.tokenizer), WorldModel(config.world_model), name="toy")
    library = Library(models=("toy", "copy_last"), load=lambda name: model if name == "toy" else load_forecaster(name))
    assert library.limits("toy") == ""
    for name in ("toy", "copy_last"):
        library.forecaster(name)
    assert library.limits("toy").startswith("toy predicts within 16 m")
    assert library.limits("copy_last") == ""


def test_cancelling_within_a_frame_leaves_the_network_at_once(session):
    forecaster = session.library.forecaster("scripted")
    calls = []

    def watch(module, arguments):
        calls.append(len(calls))
        if len(calls) == 1:
            session.cancel()

    session.choose_sampling(steps=40)
    blocks = [m for m in forecaster.world_model.modules() if isinstance(m, torch.nn.Linear)]
    hooks = [block.register_forward_pre_hook(watch) for block in blocks]
    run = session.ask()
    assert session.worker.wait_idle(120)
    for hook in hooks:
        hook.remove()
    assert run.state == "cancelled"
    assert run.frames == []
    assert len(calls) <= 2, "no further layer of the 40 steps is computed"
    session.choose_sampling(steps=1)
    after = session.ask()
    assert session.worker.wait_idle(120)
    assert after.state == "done", "the network is as it was"

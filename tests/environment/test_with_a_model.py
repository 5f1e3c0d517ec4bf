"""The real networks, tiny and with random weights, as an environment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from copilot4d import presets
from copilot4d.environment import ActionRefusedError, WorldModelEnv
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.tokenizer import Tokenizer
from copilot4d.world_model import WorldModel
from tests.environment.test_env import same, shown
from tests.support.scenes import make_drive

DRIVE = make_drive(16, rings=8, azimuths=60)
PLAN = ([6.0, 0.05], [4.0, 0.0], [6.0, -0.3])  # longer than the model's window


@pytest.fixture(scope="module", params=["own", "reference"])
def model(request):
    config = presets.tiny()
    torch.manual_seed(5)
    tokenizer = Tokenizer(config.tokenizer)
    with torch.no_grad():  # random weights see the same fog everywhere: make it patchy, so that rays differ
        tokenizer.coarse_branch.linear.bias.fill_(0.0)
        tokenizer.codebook.weight.mul_(20.0)
        tokenizer.feature_grid.occupancy.weight.mul_(60.0)
    return Copilot4D(tokenizer, WorldModel(replace(config.world_model, token_frame=request.param)))


def begun(model, seed=3):
    env = WorldModelEnv(model, (DRIVE, 12), futures=2, steps=1, max_points=200)
    env.reset(seed=seed)
    return env


def test_same_seed_and_actions_same_future_to_the_bit(model):
    lives = [tuple(map(begun(model).step, PLAN)) for _ in range(2)]
    assert same(*lives)
    another = begun(model, seed=4).step(PLAN[0])
    assert not np.array_equal(lives[0][0][4]["tokens"], another[4]["tokens"])


def test_info_has_tokens_opacity_and_disagreement_of_the_observed_points(model):
    env = begun(model)
    observation, _, _, _, info = env.step(PLAN[0])
    frame = env.frames[0]
    assert np.array_equal(info["tokens"], frame.tokens)
    index = [np.flatnonzero((frame.sweep.points == point).all(axis=1))[0] for point in shown(observation)]
    assert len(index) > 20
    assert np.array_equal(info["opacity"][: len(index)], frame.opacity[index].astype(np.float32))
    assert info["disagreement_m"] > 0


def test_forks_and_refusals_leave_the_model_where_it_was(model):
    env, alone = begun(model), begun(model)
    fork = env.fork()
    for action in PLAN[1:]:
        fork.step(action)
    for action in PLAN:
        with pytest.raises(ActionRefusedError):
            env.step([500.0, 0.0])
        assert same(env.step(action), alone.step(action))

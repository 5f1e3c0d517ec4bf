"""The shipped model as an environment: gymnasium's own checks, and the same future for the same seed and actions."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from copilot4d.environment import WorldModelEnv
from copilot4d.environment.env import DEFAULT_FORECASTER
from copilot4d.simulator import simulate_drive
from tests.environment.test_env import same
from tests.support.shipped import shipped_mini

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def drive():
    shipped_mini()
    return simulate_drive(seed=5, seconds=2.0)


def env_at(drive, **options):
    return WorldModelEnv(moments=(drive, 14), steps=2, max_points=20_480, **options)


def test_the_default_model_is_the_shipped_one_and_passes_gymnasiums_checks(drive):
    env = env_at(drive, horizon=3)
    assert env.forecaster.name == DEFAULT_FORECASTER == "mini"
    check_env(env, skip_render_check=True)


def test_same_seed_and_actions_same_future_also_beyond_the_window(drive):
    """Six steps after five sweeps: the reference has moved by then."""
    plan = [[6.0, 0.02 * k] for k in range(6)]
    lives = []
    for seed in (3, 3, 4):
        env = env_at(drive, futures=2)
        env.reset(seed=seed)
        lives.append(tuple(env.step(action) for action in plan))
    assert same(lives[0], lives[1])
    info, other = lives[0][-1][4], lives[2][-1][4]
    assert info["tokens"].shape == (32, 32)
    assert (info["tokens"] != other["tokens"]).any()
    assert info["disagreement_m"] > 0
    assert np.mean(info["opacity"] > 0.5) > 0

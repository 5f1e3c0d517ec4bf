"""Forks, branches and vectors: many futures of one state, none of which disturbs another."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from copilot4d.environment import ActionRefusedError, NotRunningError
from copilot4d.errors import UsageError
from tests.environment.dreamer import Dreamer
from tests.environment.test_env import DRIVE, make, same, shown

KEEP, BRAKE, LEFT = [6.0, 0.05], [0.0, 0.0], [6.0, 0.4]


def begun(**options):
    env = make(Dreamer(), futures=2, **options)
    env.reset(seed=2)
    env.step(KEEP)
    return env


def test_steps_of_a_fork_and_of_its_origin_never_meet():
    env, alone = begun(), begun()
    fork = env.fork()
    fork_of_fork = fork.fork()
    after_left = fork.step(LEFT)
    fork.step(LEFT)
    expected = alone.step(BRAKE)
    assert same(env.step(BRAKE), expected)
    assert same(fork_of_fork.step(BRAKE), expected)
    assert not same(after_left[0], expected[0])


def test_a_fork_draws_the_same_next_episode_and_samples_as_its_origin():
    env = begun(moments=DRIVE)
    env.action_space.seed(1)
    fork = env.fork()
    samples = [env.action_space.sample() for _ in range(3)]
    assert same(tuple(samples), tuple(fork.action_space.sample() for _ in range(3)))
    first = env.reset()
    env.reset()
    assert same(fork.reset(), first)


def test_a_reset_of_the_origin_leaves_the_fork_where_it_is():
    env, alone = begun(), begun()
    fork = env.fork()
    env.reset(seed=77)
    assert same(fork.step(LEFT), alone.step(LEFT))


def test_a_fork_shares_points_and_weights():
    env = begun()
    fork = env.fork()
    assert fork.forecaster is env.forecaster
    assert fork.sweep.points is env.sweep.points
    assert fork.frames is env.frames
    assert fork.observation_space is env.observation_space


def test_branches_are_what_stepping_each_plan_gives():
    env, alone = begun(), begun()
    plans = [[KEEP, KEEP, KEEP], [BRAKE], [LEFT, KEEP]]
    branches = env.branches(plans)
    for plan, branch in zip(plans, branches, strict=True):
        stepper = alone.fork()
        stepped = [stepper.step(action) for action in plan]
        assert len(branch.transitions) == len(plan)
        for transition, expected in zip(branch.transitions, stepped, strict=True):
            assert same(transition.observation, expected[0])
            assert same(transition.info, expected[4])
        assert same(branch.world_from_lidar[-1], stepped[-1][4]["world_from_lidar"])
        assert same(branch.env.step(KEEP), stepper.step(KEEP))  # and it can go on from there
    assert same(env.step(KEEP), alone.step(KEEP))  # where it was


def test_branches_share_random_numbers_so_that_equal_plans_are_equal():
    a, b, c = begun().branches(np.array([[KEEP, LEFT], [KEEP, LEFT], [KEEP, BRAKE]]))
    assert same(a.transitions[1].observation, b.transitions[1].observation)
    assert same(a.transitions[0].observation, c.transitions[0].observation)
    assert not same(a.transitions[1].observation, c.transitions[1].observation)


def test_the_reward_of_a_branch_is_the_sum():
    env = begun(reward=lambda p, a, n, i: float(i["step"]))
    assert [b.total_reward for b in env.branches([[KEEP, KEEP], [BRAKE]])] == [2.0 + 3.0, 2.0]


def test_a_plan_that_cannot_be_is_refused_before_anything_is_imagined():
    calls = []
    env = begun(horizon=4, reward=lambda *_: calls.append(1) or 0.0)
    calls.clear()
    with pytest.raises(ActionRefusedError):
        env.branches([[KEEP], [KEEP, [500.0, 0.0]]])
    with pytest.raises(UsageError, match="plan 1 has 4 actions; 1 to 3 are left"):
        env.branches([[KEEP], [KEEP] * 4])
    with pytest.raises(UsageError, match="plan 0 has 0 actions"):
        env.branches([[]])
    with pytest.raises(NotRunningError):
        make().branches([[KEEP]])
    assert calls == []


def test_a_vector_of_forks_goes_on_from_one_state():
    env, alone = begun(), begun()
    vector = SyncVectorEnv([env.fork] * 3)
    observations, _, _, truncated, infos = vector.step(np.array([KEEP, BRAKE, LEFT], dtype=np.float32))
    for k, action in enumerate((KEEP, BRAKE, LEFT)):
        expected = alone.fork().step(np.array(action, dtype=np.float32))
        assert np.array_equal(observations["points"][k], expected[0]["points"])
        assert observations["count"][k] == expected[0]["count"]
        assert np.array_equal(infos["world_from_lidar"][k], expected[4]["world_from_lidar"])
        assert np.array_equal(infos["tokens"][k], expected[4]["tokens"])
    assert not truncated.any()
    vector.close()


def test_gymnasium_vectorises_it_over_episodes_that_end_at_different_times():
    vector = gymnasium.make_vec(
        "copilot4d/WorldModel-v0", num_envs=2, vectorization_mode="sync",
        forecaster=Dreamer(), moments=DRIVE, max_points=600, horizon=2, futures=2,
    )  # fmt: skip
    vector.reset(seed=[1, 2])
    vector.envs[0].unwrapped.step(KEEP)  # one step ahead of the other
    ends = []
    for _ in range(5):
        observations, _, _, truncated, infos = vector.step(np.array([KEEP, BRAKE], dtype=np.float32))
        ends.append(truncated.tolist())
        assert observations in vector.observation_space
        resets = infos["step"] == 0
        assert (infos.get("_tokens", np.zeros(2, dtype=bool)) == ~resets).all()  # an episode's first sweep is real
    assert ends == [[True, False], [False, True], [False, False], [True, False], [False, True]]
    vector.close()


def test_actions_between_minus_one_and_one_by_gymnasiums_wrapper():
    env = gymnasium.wrappers.RescaleAction(begun(), -1.0, 1.0)
    stepped = env.step(np.array([1.0, -1.0], dtype=np.float32))
    assert stepped[4]["speed_m_s"] == pytest.approx(40.0)
    assert stepped[4]["yaw_rate_rad_s"] == pytest.approx(-1.0)
    assert len(shown(stepped[0])) > 0

"""One environment: what a step does to the ego and the points, what stays, what is refused."""

from __future__ import annotations

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import copilot4d.environment
from copilot4d.baselines import CopyLast
from copilot4d.environment import ActionLimits, ActionRefusedError, NotRunningError, WorldModelEnv, motion_of
from copilot4d.errors import UsageError
from copilot4d.geometry import Sweep, se3
from tests.environment.dreamer import Dreamer
from tests.support.scenes import make_drive

DRIVE = make_drive(24, rings=8, azimuths=60)
MOMENT = (DRIVE, 12)


def make(forecaster=None, moments=MOMENT, **options):
    return WorldModelEnv(forecaster or CopyLast(), moments, **{"max_points": 600, **options})


def same(a, b):
    """Bit by bit, whatever is in it."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and np.array_equal(a, b)


def shown(observation):
    return observation["points"][: observation["count"]]


@pytest.mark.parametrize("options", [{}, {"action_mode": "se3", "futures": 2}], ids=["speed", "se3"])
@pytest.mark.parametrize("forecaster", ["copy_last", "dreamer"])
def test_gymnasiums_own_checker_is_content(forecaster, options):
    model = Dreamer() if forecaster == "dreamer" else forecaster
    env = gymnasium.make("copilot4d/WorldModel-v0", forecaster=model, moments=DRIVE, max_points=600, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env.unwrapped)
    said = {str(warning.message) for warning in caught}
    # Actions are in m/s and rad/s on purpose; gymnasium.wrappers.RescaleAction makes them -1 to 1.
    assert all("recommend using a symmetric and normalized space" in message for message in said), said


def test_it_is_registered_without_loading_a_network_library():
    code = (
        "import sys, copilot4d, copilot4d.environment, gymnasium\n"
        "assert 'copilot4d/WorldModel-v0' in gymnasium.registry\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    alone = "import gymnasium; gymnasium.make('copilot4d.environment:copilot4d/WorldModel-v0', forecaster='copy_last')"
    subprocess.run([sys.executable, "-c", alone], check=True)


def test_reset_shows_the_moment_itself():
    observation, info = make().reset(seed=0)
    assert np.array_equal(shown(observation), DRIVE[12].points)
    assert (observation["points"][observation["count"] :] == 0).all()
    assert np.array_equal(info["world_from_lidar"], DRIVE[12].world_from_lidar)
    assert (info["drive"], info["frame"], info["step"], info["time_s"]) == ("toy", 12, 0, 0.0)
    assert info["step_s"] == pytest.approx(0.2)  # the 1s setting at 10 Hz: every second sweep
    assert info["speed_m_s"] == pytest.approx(6.0)  # as the drive was made
    assert info["yaw_rate_rad_s"] == pytest.approx(0.05)
    assert not {"tokens", "opacity", "disagreement_m"} & set(info)


def test_a_step_moves_the_ego_along_its_arc_and_the_points_the_other_way():
    env = make()
    env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step([8.0, 0.5])
    angle, radius = 0.5 * 0.2, 8.0 / 0.5
    previous_from_next = se3.from_yaw(angle, (radius * np.sin(angle), radius * (1 - np.cos(angle)), 0.0))
    assert info["world_from_lidar"] == pytest.approx(DRIVE[12].world_from_lidar @ previous_from_next)
    expected = se3.transform_points(np.linalg.inv(previous_from_next), DRIVE[12].points)
    assert np.allclose(shown(observation), expected, atol=1e-5)
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert (info["step"], info["speed_m_s"], info["yaw_rate_rad_s"]) == (1, 8.0, 0.5)
    assert info["time_s"] == pytest.approx(0.2)
    assert info["timestamp_ns"] == DRIVE[12].timestamp_ns + 200_000_000


def test_driving_the_logs_own_way_arrives_where_the_log_does():
    env = make()
    env.reset(seed=0)
    for _ in range(5):
        info = env.step([6.0, 0.05])[4]
    assert info["world_from_lidar"] == pytest.approx(DRIVE.world_from_lidar[22])


def test_the_ego_moves_in_its_own_plane():
    uphill = motion_of(np.array([0.0, 0, 0, 0, -0.1, 0]), 1.0)  # nose up by 0.1 rad
    past = [tilted(DRIVE[i], uphill) for i in (8, 10, 12)]
    env = make()
    env.reset(seed=0, options={"past": past})
    pose = env.step([10.0, 0.0])[4]["world_from_lidar"]
    assert pose[2, 3] - past[-1].world_from_lidar[2, 3] == pytest.approx(2.0 * np.sin(0.1))
    assert pose[:3, :3] == pytest.approx(past[-1].world_from_lidar[:3, :3])


def tilted(sweep: Sweep, motion: np.ndarray) -> Sweep:
    return Sweep(points=sweep.points, world_from_lidar=sweep.world_from_lidar @ motion, timestamp_ns=sweep.timestamp_ns)


def test_the_worlds_origin_means_nothing():
    world_from_other = motion_of(np.array([50.0, -20, 3, 0.1, 0.2, 1.0]), 1.0)
    moved = [
        Sweep(points=s.points, world_from_lidar=world_from_other @ s.world_from_lidar, timestamp_ns=s.timestamp_ns)
        for s in (DRIVE[8], DRIVE[10], DRIVE[12])
    ]
    here, there = make(), make()
    here.reset(seed=0)
    there.reset(seed=0, options={"past": moved})
    for action in ([8.0, 0.5], [3.0, -0.2]):
        a, b = here.step(action), there.step(action)
        assert np.allclose(shown(a[0]), shown(b[0]), atol=1e-4)


def test_the_three_ways_to_say_a_motion_agree():
    car, free, by_pose = make(), make(action_mode="se3"), make()
    for env in (car, free, by_pose):
        env.reset(seed=0)
    a = car.step([7.0, -0.4])
    b = free.step([7.0, 0, 0, 0, 0, -0.4])
    assert same(a[0], b[0])
    c = by_pose.step_pose(a[4]["world_from_lidar"])
    assert np.allclose(a[0]["points"], c[0]["points"], atol=1e-5)
    assert c[4]["speed_m_s"] == pytest.approx(7.0)
    assert c[4]["yaw_rate_rad_s"] == pytest.approx(-0.4)


def test_same_seed_and_actions_same_future_to_the_bit_and_another_seed_another():
    plan = [[6.0, 0.1], [6.5, 0.0], [2.0, -0.3]]

    def lived(seed):
        env = make(Dreamer(), futures=3, moments=DRIVE)
        return (env.reset(seed=seed), *(env.step(action) for action in plan))

    assert same(lived(3), lived(3))
    env = make(Dreamer())
    env.reset(seed=3)
    first = env.step(plan[0])
    env.reset(seed=4)
    assert not same(first[0], env.step(plan[0])[0])
    env.reset(seed=3)
    assert same(first, env.step(plan[0]))  # whatever the environment did before


def test_tokens_opacity_and_disagreement_belong_to_the_observed_points():
    env = make(Dreamer(0.5), futures=3, max_points=100)
    env.reset(seed=1)
    observation, _, _, _, info = env.step([6.0, 0.0])
    frames = env.frames
    assert len(frames) == 3
    assert np.array_equal(info["tokens"], frames[0].tokens)
    assert info["subsampled"]
    assert info["points_in_sweep"] == len(frames[0].sweep) > 100
    index = [np.flatnonzero((frames[0].sweep.points == point).all(axis=1))[0] for point in shown(observation)]
    assert np.array_equal(info["opacity"], frames[0].opacity[index])
    nearest = [
        np.linalg.norm(shown(observation)[:, None] - frame.sweep.points[None], axis=-1).min(axis=1)
        for frame in frames[1:]
    ]
    assert info["point_disagreement_m"] == pytest.approx(np.mean(nearest, axis=0), abs=1e-4)
    assert info["disagreement_m"] == pytest.approx(np.mean(nearest), abs=1e-4)
    assert info["disagreement_m"] > 0.2


def test_more_noise_more_disagreement_and_none_without():
    found = []
    for noise in (0.0, 0.05, 0.5):
        env = make(Dreamer(noise), futures=2)
        env.reset(seed=1)
        found.append(env.step([6.0, 0.0])[4]["disagreement_m"])
    assert found[0] == 0
    assert found[0] < found[1] < found[2]
    env = make(Dreamer())
    env.reset(seed=1)
    assert "disagreement_m" not in env.step([6.0, 0.0])[4]  # a single future has nobody to disagree with


@pytest.mark.parametrize(("blind", "expected"), [((0,), 5.0), ((1,), 5.0), ((0, 1), 0.0)])
def test_a_future_that_sees_nothing_disagrees_with_one_that_sees(blind, expected):
    env = make(Dreamer(blind=blind), futures=2)
    env.reset(seed=1)
    observation, _, _, _, info = env.step([6.0, 0.0])
    assert info["disagreement_m"] == expected
    assert observation["count"] == (0 if 0 in blind else info["points_in_sweep"])
    assert observation in env.observation_space


def test_the_horizon_truncates_and_then_only_a_reset_helps():
    env = make(horizon=3)
    with pytest.raises(NotRunningError, match="call reset first"):
        env.step([6.0, 0.0])
    env.reset(seed=0)
    assert [env.step([6.0, 0.0])[3] for _ in range(3)] == [False, False, True]
    with pytest.raises(NotRunningError, match="horizon of 3 steps"):
        env.step([6.0, 0.0])
    env.reset(seed=0)
    env.step([6.0, 0.0])


@pytest.mark.parametrize("bad", [[200.0, 0.0], [5.0, 20.0], [np.nan, 0.0], [5.0], np.eye(4), "left"], ids=str)
def test_a_refused_action_changes_nothing(bad):
    env, untouched = make(Dreamer()), make(Dreamer())
    for each in (env, untouched):
        each.reset(seed=5)
        each.step([6.0, 0.1])
    with pytest.raises(ActionRefusedError):
        env.step(bad)
    with pytest.raises(ActionRefusedError):
        env.step_pose(2 * np.eye(4))
    assert same(env.step([6.0, 0.1]), untouched.step([6.0, 0.1]))


def test_a_step_that_fails_was_not_taken():
    """Neither by a model that breaks in the middle of it, nor by a reward function."""
    env, untouched = make(Dreamer()), make(Dreamer())
    for each in (env, untouched):
        each.reset(seed=5)
    for broken in (lambda *_: 1 / 0, lambda *_: "much", lambda *_: float("nan")):
        env.reward = broken
        with pytest.raises((UsageError, ZeroDivisionError)):
            env.step([6.0, 0.1])
    env.reward = untouched.reward
    env.forecaster.noise_m = np.nan
    with pytest.raises(UsageError, match="must be finite"):
        env.step([6.0, 0.1])
    env.forecaster.noise_m = untouched.forecaster.noise_m
    assert same(env.step([6.0, 0.1]), untouched.step([6.0, 0.1]))


def test_the_reward_function_is_given_before_action_after_and_info():
    seen = []

    def reward(previous, action, following, info):
        seen.append((previous, action, following))
        info["extra"] = 7
        return 2 * info["time_s"]

    env = make(reward=reward)
    before, _ = env.reset(seed=0)
    after, value, _, _, info = env.step([6.0, 0.25])
    [(previous, action, following)] = seen
    assert same(previous, before)
    assert same(following, after)
    assert action.tolist() == [6.0, 0.25]
    assert value == pytest.approx(0.4)
    assert info["extra"] == 7
    with pytest.raises(ValueError, match="read-only"):
        previous["points"][0] = 0


def test_what_a_caller_does_to_its_observation_is_its_own_affair():
    env, untouched = make(reward=lambda p, a, n, i: float(p["points"].sum())), make(reward=lambda *_: 0.0)
    observation, info = env.reset(seed=0)
    expected = float(observation["points"].sum())
    observation["points"][:] = 1e6
    info["world_from_lidar"][:] = 0
    untouched.reset(seed=0)
    stepped = env.step([6.0, 0.0])
    assert stepped[1] == pytest.approx(expected)
    assert same(stepped[4], untouched.step([6.0, 0.0])[4])
    expected = float(stepped[0]["points"].sum())
    stepped[0]["points"][:] = 1e6
    assert env.step([6.0, 0.0])[1] == pytest.approx(expected)


def test_other_limits():
    env = make(limits=ActionLimits(max_speed_m_s=100.0, max_yaw_rate_rad_s=2.0))
    env.reset(seed=0)
    env.step([100.0, 2.0])
    with pytest.raises(ActionRefusedError, match="-5 to 100 m/s"):
        env.step([101.0, 0.0])


def test_rendering_is_a_picture_of_the_newest_sweep():
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    env.step([30.0, 0.0])
    after = env.render()
    assert before.shape == after.shape == (512, 512, 3)
    assert (before != after).any()
    assert make().render() is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"horizon": 0}, "horizon"),
        ({"futures": 0}, "futures"),
        ({"max_points": 0}, "max_points"),
        ({"render_mode": "human"}, "render_mode"),
        ({"action_mode": "fly"}, "action_mode"),
        ({"setting": "2s"}, "1s and 3s"),
        ({"forecaster": "crystal_ball"}, "crystal_ball"),
    ],
)
def test_environments_that_cannot_be(options, words):
    with pytest.raises(UsageError, match=words):
        make(**options)


def test_environments_of_one_name_share_their_forecaster():
    a, b = make("ray_tracing"), make("ray_tracing")
    assert a.forecaster is b.forecaster
    assert a.forecaster is not make("copy_last").forecaster


def test_the_public_names_are_there():
    assert all(hasattr(copilot4d.environment, name) for name in copilot4d.environment.__all__)

"""Where episodes begin."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.environment import Moment, WorldModelEnv
from copilot4d.errors import ProtocolError, UsageError
from copilot4d.simulator import simulate_drive
from tests.environment.test_env import make, shown
from tests.support.real_data import unpack_drive
from tests.support.scenes import make_drive

LONG = make_drive(24, name="long", rings=4, azimuths=30)
SHORT = make_drive(6, name="short", rings=4, azimuths=30)
DRIVES = {"long": LONG, "short": SHORT}


def drawn(env, episodes=200):
    env.reset(seed=0)
    return Counter((info["drive"], info["frame"]) for _, info in (env.reset() for _ in range(episodes)))


def test_a_list_of_moments_is_drawn_from_evenly():
    counts = drawn(make(moments=[(LONG, 9), Moment(LONG, 15), (SHORT, 4)]))
    assert set(counts) == {("long", 9), ("long", 15), ("short", 4)}
    assert min(counts.values()) > 40


def test_a_drive_is_drawn_from_where_the_past_is_whole():
    assert set(drawn(make(moments=LONG))) == {("long", frame) for frame in range(8, 24)}  # five sweeps, two apart


def test_drives_without_a_whole_past_are_passed_over():
    assert {name for name, _ in drawn(make(moments=DRIVES), 30)} == {"long"}
    with pytest.raises(ProtocolError, match="whole past"):
        make(moments=SHORT).reset(seed=0)


def test_the_setting_says_how_long_a_step_is():
    drive = make_drive(26, rings=4, azimuths=30, speed=5.0, yaw_rate=0.0)
    env = make(moments=drive, setting="3s")  # every sixth sweep of 10 Hz
    _, info = env.reset(seed=0, options={"frame": 24})
    assert info["step_s"] == pytest.approx(0.6)
    assert info["speed_m_s"] == pytest.approx(5.0)
    _, _, _, _, info = env.step([5.0, 0.0])
    assert info["world_from_lidar"][0, 3] == pytest.approx(5.0 * (2.4 + 0.6))
    assert set(drawn(env, 20)) == {("toy", 24), ("toy", 25)}


def test_a_seed_names_a_moment():
    env, other = make(moments=DRIVES), make(moments=DRIVES)
    assert [env.reset(seed=s)[1]["frame"] for s in range(9)] == [other.reset(seed=s)[1]["frame"] for s in range(9)]


def test_options_name_a_moment():
    env = make(moments=DRIVES)
    _, info = env.reset(seed=0, options={"drive": "short", "frame": 5})
    assert (info["drive"], info["frame"]) == ("short", 5)
    assert env.reset(seed=0, options={"drive": "long"})[1]["drive"] == "long"
    _, info = env.reset(options={"drive": make_drive(12, name="new", rings=4, azimuths=30), "frame": 9})
    assert (info["drive"], info["frame"]) == ("new", 9)
    assert make(moments=[(LONG, 9), (LONG, 15)]).reset(options={"frame": 15})[1]["frame"] == 15


def test_the_models_random_numbers_are_the_seeds_whatever_the_options():
    env = make(moments=DRIVES)
    named = env.reset(seed=4, options={"drive": "long", "frame": 20})[1]["seed"]
    assert named == env.reset(seed=4)[1]["seed"]


def test_sweeps_of_ones_own():
    env = make(moments=LONG)
    past = [LONG[3], LONG[6], LONG[9]]
    observation, info = env.reset(seed=0, options={"past": past})
    assert np.array_equal(shown(observation), LONG[9].points)
    assert info["step_s"] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dirve": "long"}, "no option 'dirve'"),
        ({"drive": "road"}, "no drive 'road'.*long, short"),
        ({"frame": 3}, "of which drive"),
        ({"drive": "long", "frame": 24}, r"frames 0\.\.23"),
        ({"drive": "long", "frame": 0}, "at least two sweeps"),
        ({"drive": "long", "frame": "3"}, "whole number"),
        ({"past": [LONG[0]]}, "at least two sweeps"),
        ({"past": [LONG[0], LONG[2]], "frame": 3}, "not both"),
        ({"past": [LONG[2], LONG[0]]}, "order of time"),
    ],
)
def test_options_that_cannot_be_leave_the_episode_as_it_is(options, words):
    env = make(moments=DRIVES)
    env.reset(seed=0, options={"drive": "long", "frame": 10})
    before = env.step([6.0, 0.0])[4]
    with pytest.raises(UsageError, match=words):
        env.reset(options=options)
    after = env.step([6.0, 0.0])[4]
    assert (after["drive"], after["frame"], after["step"]) == ("long", 10, before["step"] + 1)


@pytest.mark.parametrize(
    ("moments", "words"),
    [
        ([], "got none"),
        ({}, "got none"),
        ((LONG, 99), "frames"),
        ((LONG, 1), "at least two sweeps"),
        ([LONG], "a moment is"),
        ([(LONG, 9.5)], "whole number"),
    ],
)
def test_moments_that_cannot_be(moments, words):
    with pytest.raises(UsageError, match=words):
        make(moments=moments)


def test_returns_from_the_egos_own_body_are_not_observed():
    drive = make_drive(12, rings=4, azimuths=30, ego_box=np.array([-8.0, -8, -8, 8, 8, 8]))
    observation, _ = make(moments=(drive, 11)).reset(seed=0)
    assert 0 < len(shown(observation)) < len(drive[11])
    assert np.abs(shown(observation)).max(axis=1).min() > 8


def test_a_simulated_moment():
    drive = simulate_drive(seed=3, seconds=2.0, options=None)
    env = WorldModelEnv("copy_last", (drive, 12), max_points=20_480)
    _, info = env.reset(seed=0)
    _, _, _, _, info = env.step([info["speed_m_s"], info["yaw_rate_rad_s"]])
    assert not info["subsampled"]
    # The ego goes on as it went: within a few centimetres of where the simulation has it 0.2 s later.
    assert np.linalg.norm(info["world_from_lidar"][:3, 3] - drive.world_from_lidar[14][:3, 3]) < 0.1


def test_a_real_moment_and_the_logs_own_poses_as_actions(tmp_path):
    drive = open_dataset(unpack_drive("val_0005", tmp_path, sweeps=10))["val_0005"]  # 5 Hz: a step is a sweep
    env = WorldModelEnv("copy_last", (drive, 4), horizon=5)
    env.reset(seed=0)
    for frame in range(5, 10):
        observation, _, _, truncated, info = env.step_pose(drive.world_from_lidar[frame])
        assert np.allclose(info["world_from_lidar"], drive.world_from_lidar[frame], atol=1e-6)
        assert info["points_in_sweep"] > 65_536  # a KITTI sweep has more points than an observation by default
        assert info["subsampled"]
        assert observation["count"] == 65_536
    assert truncated

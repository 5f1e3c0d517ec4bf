from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from copilot4d.environment.actions import ActionLimits, ActionRefusedError, Actions
from copilot4d.errors import UsageError
from copilot4d.geometry import se3

CAR = Actions("speed_yaw_rate", ActionLimits())
FREE = Actions("se3", ActionLimits())


def test_an_action_becomes_a_twist_in_its_places():
    assert CAR.twist([8.0, -0.3]).tolist() == [8.0, 0, 0, 0, 0, -0.3]
    assert FREE.twist([1, 2, 3, 0.1, 0.2, 0.3]).tolist() == [1, 2, 3, 0.1, 0.2, 0.3]
    assert CAR.action_of(np.array([1.0, 2, 3, 4, 5, 6])).tolist() == [1.0, 6.0]


def test_the_space_holds_the_documented_bounds():
    assert CAR.space().low.tolist() == [-5, -1]
    assert CAR.space().high.tolist() == [40, 1]
    assert FREE.space().low.tolist() == [-5, -5, -5, -1, -1, -1]
    assert FREE.space().high.tolist() == [40, 5, 5, 1, 1, 1]


@pytest.mark.parametrize("mode", ["speed_yaw_rate", "se3"])
def test_every_sample_and_both_corners_of_the_space_are_accepted(mode):
    actions = Actions(mode, ActionLimits(max_yaw_rate_rad_s=0.7, max_speed_m_s=33.3))  # neither is a float32
    space = actions.space()
    space.seed(0)
    for action in [space.low, space.high, *(space.sample() for _ in range(200))]:
        actions.twist(action)
    actions.twist([33.3, 0.7] if mode == "speed_yaw_rate" else [33.3, 0, 0, 0, 0, 0.7])


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ([200.0, 0.0], "forward speed must be -5 to 40 m/s, got 200"),
        ([-6.0, 0.0], "forward speed"),
        ([5.0, 20.0], "yaw rate must be -1 to 1 rad/s, got 20"),
        ([np.nan, 0.0], "got nan"),
        ([0.0, np.inf], "got inf"),
        ([5.0], "2 numbers"),
        ([5.0, 0.0, 0.0], r"shape \(3,\)"),
        (5.0, r"shape \(\)"),
        (np.eye(4), "step_pose"),
        ("left", "'left'"),
        ([5.0, [1.0]], "2 numbers"),
        (None, "2 numbers"),
    ],
)
def test_unreasonable_actions_are_refused(action, words):
    with pytest.raises(ActionRefusedError, match=words):
        CAR.twist(action)


def test_a_refusal_is_both_of_our_family_and_of_gymnasiums():
    assert issubclass(ActionRefusedError, UsageError)
    assert issubclass(ActionRefusedError, gymnasium.error.InvalidAction)


def test_the_twist_between_two_poses_is_seen_from_the_first():
    start = se3.from_yaw(np.pi / 2, (3.0, 4.0, 1.0))  # looks along the world's y
    twist = FREE.twist_between(start, se3.from_yaw(np.pi / 2, (3.0, 6.0, 1.0)), 0.5)
    assert twist == pytest.approx([4.0, 0, 0, 0, 0, 0], abs=1e-12)


STRETCHED, MIRRORED, SHEARED_ROW, UNKNOWN = np.eye(4), np.eye(4), np.eye(4), np.eye(4)
STRETCHED[0, 0], MIRRORED[1, 1], SHEARED_ROW[3, 0], UNKNOWN[0, 3] = 1.1, -1.0, 0.1, np.nan


@pytest.mark.parametrize(
    ("pose", "words"),
    [
        (STRETCHED, "rigid"),
        (MIRRORED, "rigid"),
        (SHEARED_ROW, "rigid"),
        (UNKNOWN, "NaN"),
        (np.eye(3), r"shape \(3, 3\)"),
        ("home", "'home'"),
        (se3.from_yaw(0.0, (40.0, 0, 0)), "forward speed must be -5 to 40 m/s, got 200"),
        (se3.from_yaw(0.0, (0.0, 2.0, 0)), "speed to the left"),
        (se3.from_yaw(0.3), "yaw rate"),
    ],
)
def test_poses_that_no_car_reaches_are_refused(pose, words):
    with pytest.raises(ActionRefusedError, match=words):
        CAR.twist_between(se3.identity(), pose, 0.2)


def test_limits_and_modes_that_cannot_be():
    with pytest.raises(UsageError, match="max_yaw_rate_rad_s"):
        ActionLimits(max_yaw_rate_rad_s=float("nan"))
    with pytest.raises(UsageError, match="max_reverse_m_s"):
        ActionLimits(max_reverse_m_s=-1.0)
    with pytest.raises(UsageError, match="max_speed_m_s"):
        ActionLimits(max_speed_m_s=0.0)
    with pytest.raises(UsageError, match="action_mode is one of speed_yaw_rate, se3"):
        Actions("fly", ActionLimits())  # type: ignore[arg-type]

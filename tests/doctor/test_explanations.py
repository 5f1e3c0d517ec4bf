"""Each explanation undoes its own damage: the motion between any two frames is the true one again."""

import numpy as np
import pytest

from copilot4d.doctor.explanations import axis_changes, change_in_words, unusual_explanations, usual_explanations
from copilot4d.geometry import se3
from tests.doctor.logs import (
    degrees_as_radians,
    quaternions_reordered,
    radians_as_degrees,
    rotations_transposed,
    scaled,
    varied_poses,
)

POSES = varied_poses(24)
UP = np.array([0.0, 0.0, 1.0])


def by_code(code, up=UP):
    return [e for e in [*usual_explanations(), *unusual_explanations(up)] if e.code == code]


def motions(poses):
    return se3.relative_motion(poses[:-1], poses[1:])


@pytest.mark.parametrize(
    ("code", "damage"),
    [
        ("poses-inverted", se3.invert),
        ("poses-degrees-for-radians", degrees_as_radians),
        ("poses-radians-for-degrees", radians_as_degrees),
        ("poses-rotation-transposed", rotations_transposed),
        ("poses-millimetres", lambda p: scaled(p, 1000)),
        ("poses-centimetres", lambda p: scaled(p, 100)),
        ("poses-feet", lambda p: scaled(p, 1 / 0.3048)),
        ("poses-kilometres", lambda p: scaled(p, 0.001)),
    ],
)
def test_the_remedy_restores_the_motion(code, damage):
    (explanation,) = by_code(code)
    damaged = damage(POSES)
    assert np.abs(motions(damaged) - motions(POSES)).max() > 0.05
    # Where the headings of degrees start is read off the direction of travel, which is a chord, not a tangent.
    tolerance = 5e-3 if code == "poses-degrees-for-radians" else 1e-9
    np.testing.assert_allclose(motions(explanation.correct(damaged)), motions(POSES), atol=tolerance)


def test_degrees_are_corrected_in_any_world_frame_and_past_full_turns():
    (explanation,) = by_code("poses-degrees-for-radians")
    turning = se3.from_yaw(np.linspace(0, 3.0, 24), np.zeros(3))
    turning[:, :2, 3] = 30 * np.stack([np.sin(np.linspace(0, 3, 24)), 1 - np.cos(np.linspace(0, 3, 24))], axis=-1)
    world = se3.from_yaw(2.0, (5.0, 6.0, 0.0))
    damaged = se3.compose(world, degrees_as_radians(turning))
    middle = slice(1, -1)  # the direction of travel is half a step off at the ends
    np.testing.assert_allclose(motions(explanation.correct(damaged))[middle], motions(turning)[middle], atol=1e-3)


def test_one_of_the_two_orders_of_quaternions_restores_the_motion():
    damaged = quaternions_reordered(POSES)
    errors = [
        np.abs(motions(e.correct(damaged)) - motions(POSES)).max() for e in by_code("poses-quaternion-order")
    ]  # fmt: skip
    assert len(errors) == 2
    assert min(errors) < 1e-9


@pytest.mark.parametrize(("shift", "says"), [(-1, "of the previous one"), (1, "of the next one")])
def test_a_shift_is_undone_by_the_one_that_says_so(shift, says):
    damaged = np.roll(POSES, -shift, axis=0)  # sweep i has the pose of sweep i + shift
    (explanation,) = [e for e in by_code("poses-off-by-one") if says in e.title]
    corrected = explanation.correct(damaged)
    known = np.isfinite(corrected).all(axis=(1, 2))
    assert known.sum() == len(POSES) - 1
    np.testing.assert_array_equal(corrected[known][1:-1], POSES[known][1:-1])


@pytest.mark.parametrize("up", [UP, -UP, np.array([0.0, 1.0, 0.0]), np.array([-1.0, 0.0, 0.0])])
def test_axes_are_corrected_by_the_change_that_the_remedy_names(up):
    """Points p' with p = C p': the motion between p' is C^-1 motion C, and exactly one remedy spells that C."""
    for change in axis_changes():
        if (change @ up)[2] != 1 or (change == np.eye(3)).all():
            continue
        named = [
            e for e in unusual_explanations(up) if e.code.startswith("axes") and change_in_words(change) in e.remedy
        ]
        assert len(named) == 1
        matrix = np.eye(4)
        matrix[:3, :3] = change
        np.testing.assert_allclose(motions(named[0].correct(POSES)), matrix.T @ motions(POSES) @ matrix, atol=1e-12)
        assert (named[0].code == "axes-mirrored") == (np.linalg.det(change) < 0)


def test_there_are_48_axis_changes_and_words_for_them():
    assert len({change.tobytes() for change in axis_changes()}) == 48
    assert change_in_words(np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 1.0]])) == "x = y, y = -x, z = z"

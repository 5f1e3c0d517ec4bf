"""The action of frame t is the motion t-1 -> t."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from copilot4d.world_model import Actions, actions_of

# 1 m ahead, then 2 m ahead with a quarter turn to the left, then 3 m ahead.
STEPS = [se3.from_yaw(0, (1, 0, 0)), se3.from_yaw(np.pi / 2, (2, 0, 0)), se3.from_yaw(0, (3, 0, 0))]


def poses(origin=None):
    chain = [np.eye(4) if origin is None else origin]
    for step in STEPS:
        chain.append(chain[-1] @ step)
    return np.stack(chain)


def test_own_frame_actions_are_the_steps_in_the_frame_before():
    actions = actions_of(poses(), "own")
    assert actions.known.tolist() == [[False, True, True, True]]
    np.testing.assert_allclose(actions.motion[0, 1:].numpy(), np.stack(STEPS), atol=1e-6)
    assert actions.motion.dtype == torch.float32


def test_own_frame_actions_do_not_know_the_world():
    far = se3.from_yaw(1.0, (4.5e5, 5.4e6, 30.0))  # UTM coordinates: float32 would lose the steps
    np.testing.assert_allclose(actions_of(poses(far), "own").motion[0, 1:].numpy(), np.stack(STEPS), atol=1e-4)


def test_reference_frame_actions_say_where_the_sensor_is_in_the_grid():
    chain = poses()
    actions = actions_of(chain, "reference", world_from_reference=chain[2])
    assert actions.known.all()
    np.testing.assert_allclose(actions.motion[0, 2].numpy(), np.eye(4), atol=1e-6)
    np.testing.assert_allclose(actions.motion[0, 3].numpy(), STEPS[2], atol=1e-6)
    # Frame 1 is two metres behind the reference, which is turned left: on its left, and turned right.
    np.testing.assert_allclose(actions.motion[0, 1].numpy(), se3.from_yaw(-np.pi / 2, (0, 2, 0)), atol=1e-6)


def test_batches_have_a_reference_each():
    chain = np.stack([poses(), poses(se3.from_yaw(0.3, (5, 5, 0)))])
    both = actions_of(chain, "reference", world_from_reference=chain[:, 1])
    np.testing.assert_allclose(both.motion[0].numpy(), both.motion[1].numpy(), atol=1e-5)


def test_bad_poses_are_refused():
    with pytest.raises(UsageError, match="world_from_lidar"):
        actions_of(np.zeros((4, 3, 4)), "own")
    with pytest.raises(UsageError, match="world_from_reference"):
        actions_of(poses(), "reference")
    with pytest.raises(UsageError, match=r"world_model\.token_frame"):
        actions_of(poses(), "world")
    with pytest.raises(UsageError, match="known"):
        Actions(torch.zeros(1, 2, 4, 4), torch.zeros(1, 3, dtype=torch.bool))

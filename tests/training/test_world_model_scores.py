"""Yardsticks of the world model: cases solvable by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d.geometry import VoxelGrid, se3
from copilot4d.training.distributed import World
from copilot4d.training.world_model_scores import TokenScores, masked_future, score_clip, warped_copy
from copilot4d.world_model import DiffusionConfig, Objective, actions_of
from tests.support.token_clips import MemoryClips, random_clips
from tests.world_model.models import random_poses, random_tokens, small_model

ALONE = World(device=torch.device("cpu"))
# 4 x 6 tokens of 2 m x 1 m
GRID = VoxelGrid.from_bounds((-4.0, -3.0, -1.0), (4.0, 3.0, 1.0), shape=(16, 24, 4))
MAP = torch.arange(24).view(4, 6)


def test_driving_forward_by_a_token_moves_the_map_back_by_one():
    moved = warped_copy(MAP, se3.from_yaw(0.0, (2.0, 0.0, 0.0)), GRID)
    assert torch.equal(moved[:3], MAP[1:])  # what was a token ahead is here now
    assert torch.equal(moved[3], MAP[3])  # nothing is known of what came into view: the old token stays


def test_moving_left_by_two_tokens_moves_the_map_right():
    moved = warped_copy(MAP, se3.from_yaw(0.0, (0.0, 2.0, 0.0)), GRID)
    assert torch.equal(moved[:, :4], MAP[:, 2:])
    assert torch.equal(moved[:, 4:], MAP[:, 4:])


def test_less_than_half_a_token_moves_nothing():
    assert torch.equal(warped_copy(MAP, se3.from_yaw(0.0, (0.9, -0.4, 0.0)), GRID), MAP)
    assert not torch.equal(warped_copy(MAP, se3.from_yaw(0.0, (1.1, 0.0, 0.0)), GRID), MAP)


def test_turning_left_by_a_right_angle_turns_the_map_right():
    square = VoxelGrid.from_bounds((-2.0, -2.0, -1.0), (2.0, 2.0, 1.0), shape=(8, 8, 2))
    tokens = torch.arange(16).view(4, 4)
    turned = warped_copy(tokens, se3.from_yaw(np.pi / 2), square)
    # What was to the left (y > 0) is ahead (x > 0) now: p_before = R p_now, so (x, y) looks at (-y, x).
    expected = torch.stack([torch.stack([tokens[3 - j, i] for j in range(4)]) for i in range(4)])
    assert torch.equal(turned, expected)


def test_scores_count_tokens_by_hand():
    scores = TokenScores(warped=True)
    last = torch.tensor([[0, 0], [0, 0]])
    true = torch.tensor([[0, 1], [2, 0]])  # two of four changed
    predicted = torch.tensor([[0, 1], [0, 5]])  # one changed token right, one kept token right
    warped = torch.tensor([[3, 1], [2, 0]])  # both changed tokens right, one kept one
    scores.add_next(predicted, last, warped, true, interval=2)
    scores.add_next(last, last, last, last, interval=6)  # nothing changes: all right
    for objective, loss in zip(Objective, (1.0, 2.0, 3.0), strict=True):
        scores.add_loss(objective, loss)
        scores.add_loss(objective, loss + 1)
    found = scores.summary(ALONE, DiffusionConfig(), [2, 6])
    assert found["loss_future"] == 1.5
    assert found["loss"] == pytest.approx(0.5 * 1.5 + 0.4 * 2.5 + 0.1 * 3.5)
    assert found["changed"] == 2 / 8
    assert (found["accuracy"], found["copy_accuracy"], found["warped_accuracy"]) == (6 / 8, 6 / 8, 7 / 8)
    assert (found["accuracy_changed"], found["warped_accuracy_changed"]) == (1 / 2, 2 / 2)
    assert found["accuracy_changed_every_2"] == 1 / 2
    assert np.isnan(found["accuracy_changed_every_6"])


def test_objectives_that_are_not_trained_are_not_scored():
    diffusion = DiffusionConfig(future_probability=0.7, joint_probability=0.3)
    model = small_model(diffusion=diffusion)
    scores = TokenScores(warped=False)
    score_clip(model, scores, random_clips(1).clip(0, 0), 0)
    found = scores.summary(ALONE, diffusion)
    assert "loss_frame" not in found
    assert found["loss"] == pytest.approx(0.7 * found["loss_future"] + 0.3 * found["loss_joint"])


@pytest.mark.parametrize("token_frame", ["own", "reference"])
def test_the_next_frame_is_the_most_probable_of_the_cached_model(token_frame):
    """A wholly masked frame in one pass is what the sampler's first diffusion step sees."""
    model = small_model(token_frame=token_frame)
    tokens, poses = random_tokens((2, 3, 8, 8)), random_poses(2, 3)
    actions = actions_of(poses, token_frame, world_from_reference=poses[:, 1])
    cache = model.new_cache()
    model.remember(tokens[:, :2], actions.frames(0, 2), cache)
    masked = torch.full_like(tokens[:, 0], model.config.mask_token)
    seen = model.predict(masked, actions.frames(2, 3), cache, guidance=False)
    assert torch.equal(masked_future(model, tokens[:, :2], actions)[:, 0].argmax(-1), seen.conditional.argmax(-1))


def test_noise_depends_on_the_clips_number_alone():
    model, clips = small_model(), random_clips(2)

    def losses(number: int) -> float:
        scores = TokenScores(warped=False)
        score_clip(model, scores, clips.clip(1, 0), number)
        return scores.summary(ALONE, model.config.diffusion)["loss"]

    assert losses(1) == losses(1)
    assert losses(1) != losses(2)


def test_a_scene_that_only_shifts_is_known_to_the_warped_copy():
    world = random_tokens((12, 8), vocabulary=11)
    frames = torch.stack([world[t : t + 8] for t in range(4)])[None]  # each step one token forward
    poses = np.stack([se3.from_yaw(0.0, (4.0 * t, 0.0, 0.0)) for t in range(4)])[None]
    grid = VoxelGrid.from_bounds((-16.0, -16.0, -1.0), (16.0, 16.0, 1.0), shape=(32, 32, 2))
    clips = MemoryClips(frames, poses, past_frames=2, vocabulary=11)
    scores = TokenScores(warped=True)
    score_clip(small_model(), scores, clips.clip(0, 0), 0, grid=grid)
    found = scores.summary(ALONE, DiffusionConfig())
    last, true = frames[0, 1], frames[0, 2]
    came = float((true[7] == last[7]).float().sum())
    assert found["warped_accuracy"] == (7 * 8 + came) / 64
    assert found["copy_accuracy"] == float((true == last).float().mean())
    assert found["warped_accuracy"] > 0.85 > found["copy_accuracy"]

"""What each objective hides, lets see and counts; the loss by hand."""

from __future__ import annotations

import math

import pytest
import torch

from copilot4d.layers.temporal import AttentionMask
from copilot4d.world_model import DiffusionConfig, Objective, denoising_loss, draw_noise, make_denoising
from tests.world_model.models import random_actions, random_tokens, small_model

TOKENS = random_tokens((2, 4, 8, 8))


def task(objective, config=None, past=2):
    draw = draw_noise([torch.Generator().manual_seed(i) for i in range(2)], frames=4, tokens=64, vocabulary=11)
    return make_denoising(TOKENS, objective, draw, config or DiffusionConfig(), past_frames=past, mask_token=11)


def test_the_mixture_is_fifty_forty_ten():
    config = DiffusionConfig()
    drawn = [config.objective(i / 1000) for i in range(1000)]
    counts = [drawn.count(o) for o in (Objective.FUTURE, Objective.JOINT, Objective.FRAME)]
    assert counts == pytest.approx([500, 400, 100], abs=1)


def test_future_objective_gives_the_past_and_counts_the_future():
    made = task(Objective.FUTURE)
    assert torch.equal(made.inputs[:, :2], TOKENS[:, :2])
    assert (made.inputs[:, 2:] == 11).flatten(2).any(-1).all()
    assert made.counted.flatten(2).float().mean(-1).tolist() == [[0, 0, 1, 1]] * 2
    assert (made.mask, made.first) == (AttentionMask.CAUSAL, 2)
    assert torch.equal(made.targets, TOKENS)


def test_joint_and_frame_objectives_corrupt_and_count_everything():
    joint, frame = task(Objective.JOINT), task(Objective.FRAME)
    assert torch.equal(joint.inputs, frame.inputs)
    assert (joint.inputs == 11).flatten(2).any(-1).all()
    assert joint.counted.all()
    assert (joint.mask, frame.mask) == (AttentionMask.CAUSAL, AttentionMask.IDENTITY)
    assert joint.first == frame.first == 0


def test_noise_is_there_and_maskgit_has_none():
    made = task(Objective.JOINT)
    visible = made.inputs != 11
    assert (made.inputs != TOKENS)[visible].any()
    maskgit = task(Objective.JOINT, DiffusionConfig(process="maskgit"))
    visible = maskgit.inputs != 11
    assert not (maskgit.inputs != TOKENS)[visible].any()
    assert torch.equal(maskgit.counted, ~visible)
    future = task(Objective.FUTURE, DiffusionConfig(process="maskgit"))
    assert not future.counted[:, :2].any()
    assert torch.equal(future.counted[:, 2:], future.inputs[:, 2:] == 11)


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("process", ["absorbing_uniform", "maskgit"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_loss_is_the_smoothed_cross_entropy_of_counted_positions(objective, process, checkpointing):
    config = DiffusionConfig(process=process, label_smoothing=0.1)
    model, actions = small_model(diffusion=config, activation_checkpointing=checkpointing), random_actions(2, 4)
    made = task(objective, config)
    result = denoising_loss(model, made, actions)
    log_p = model(made.inputs, actions, mask=made.mask).log_softmax(-1)
    true = log_p.gather(-1, made.targets[..., None])[..., 0]
    smoothed, right = -(0.9 * true + 0.1 * log_p.mean(-1)), (log_p.argmax(-1) == made.targets).float()
    samples = range(len(TOKENS))
    torch.testing.assert_close(result.loss, sum(smoothed[b][made.counted[b]].mean() for b in samples) / 2)
    torch.testing.assert_close(result.accuracy, sum(right[b][made.counted[b]].mean() for b in samples) / 2)
    assert result.counted == int(made.counted.sum())


def test_the_future_loss_does_not_depend_on_what_the_past_should_be():
    model, actions = small_model(), random_actions(2, 4)
    made = task(Objective.FUTURE)
    wrong = made.targets.clone()
    wrong[:, :2] = (wrong[:, :2] + 1) % 11
    other = type(made)(made.inputs, wrong, made.counted, made.mask, made.first)
    assert torch.equal(denoising_loss(model, made, actions).loss, denoising_loss(model, other, actions).loss)


def test_an_untrained_model_knows_nothing():
    """Every logit is small at first: the loss starts near log V, which a scaled initialisation must give."""
    from copilot4d.world_model import WorldModel
    from tests.world_model.models import small_config

    torch.manual_seed(0)
    model = WorldModel(small_config())
    loss = float(denoising_loss(model, task(Objective.JOINT), random_actions(2, 4)).loss.detach())
    assert loss == pytest.approx(math.log(11), abs=0.5)

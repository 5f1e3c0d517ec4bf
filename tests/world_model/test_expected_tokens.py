"""Expected tokens as an input: where they are read, and where they must not be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.layers.temporal import AttentionMask
from copilot4d.world_model import Rollout, SamplerConfig, WorldModel, rollout
from tests.world_model.models import random_tokens, small_config
from tests.world_model.test_motion_inputs import all_actions, poses

P = 2
MASK = 11


def a_model():
    """Past frames 2 of 4, expected tokens and code vectors, none of it zero."""
    torch.manual_seed(4)
    config = replace(small_config(), code_dim=3, expected_input=True, past_frames=P, token_frame="reference")
    model = WorldModel(config).eval()
    model.set_code_vectors(torch.randn(config.vocabulary, 5))
    for layer in (model.motion.leave, model.expected.leave, model.expected.name):
        torch.nn.init.normal_(layer.weight, std=0.2)
    return model


def conditions(model, frames=4, seed=7, batch=1):
    expected = random_tokens((batch, frames, 8, 8), seed)
    expected[:, :P] = MASK
    return all_actions(model, frames).repeated(batch).with_expected(expected)


def test_a_cache_says_what_one_pass_says():
    model, tokens = a_model(), random_tokens((1, 4, 8, 8))
    actions = conditions(model)
    with torch.no_grad():
        whole = model(tokens, actions)
        cache = model.new_cache()
        model.remember(tokens[:, :P], actions.frames(0, P), cache)
        for t in range(P, 4):
            found = model.predict(tokens[:, t], actions.frames(t, t + 1), cache, guidance=True)
            torch.testing.assert_close(found.conditional, whole[:, t], atol=2e-5, rtol=1e-4)
            alone = model.predict_alone(tokens[:, t], position=t)
            torch.testing.assert_close(found.unconditional, alone, atol=2e-5, rtol=1e-4)
            model.remember(tokens[:, t : t + 1], actions.frames(t, t + 1), cache)


def test_a_frame_reads_what_is_expected_of_it_and_later_frames_read_it_through_time():
    model, tokens = a_model(), random_tokens((1, 4, 8, 8))
    actions = conditions(model)
    other = actions.expected.clone()
    other[:, P] = (other[:, P] + 1) % MASK
    with torch.no_grad():
        before, after = model(tokens, actions), model(tokens, actions.with_expected(other))
    changed = [t for t in range(4) if not torch.equal(before[:, t], after[:, t])]
    assert changed == [P, P + 1]


def test_a_frame_alone_expects_nothing():
    model, tokens = a_model(), random_tokens((1, 4, 8, 8))
    actions = conditions(model)
    with torch.no_grad():
        with_it = model(tokens, actions, mask=AttentionMask.IDENTITY)
        without = model(tokens, actions.with_expected(None), mask=AttentionMask.IDENTITY)
    assert torch.equal(with_it, without)


def test_nothing_expected_is_mask_everywhere():
    model, tokens = a_model(), random_tokens((1, 4, 8, 8))
    actions = conditions(model)
    with torch.no_grad():
        masked = model(tokens, actions.with_expected(torch.full_like(tokens, MASK)))
        assert torch.equal(model(tokens, actions.with_expected(None)), masked)
        assert not torch.equal(model(tokens, actions), masked)


def test_what_is_expected_on_the_left_is_not_expected_in_front():
    """H lies along x, W along y: moved by one cell along either, an expectation changes other logits."""
    model = a_model()
    one = torch.full((1, 3, 8, 8), MASK)
    one[0, P, 4, 4] = 3
    ahead, left = one.roll(1, 2), one.roll(1, 3)
    with torch.no_grad():
        rows = model.tokens.rows()
        fields = [model.expected.of(maps, rows)[0, P] for maps in (one, ahead, left)]
    torch.testing.assert_close(fields[0][2:6, 2:6], fields[1][3:7, 2:6], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(fields[0][2:6, 2:6], fields[2][2:6, 3:7], atol=1e-6, rtol=1e-5)


def test_a_rollout_gives_each_frame_what_is_expected_of_it():
    model, tokens = a_model(), random_tokens((1, 4, 8, 8))
    expected = conditions(model).expected
    config = SamplerConfig(steps=2, guidance=1.0)
    run = Rollout(model, tokens[:, :P], poses(4)[:, :P], config=config, interval_s=0.2)
    frames = [run.step(poses(4)[:, t], expected[:, t]) for t in range(P, 4)]
    assert torch.equal(run.expected, expected)
    several = Rollout(model, tokens[:, :P], poses(4)[:, :P], config=config, interval_s=0.2, futures=2)
    assert torch.equal(several.step(poses(4)[:, P], expected[:, P])[:, 0], frames[0][:, 0])
    without = Rollout(model, tokens[:, :P], poses(4)[:, :P], config=config, interval_s=0.2)
    assert not torch.equal(without.step(poses(4)[:, P]), frames[0])
    assert (without.expected == MASK).all()


def test_the_function_rollout_passes_expectations_on():
    model, tokens = a_model(), random_tokens((2, 4, 8, 8))
    past, future = poses(4)[:, :P].repeat(2, 0), poses(4)[:, P:].repeat(2, 0)
    expected = conditions(model, batch=2).expected[:, P:]
    config = SamplerConfig(steps=1, guidance=0.0, top_k=1)
    made = rollout(model, tokens[:, :P], past, future, config=config, expected=expected)
    assert made.shape == (2, 1, 2, 8, 8)
    assert not torch.equal(made, rollout(model, tokens[:, :P], past, future, config=config))


def test_older_weights_are_continued_and_say_the_same_at_first():
    torch.manual_seed(0)
    before = WorldModel(replace(small_config(), code_dim=3, past_frames=P, token_frame="reference")).eval()
    after = WorldModel(replace(before.config, expected_input=True)).eval()
    after.load_state_dict(after.adapted(before.state_dict()))
    tokens = random_tokens((1, 4, 8, 8))
    with torch.no_grad():
        torch.testing.assert_close(after(tokens, conditions(after)), before(tokens, all_actions(before, 4)))


def test_it_needs_code_vectors():
    with pytest.raises(UsageError, match="code_dim"):
        replace(small_config(), expected_input=True)

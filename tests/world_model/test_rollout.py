"""Rollouts: fast equals naive, futures are their own, the window slides, guidance and actions are as they should be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d.errors import ForecastError, UsageError
from copilot4d.layers.temporal import AttentionMask
from copilot4d.world_model import DiffusionConfig, Draws, Rollout, SamplerConfig, actions_of, generate, rollout
from copilot4d.world_model.reverse import guide
from copilot4d.world_model.sampler import denoise
from tests.world_model.models import random_poses, random_tokens, small_model

PAST = random_tokens((2, 2, 8, 8))
POSES = random_poses(2, 8)
FAST = SamplerConfig(steps=3)


def naive(model, past, poses, frames, config, seed=0, future=0):
    """One clip, one future, without cache or joint pass: two passes over all frames of the window at each step."""
    tokens, limit = past.clone(), model.config.frames
    start, keep = 0, config.keep_frames or limit - 1
    for f in range(frames):
        if tokens.shape[1] - start >= limit:
            start = tokens.shape[1] - keep
        window = tokens[:, start:]
        reference = poses[:, past.shape[1] - 1]
        chain = poses[:, start : tokens.shape[1] + 1]
        actions = actions_of(chain, model.config.token_frame, world_from_reference=reference)

        def logits_of(x, window=window, actions=actions):
            now = x.view(1, 8, 8)
            conditional = model(torch.cat([window, now[:, None]], 1), actions)[:, -1]
            unconditional = model.predict_alone(now, position=window.shape[1])
            return guide(conditional, unconditional, config.guidance).flatten(1, 2)

        reverse = config.reverse or "paper"
        settings = SamplerConfig(**{**config.__dict__, "reverse": reverse})
        *_, x = denoise(logits_of, Draws(seed, [future], f), settings, tokens=64, vocabulary=11, eta=0.2)
        tokens = torch.cat([tokens, x.view(1, 1, 8, 8)], 1)
    return tokens[:, past.shape[1] :]


@torch.no_grad()
@pytest.mark.parametrize("token_frame", ["own", "reference"])
@pytest.mark.parametrize(
    "config",
    [
        FAST,
        SamplerConfig(steps=2, guidance=2.0, schedule="few_first", keep_frames=1),
        SamplerConfig(steps=3, reverse="d3pm", top_k=None, guidance=0.0),
    ],
    ids=["default", "keep-one", "d3pm"],
)
def test_the_fast_rollout_equals_the_naive_one_also_beyond_the_window(config, token_frame):
    model = small_model(token_frame=token_frame)
    fast = rollout(model, PAST[:1], POSES[:1, :2], POSES[:1, 2:7], config=config)
    assert torch.equal(fast[:, 0], naive(model, PAST[:1], POSES[:1, :7], 5, config))


@torch.no_grad()
def test_a_future_is_the_same_alone_and_among_others_and_clips_do_not_mix():
    model = small_model()
    both = rollout(model, PAST, POSES[:, :2], POSES[:, 2:6], config=FAST, futures=3, seed=5)
    assert both.shape == (2, 3, 4, 8, 8)
    for clip in range(2):
        one = slice(clip, clip + 1)
        alone = rollout(model, PAST[one], POSES[one, :2], POSES[one, 2:6], config=FAST, futures=[2], seed=5)
        assert torch.equal(alone[0, 0], both[clip, 2])
    assert not torch.equal(both[0, 0], both[0, 1])
    assert not torch.equal(both[0, 0], both[1, 0])
    assert not torch.equal(both, rollout(model, PAST, POSES[:, :2], POSES[:, 2:6], config=FAST, futures=3, seed=6))
    shorter = rollout(model, PAST, POSES[:, :2], POSES[:, 2:4], config=FAST, futures=3, seed=5)
    assert torch.equal(shorter, both[:, :, :2])


@torch.no_grad()
def test_futures_share_the_past_and_what_is_sampled_first():
    model, passes = small_model(), []
    model.unet.register_forward_pre_hook(lambda _, given: passes.append(tuple(given[0].shape[:2])))
    run = Rollout(model, PAST, POSES[:, :2], config=SamplerConfig(steps=2), futures=4)
    run.step(POSES[:, 2])
    # (rows, frames): the past of two clips; all MASK with the past, then alone, one for all; both at once.
    assert passes == [(2, 2), (8, 1), (1, 1), (8, 2)]
    run.step(POSES[:, 3])
    assert passes[4:] == [(8, 1), (8, 1), (1, 1), (8, 2)]  # the frame that was made, then as before
    passes.clear()
    Rollout(model, PAST, POSES[:, :2], config=SamplerConfig(steps=2), futures=4).step(POSES[:, 2])
    assert passes == [(2, 2), (8, 1), (8, 2)]  # alone and all MASK is known by now


@torch.no_grad()
def test_guidance_of_zero_one_and_two_are_three_things_and_one_is_guided():
    model = small_model()
    results = [
        rollout(model, PAST, POSES[:, :2], POSES[:, 2:4], config=SamplerConfig(steps=3, guidance=w)) for w in (0, 1, 2)
    ]
    assert not torch.equal(results[0], results[1])
    assert not torch.equal(results[1], results[2])
    assert not torch.equal(results[0], results[2])
    assert SamplerConfig().guidance == 1.0
    assert torch.equal(results[1], rollout(model, PAST, POSES[:, :2], POSES[:, 2:4], config=FAST))
    torch.manual_seed(0)
    cache = model.new_cache()
    actions = actions_of(POSES[:, :3], "own")
    model.remember(PAST, actions.frames(0, 2), cache)
    masked = torch.full((2, 8, 8), 11)
    seen = model.predict(masked, actions.frames(2), cache, guidance=True)
    expected = 2 * seen.conditional - seen.unconditional
    torch.testing.assert_close(guide(seen.conditional, seen.unconditional, 1.0), expected)


@torch.no_grad()
@pytest.mark.parametrize("token_frame", ["own", "reference"])
def test_the_action_of_a_frame_in_a_rollout_is_that_of_training(token_frame, monkeypatch):
    """Within the window every frame must be given exactly what a training clip with these poses would give it."""
    model = small_model(token_frame=token_frame)
    seen = {}
    original = model.features

    def spy(tokens, actions, **options):
        if options.get("mask") is AttentionMask.IDENTITY:  # a frame alone is given no action
            return original(tokens, actions, **options)
        past = options["cache"].length
        count = tokens.shape[1] - options.get("mask", AttentionMask.CAUSAL).alone(tokens.shape[1])
        for i in range(count):
            seen[past + i] = (actions.motion[:, i].clone(), actions.known[:, i].clone())
        return original(tokens, actions, **options)

    monkeypatch.setattr(model, "features", spy)
    rollout(model, PAST, POSES[:, :2], POSES[:, 2:4], config=FAST)
    trained = actions_of(POSES[:, :4], token_frame, world_from_reference=POSES[:, 1])
    assert sorted(seen) == [0, 1, 2, 3]
    for t, (motion, known) in seen.items():
        assert torch.equal(motion, trained.motion[:, t])
        assert torch.equal(known, trained.known[:, t])
    moved = np.linalg.inv(POSES[:, 1 if token_frame == "reference" else 2]) @ POSES[:, 3]
    np.testing.assert_allclose(seen[3][0].numpy(), moved, atol=1e-5)


@torch.no_grad()
def test_frames_made_one_at_a_time_are_those_of_a_rollout():
    """Also when the caller decides on the next pose only after having seen the last frame."""
    model = small_model()
    run = Rollout(model, PAST, POSES[:, :2], config=FAST, futures=2)
    frames = torch.stack([run.step(POSES[:, t]) for t in range(2, 7)], dim=2)
    assert torch.equal(frames, rollout(model, PAST, POSES[:, :2], POSES[:, 2:7], config=FAST, futures=2))
    assert run.made == 5


@torch.no_grad()
def test_changed_future_poses_change_the_future():
    model = small_model()
    other = POSES[:, 2:4].copy()
    other[:, 1, 0, 3] += 1.5
    straight = rollout(model, PAST, POSES[:, :2], POSES[:, 2:4], config=FAST)
    turned = rollout(model, PAST, POSES[:, :2], other, config=FAST)
    assert torch.equal(straight[:, :, 0], turned[:, :, 0])
    assert not torch.equal(straight[:, :, 1], turned[:, :, 1])


@torch.no_grad()
def test_a_past_longer_than_the_window_loses_its_oldest_frames():
    model, long_past = small_model(), random_tokens((1, 6, 8, 8), seed=3)
    poses = random_poses(1, 7)
    whole = rollout(model, long_past, poses[:, :6], poses[:, 6:], config=FAST)
    recent = rollout(model, long_past[:, 3:], poses[:, 3:6], poses[:, 6:], config=FAST)
    assert torch.equal(whole, recent)


@torch.no_grad()
def test_frames_from_nothing_follow_the_unconditional_model():
    model = small_model()
    frames = generate(model, config=FAST, futures=[0, 4], seed=2, position=1)
    logits_of = lambda x: model.predict_alone(x.view(-1, 8, 8), 1).flatten(1, 2)  # noqa: E731
    options = SamplerConfig(steps=3, reverse="paper")
    *_, x = denoise(logits_of, Draws(2, [0, 4], 0), options, tokens=64, vocabulary=11, eta=0.2)
    assert torch.equal(frames, x.view(2, 8, 8))
    assert torch.equal(generate(model, config=FAST, futures=[4], seed=2, position=1)[0], frames[1])
    assert int(frames.max()) < 11


@torch.no_grad()
def test_a_model_trained_as_maskgit_freezes_decoded_tokens_by_default():
    model = small_model(diffusion=DiffusionConfig(process="maskgit"))
    given = (PAST, POSES[:, :2], POSES[:, 2:4])
    default = rollout(model, *given, config=SamplerConfig(steps=4))
    frozen = rollout(model, *given, config=SamplerConfig(steps=4, reverse="frozen"))
    revised = rollout(model, *given, config=SamplerConfig(steps=4, reverse="paper"))
    assert torch.equal(default, frozen)
    assert not torch.equal(default, revised)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"past_tokens": PAST[:, :, :4]}, ForecastError, "past tokens must be"),
        ({"past_tokens": PAST + 5}, ForecastError, r"lie in \[0, 11\)"),
        ({"past_poses": POSES[:, :3]}, ForecastError, "one past pose per frame"),
        ({"future_poses": POSES[:1, 2:]}, ForecastError, "one per clip"),
        ({"futures": 0}, UsageError, "at least one"),
        ({"futures": [1, 1]}, UsageError, "each numbered once"),
    ],
)
def test_what_does_not_fit_is_refused(change, error, message):
    given = {"past_tokens": PAST, "past_poses": POSES[:, :2], "future_poses": POSES[:, 2:3]}
    with pytest.raises(error, match=message):
        rollout(small_model(), **{**given, **change})

"""The network: size, initialisation, masks over time, weight tying, gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from copilot4d import presets
from copilot4d.errors import UsageError
from copilot4d.layers.swin import WindowAttention
from copilot4d.layers.temporal import AttentionMask, TemporalBlock
from copilot4d.world_model import Actions, DiffusionConfig, UNetConfig, WorldModel, WorldModelConfig
from tests.world_model.models import random_actions, random_tokens, small_config, small_model

T = 4


def changed_frames(before, after):
    """Frames with any logit that is not exactly equal."""
    return [t for t in range(before.shape[1]) if not torch.equal(before[:, t], after[:, t])]


def test_the_paper_preset_has_the_papers_size():
    with torch.device("meta"):
        model = WorldModel(presets.paper().world_model)
    assert 38.5e6 <= sum(p.numel() for p in model.parameters()) <= 39.5e6
    assert model.config.unet.dims == (256, 384, 512)
    assert model.config.unet.heads == (8, 12, 16)
    kinds = [type(m).__name__ for m in model.modules() if type(m).__name__ in ("SwinBlock", "TemporalBlock")]
    assert kinds.count("SwinBlock") == 2 * kinds.count("TemporalBlock") == 16
    windows = [[m.grid.window for m in stage.modules() if isinstance(m, WindowAttention)] for stage in model.unet.down]
    assert windows == [[8] * 4, [8] * 4, [16] * 2]
    shifts = [m.grid.shift for m in model.modules() if isinstance(m, WindowAttention)]
    assert shifts.count(0) == len(shifts) // 2


@pytest.mark.parametrize("name", ["mini", "tiny"])
def test_the_other_presets_run(name):
    config = presets.preset(name).world_model
    with torch.no_grad():
        tokens = torch.zeros(1, 2, *config.tokens, dtype=torch.long)
        logits = WorldModel(config)(tokens, Actions.null(1, 2))
    assert logits.shape == (1, 2, *config.tokens, config.vocabulary)
    assert logits.isfinite().all()


def test_residual_scaling_counts_the_residuals_of_each_level():
    config = UNetConfig()
    assert [config.residuals(level) for level in range(3)] == [24, 18, 6]
    torch.manual_seed(0)
    model = WorldModel(replace(presets.paper().world_model, tokens=(64, 64)))
    for level, residuals in ((0, 24), (1, 18), (2, 6)):
        dim = config.dims[level]
        stages = [model.unet.down[level], *([model.unet.up[level]] if level < 2 else [])]
        blocks = [m for s in stages for m in s.modules() if hasattr(m, "mlp")]
        assert 2 * len(blocks) == residuals
        for block in blocks:
            for layer, fan_in in ((block.attention.project, dim), (block.mlp.project, 4 * dim)):
                expected = (1 / (3 * fan_in)) ** 0.5 * (1 / residuals) ** 0.5
                assert float(layer.weight.detach().std()) == pytest.approx(expected, rel=0.02)
            for layer in (block.attention.qkv, block.mlp.expand):
                assert float(layer.weight.detach().std()) == pytest.approx((1 / (3 * dim)) ** 0.5, rel=0.02)


def test_only_the_qkv_layers_of_swin_have_a_bias():
    model = small_model()
    with_bias = {name for name, m in model.named_modules() if isinstance(m, nn.Linear) and m.bias is not None}
    swin = {f"{name}.qkv" for name, m in model.named_modules() if isinstance(m, WindowAttention)}
    assert with_bias == swin
    assert len(swin) == 10


def test_input_and_output_share_one_table_and_mask_is_no_output():
    model = small_model()
    names = [name for name, p in model.named_parameters() if p.shape[0] in (11, 12) and p.shape[-1] == 16]
    assert names == ["tokens.table.weight"]
    features = torch.randn(5, 16)
    assert torch.equal(model.logits(features), features @ model.tokens.table.weight[:11].T)
    assert model.config.mask_token == 11
    with torch.no_grad():
        assert model(torch.full((1, 1, 8, 8), 11), Actions.null(1, 1)).shape[-1] == 11


def test_the_token_conditioning_acts_on_every_token():
    embedding = small_model().tokens
    tokens = random_tokens((2, 3), vocabulary=12)
    torch.testing.assert_close(embedding(tokens), embedding.conditioning(embedding.table(tokens)))


@torch.no_grad()
def test_causality_a_later_frame_or_action_never_changes_an_earlier_frame():
    model, actions = small_model(), random_actions(2, T)
    tokens = random_tokens((2, T, 8, 8))
    logits = model(tokens, actions)
    for t in range(T):
        other = tokens.clone()
        other[:, t, 3, 5] = (other[:, t, 3, 5] + 1) % 11
        assert changed_frames(logits, model(other, actions)) == list(range(t, T))
        motion = actions.motion.clone()
        motion[:, t, 0, 3] += 1
        expected = list(range(t, T)) if t else []  # the first frame's action is null
        assert changed_frames(logits, model(tokens, Actions(motion, actions.known))) == expected


@torch.no_grad()
def test_identity_mask_a_frame_depends_on_itself_alone_and_on_no_action():
    model, actions = small_model(), random_actions(2, T)
    tokens = random_tokens((2, T, 8, 8))
    logits = model(tokens, actions, mask=AttentionMask.IDENTITY)
    for t in range(T):
        other = tokens.clone()
        other[:, t] = random_tokens((2, 8, 8), seed=9)
        assert changed_frames(logits, model(other, actions, mask=AttentionMask.IDENTITY)) == [t]
    assert torch.equal(logits, model(tokens, random_actions(2, T, seed=5), mask=AttentionMask.IDENTITY))
    for t in range(T):
        torch.testing.assert_close(model.predict_alone(tokens[:, t], position=t), logits[:, t], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_every_frame_knows_its_place_in_time_and_space():
    model = small_model()
    same = torch.zeros(1, T, 8, 8, dtype=torch.long)
    logits = model(same, Actions.null(1, T), mask=AttentionMask.IDENTITY)
    assert not torch.allclose(logits[:, 0], logits[:, 1])
    assert not torch.allclose(logits[0, 0, 0, 0], logits[0, 0, 0, 1])
    assert not torch.allclose(logits[0, 0, 1, 0], logits[0, 0, 0, 1])


@torch.no_grad()
@pytest.mark.parametrize("past", [1, 2, 3])
def test_cached_logits_equal_uncached_and_the_guidance_frame_equals_a_pass_of_its_own(past):
    model, actions = small_model(), random_actions(2, T)
    tokens = random_tokens((2, T, 8, 8))
    current = tokens[:, past].clone()
    current[:, ::2] = 11
    cache = model.new_cache()
    model.remember(tokens[:, :past], actions.frames(0, past), cache)
    for _ in range(2):  # a second pass finds the cache as the first one left it
        seen = model.predict(current, actions.frames(past, past + 1), cache, guidance=True)
        whole = model(torch.cat([tokens[:, :past], current[:, None]], 1), actions.frames(0, past + 1))[:, past]
        torch.testing.assert_close(seen.conditional, whole, atol=1e-5, rtol=1e-5)
        alone = model.predict_alone(current, position=past)
        torch.testing.assert_close(seen.unconditional, alone, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(seen.unconditional, model.predict_alone(current, position=past - 1), atol=1e-3)
    plain = model.predict(current, actions.frames(past, past + 1), cache, guidance=False)
    assert plain.unconditional is None
    torch.testing.assert_close(plain.conditional, seen.conditional, atol=1e-5, rtol=1e-5)
    assert cache.length == past


@torch.no_grad()
@pytest.mark.parametrize("changes", [{}, {"code_dim": 3, "interval_input": True}], ids=["paper", "motion"])
def test_a_frame_that_is_all_mask_has_the_joint_passs_answer_and_its_lonely_half_is_computed_once(changes):
    model, actions = small_model(**changes), random_actions(3, T)
    tokens, nothing = random_tokens((3, T, 8, 8)), torch.full((3, 8, 8), 11)
    cache = model.new_cache()
    model.remember(tokens[:, :2], actions.frames(0, 2), cache)
    frames = []
    model.unet.register_forward_pre_hook(lambda _, given: frames.append(tuple(given[0].shape[:2])))

    def answer(position=2):
        cache.first_position = position - 2
        return model.predict_features(nothing, actions.frames(2, 3), cache, guidance=True)

    def expected(position=2):
        features = model.features(
            nothing[:, None].expand(-1, 2, -1, -1), actions.frames(2, 3).expanded(2), mask=AttentionMask.GUIDANCE,
            positions=torch.full((2,), position), cache=cache,
        )  # fmt: skip
        frames.pop()
        return features[:, 0], features[:, 1]

    for position, passes in ((2, [(3, 1), (1, 1)]), (2, [(3, 1)]), (3, [(3, 1), (1, 1)]), (2, [(3, 1)])):
        seen = answer(position)
        assert frames == passes  # (B, T) of the network's passes; what is kept is one row for all
        frames.clear()
        for found, joint in zip((seen.conditional, seen.unconditional), expected(position), strict=True):
            torch.testing.assert_close(found, joint, atol=5e-6, rtol=1e-5)
    model.temporal_position.mul_(1.5)
    torch.testing.assert_close(answer().unconditional, expected()[1], atol=5e-6, rtol=1e-5)
    frames.clear()
    nothing[0, 0, 0] = 4  # one token is known: not all rows are the same any more
    answer()
    assert frames == [(3, 2)]


@torch.no_grad()
def test_the_table_of_tokens_goes_through_its_conditioning_once():
    model = small_model()
    passed = []
    model.tokens.conditioning.register_forward_hook(lambda *_: passed.append(1))
    first = model(random_tokens((1, 2, 8, 8)), random_actions(1, 2))
    assert torch.equal(first, model(random_tokens((1, 2, 8, 8)), random_actions(1, 2)))
    assert len(passed) == 1
    model.tokens.table.weight.add_(0.1)
    assert not torch.equal(first, model(random_tokens((1, 2, 8, 8)), random_actions(1, 2)))
    with torch.enable_grad():
        model(random_tokens((1, 2, 8, 8)), random_actions(1, 2)).sum().backward()
    assert len(passed) == 3
    assert model.tokens.conditioning.enter.weight.grad.abs().sum() > 0


@torch.no_grad()
def test_the_joint_pass_with_the_extra_frame_is_the_papers_mask():
    """Without a cache: causal within the sequence, identity for the last frame; the cache is only a shortcut."""
    model, actions = small_model(), random_actions(1, 3)
    tokens = random_tokens((1, 3, 8, 8))
    longer = torch.cat([tokens, tokens[:, -1:]], 1)
    motion = torch.cat([actions.motion, actions.motion[:, -1:]], 1)
    known = torch.cat([actions.known, actions.known[:, -1:]], 1)
    positions = torch.tensor([0, 1, 2, 2])
    joint = model.logits(
        model.features(longer, Actions(motion, known), mask=AttentionMask.GUIDANCE, positions=positions)
    )
    torch.testing.assert_close(joint[:, :3], model(tokens, actions), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(joint[:, 3], model.predict_alone(tokens[:, 2], position=2), atol=1e-5, rtol=1e-5)


def test_gradient_flows_to_every_parameter():
    for kind in ("sincos", "factorised"):
        model = small_model(spatial_position=kind)
        model(random_tokens((1, T, 8, 8), vocabulary=12), random_actions(1, T)).square().sum().backward()
        dead = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
        assert not dead


def test_activation_checkpointing_gives_the_same_gradients():
    tokens, actions = random_tokens((2, T, 8, 8)), random_actions(2, T)
    gradients = []
    for checkpointing in (False, True):
        model = small_model(activation_checkpointing=checkpointing)
        model(tokens, actions).log_softmax(-1)[..., 0].sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for plain, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(recomputed, plain)


def test_the_cache_has_one_entry_per_temporal_block():
    model = small_model()
    blocks = [m for m in model.modules() if isinstance(m, TemporalBlock)]
    assert len(model.new_cache().blocks) == len(blocks) == 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: small_config(vocabulary=1), "world_model.vocabulary"),
        (lambda: small_config(past_frames=4), "world_model.past_frames"),
        (lambda: small_config(token_frame="world"), "world_model.token_frame"),
        (lambda: small_config(spatial_position="learned"), "world_model.spatial_position"),
        (lambda: small_config(tokens=(10, 8)), "world_model.tokens must be divisible by 4"),
        (lambda: UNetConfig(heads=(8, 12)), "unet.heads needs 3 numbers"),
        (lambda: UNetConfig(heads=(7, 12, 16)), "unet.heads must divide"),
        (lambda: UNetConfig(down_groups=(1, 0, 1)), "unet.down_groups"),
        (lambda: WorldModel(WorldModelConfig(tokens=(12, 12))), "divides both sides"),
        (lambda: DiffusionConfig(process="gaussian"), "diffusion.process"),
        (lambda: DiffusionConfig(eta=20), "diffusion.eta"),
        (lambda: DiffusionConfig(joint_probability=0.6), "more than 1"),
        (lambda: DiffusionConfig(label_smoothing=1), "diffusion.label_smoothing"),
        (lambda: presets.preset("huge"), "`preset` is"),
        (lambda: small_model()(torch.zeros(1, 5, 8, 8).long(), Actions.null(1, 5)), "clips of 4 frames"),
        (lambda: small_model()(torch.zeros(1, 2, 8, 9).long(), Actions.null(1, 2)), "tokens must be"),
        (lambda: small_model()(torch.zeros(1, 2, 8, 8).long(), Actions.null(1, 3)), "one action per frame"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()

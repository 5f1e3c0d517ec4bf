from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from copilot4d import presets
from copilot4d.config import from_mapping, to_mapping
from copilot4d.errors import UsageError
from copilot4d.geometry import VoxelGrid
from copilot4d.rendering import RayBatch
from copilot4d.tokenizer import (
    BackboneConfig,
    CodebookConfig,
    PointBatch,
    SkippingConfig,
    Tokenizer,
    TokenizerBatch,
    TokenizerConfig,
    training_pass,
)
from tests.support.scenes import make_drive
from tests.tokenizer.clouds import random_sweep, sweep_of, tiny_tokenizer

TINY = presets.tiny().tokenizer


def parameters(config: TokenizerConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in Tokenizer(config).parameters())


def test_the_paper_preset_has_the_papers_size():
    config = presets.paper().tokenizer
    assert 13.0e6 <= parameters(config) <= 13.2e6
    assert config.tokens == (128, 128)
    assert config.map_size == (256, 256)
    with torch.device("meta"):
        tokenizer = Tokenizer(config)
    assert tokenizer.feature_grid.grid.shape == (512, 512, 64)
    assert tokenizer.feature_grid.linear.weight.shape == (2**2 * 64 * 16, 128)
    assert tokenizer.coarse_branch.linear.weight.shape == (4**2 * 64, 128)
    assert tokenizer.codebook.weight.shape == (1024, 1024)
    assert tokenizer.codebook.bank.shape == (10240, 1024)
    assert tokenizer.mask_grid.shape == (128, 128, 64)


def test_presets_agree_with_their_world_models_and_survive_yaml():
    for name in presets.PRESETS:
        config = presets.preset(name)
        assert config.tokenizer.tokens == config.world_model.tokens
        assert config.tokenizer.vocabulary == config.world_model.vocabulary
        assert from_mapping(TokenizerConfig, to_mapping(config.tokenizer)) == config.tokenizer
    with pytest.raises(UsageError, match="the world model reads"):
        dataclasses.replace(presets.tiny(), tokenizer=presets.mini().tokenizer)


def test_the_first_guess_of_the_coarse_branch_is_empty():
    tokenizer = tiny_tokenizer()
    assert tokenizer.coarse_branch.linear.bias.unique().tolist() == [-5.0]
    scene = tokenizer.decode(tokenizer.encode([random_sweep(500, grid=TINY.grid)]))
    assert torch.sigmoid(scene.coarse_logits).mean() < 0.05


def test_the_order_of_points_changes_no_token():
    tokenizer = tiny_tokenizer()
    sweep = random_sweep(3000, grid=TINY.grid)
    shuffled = sweep.select(np.random.default_rng(1).permutation(len(sweep)))
    assert torch.equal(tokenizer.encode_features([sweep]), tokenizer.encode_features([shuffled]))
    assert torch.equal(tokenizer.encode([sweep]), tokenizer.encode([shuffled]))


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((0, 3)),
        [(3.0, -2.0, 0.5)],
        [(-16, -16, -3), (16, 16, 3), (15.999, 15.999, 2.999), (1e9, 0, 0)],
        np.random.default_rng(0).uniform(-20, 20, size=(1_000_000, 3)),
    ],
    ids=["empty", "one point", "edges", "a million"],
)
def test_any_number_of_points_goes_round(points):
    tokenizer = tiny_tokenizer()
    sweep = sweep_of(points)
    tokens = tokenizer.encode([sweep])
    assert tokens.shape == (1, 16, 16)
    rendering = tokenizer.render(tokenizer.decode(tokens), [sweep.rays()[0][:2000]])
    finite = torch.from_numpy(np.isfinite(sweep.points[:2000]).all(axis=-1))
    assert rendering.answered_m[finite].isfinite().all()


def test_a_sweeps_tokens_do_not_depend_on_its_batch():
    tokenizer = tiny_tokenizer()
    sweeps = [random_sweep(500, seed=i, grid=TINY.grid) for i in range(2)] + [sweep_of([])]
    together = tokenizer.encode_features(sweeps)
    for i, sweep in enumerate(sweeps):
        torch.testing.assert_close(together[i], tokenizer.encode_features([sweep])[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("x", "y"), [(-13.0, 5.0), (6.5, -10.9)])
def test_a_point_changes_most_the_token_of_its_x_and_y(x, y):
    """Tokens are 2 m wide; the first axis is x."""
    tokenizer = tiny_tokenizer()
    change = (tokenizer.encode_features([sweep_of([(x, y, 0.3)])]) - tokenizer.encode_features([sweep_of([])])).norm(
        dim=-1
    )
    assert np.unravel_index(int(change[0].argmax()), (16, 16)) == (int((x + 16) // 2), int((y + 16) // 2))


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.zeros(1, 8, 8, dtype=torch.int64), r"\(B, 16, 16\)"),
        (torch.zeros(1, 16, 16), "integers"),
        (torch.full((1, 16, 16), 32), "MASK is not a token"),
    ],
)
def test_tokens_that_cannot_be_decoded_are_refused(tokens, message):
    with pytest.raises(UsageError, match=message):
        tiny_tokenizer().decode(tokens)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "fast"}, "tokenizer.mode is one of"),
        ({"skipping": SkippingConfig(pool=3)}, "tokenizer.skipping.pool"),
        ({"backbone": BackboneConfig(patch=5)}, "tokenizer.backbone.patch"),
        ({"grid": VoxelGrid.from_bounds((-1, -1, -1), (1, 1, 1), (12, 8, 4))}, "must divide"),
    ],
)
def test_configurations_that_cannot_be_are_refused(change, message):
    with pytest.raises(UsageError, match=message):
        dataclasses.replace(TokenizerConfig(), **change)
    with pytest.raises(UsageError, match="heads"):
        BackboneConfig(heads=(3, 16))
    with pytest.raises(UsageError, match=r"tokenizer\.codebook"):
        CodebookConfig(codes=0)


def batch_of(drive, rays: int = 64) -> TokenizerBatch:
    chosen = []
    for i, sweep in enumerate(drive):
        chosen.append(np.random.default_rng(i).permutation(len(sweep))[:rays])
    pairs = [sweep.select(c).rays() for sweep, c in zip(drive, chosen, strict=True)]
    return TokenizerBatch(
        points=PointBatch.of(list(drive)),
        rays=RayBatch.of([p[0] for p in pairs]),
        true_depths_m=torch.from_numpy(np.concatenate([p[1] for p in pairs])),
    )


@pytest.mark.parametrize("mode", ["full", "no_skipping", "voxel_centres"])
def test_every_weight_gets_a_gradient_in_every_mode(mode):
    tokenizer = tiny_tokenizer(dataclasses.replace(TINY, mode=mode)).train()
    done = training_pass(tokenizer, batch_of(make_drive(2, rings=16, azimuths=90)), offsets=None)
    names = {"full": {"occupancy", "depth", "concentration"}, "no_skipping": {"depth", "concentration"}}
    assert set(done.losses) == {"total", "codebook", "commitment"} | names.get(mode, {"occupancy"})
    weights = TINY.losses
    parts = sum(getattr(weights, n) * v for n, v in done.losses.items() if n != "total")
    torch.testing.assert_close(done.losses["total"], parts)
    done.losses["total"].backward()
    assert [n for n, p in tokenizer.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


def test_losses_do_not_depend_on_how_a_batch_is_split():
    tokenizer = tiny_tokenizer().train()
    drive = make_drive(2, rings=16, azimuths=90)
    whole = training_pass(tokenizer, batch_of(drive), offsets=None).losses
    rays = batch_of(drive).rays
    halves = []
    for b in (0, 1):
        part = rays.scenes == b
        batch = TokenizerBatch(
            points=PointBatch.of([drive[b]]),
            rays=dataclasses.replace(rays[part], scenes=torch.zeros(int(part.sum()), dtype=torch.int64)),
            true_depths_m=batch_of(drive).true_depths_m[part],
        )
        halves.append(training_pass(tokenizer, batch, offsets=None).losses)
    for name, value in whole.items():
        torch.testing.assert_close(value, (halves[0][name] + halves[1][name]) / 2, rtol=1e-4, atol=1e-6)


def test_checkpointing_stores_less_and_changes_no_gradient():
    kept, gradients = {}, {}
    for on in (False, True):
        tokenizer = tiny_tokenizer(dataclasses.replace(TINY, activation_checkpointing=on)).train()
        stored = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=stored: s.append(t.numel()) or t, lambda t: t):
            done = training_pass(tokenizer, batch_of(make_drive(1, rings=16, azimuths=90)), offsets=None)
        done.losses["total"].backward()
        kept[on] = sum(stored)
        gradients[on] = {name: p.grad for name, p in tokenizer.named_parameters()}
    assert kept[True] < 0.6 * kept[False]
    for name, gradient in gradients[False].items():
        torch.testing.assert_close(gradients[True][name], gradient)


def test_a_batch_without_any_points_trains():
    tokenizer = tiny_tokenizer().train()
    nothing = TokenizerBatch(
        points=PointBatch.of([sweep_of([])]), rays=RayBatch.of([]), true_depths_m=torch.zeros(0)
    )  # fmt: skip
    losses = training_pass(tokenizer, nothing, offsets=None).losses
    losses["total"].backward()
    assert losses["total"].isfinite()
    assert losses["depth"].item() == 0.0

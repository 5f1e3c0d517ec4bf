"""Algorithm 1: exact counts, and the per-token law of the absorbing-uniform process given (u0, u1)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from copilot4d.world_model import diffusion
from copilot4d.world_model.noise import NoiseDraw, corrupt, draw_noise
from copilot4d.world_model.schedule import scheduled_tokens


def generator(seed):
    return torch.Generator().manual_seed(seed)


def draw_of(u0, u1, rank, replacement):
    one = lambda values: torch.tensor(values)[None, None]  # noqa: E731
    return NoiseDraw(torch.tensor([[u0]]).double(), torch.tensor([[u1]]).double(), one(rank), one(replacement))


def test_a_case_by_hand():
    # gamma(2/3) = 1/2 masks ceil(4) of 8; u1 eta = 0.5 noises round(2) of the other 4.
    draw = draw_of(2 / 3, 1.0, [3, 7, 0, 1, 5, 2, 6, 4], [9, 9, 9, 9, 8, 9, 9, 7])
    tokens = torch.tensor([0, 1, 2, 3, 4, 5, 6, 6])[None, None]
    result = corrupt(tokens, draw, eta=0.5, mask_token=10)
    assert result.tokens.flatten().tolist() == [10, 1, 10, 10, 8, 10, 6, 7]
    assert result.masked.flatten().nonzero().flatten().tolist() == [0, 2, 3, 5]
    assert result.noised.flatten().nonzero().flatten().tolist() == [4, 7]


@pytest.mark.parametrize(("u0", "u1", "eta"), [(0.8, 0.9, 0.6), (0.55, 1.0, 1.0), (1.0, 0.7, 0.4), (0.0, 0.5, 0.5)])
def test_the_law_of_a_token_is_the_absorbing_uniform_process(u0, u1, eta):
    """Every permutation and every replacement, equally probable: the law of token 0 is a row of Q-bar^a Q-bar^u."""
    n, vocabulary, x0 = 4, 3, 1
    masks = scheduled_tokens(u0, n)
    noises = round(u1 * eta * (n - masks))
    counts = np.zeros(vocabulary + 1)
    for rank, value in itertools.product(itertools.permutations(range(n)), range(vocabulary)):
        draw = draw_of(u0, u1, list(rank), [value] * n)
        counts[corrupt(torch.full((1, 1, n), x0), draw, eta=eta, mask_token=vocabulary).tokens[0, 0, 0]] += 1
    noise = noises / (n - masks) if masks < n else 0.0
    expected = diffusion.absorbing(masks / n, vocabulary) @ diffusion.uniform(noise, vocabulary)
    np.testing.assert_allclose(counts / counts.sum(), expected[x0], atol=1e-12)


def test_drawn_noise_has_the_counts_of_algorithm_1_in_every_frame():
    draw = draw_noise([generator(i) for i in range(3)], frames=5, tokens=64, vocabulary=16)
    tokens = torch.randint(16, (3, 5, 64), generator=generator(9))
    result = corrupt(tokens, draw, eta=0.2, mask_token=16)
    for b, t in itertools.product(range(3), range(5)):
        masks = scheduled_tokens(float(draw.u0[b, t]), 64)
        assert int(result.masked[b, t].sum()) == masks
        assert int(result.noised[b, t].sum()) == round(float(draw.u1[b, t]) * 0.2 * (64 - masks))
    untouched = ~(result.masked | result.noised)
    assert torch.equal(result.tokens[untouched], tokens[untouched])
    assert (result.tokens[result.masked] == 16).all()
    assert int(result.tokens[~result.masked].max()) < 16
    assert len(draw.u0.unique()) == 15  # one per sample and frame
    assert not torch.equal(draw.u0, draw.u1)


def test_the_noise_of_a_sample_does_not_depend_on_its_batch():
    together = draw_noise([generator(3), generator(4)], frames=2, tokens=9, vocabulary=5)
    alone = draw_noise([generator(4)], frames=2, tokens=9, vocabulary=5)
    assert torch.equal(together.rank[1], alone.rank[0])
    assert torch.equal(together.replacement[1], alone.replacement[0])


def test_replacements_cover_the_whole_vocabulary_evenly():
    draw = draw_noise([generator(0)], frames=1, tokens=40_000, vocabulary=4)
    share = torch.bincount(draw.replacement.flatten(), minlength=4) / 40_000
    assert (share - 0.25).abs().max() < 0.015

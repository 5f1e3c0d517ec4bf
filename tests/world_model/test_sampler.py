"""Algorithm 2 with scripted logits: every step by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.world_model import diffusion
from copilot4d.world_model.reverse import (
    ReverseRates,
    confidence,
    guide,
    keep_most_confident,
    most_probable,
    pick,
    reverse_probabilities,
    sample_tokens,
)  # fmt: skip
from copilot4d.world_model.sampler import Draws, SamplerConfig, denoise, uniform_numbers
from copilot4d.world_model.schedule import decoded_tokens, mask_rates, noise_rates

N, V, MASK = 20, 6, 6


def peaked(tokens, sharpness):
    """Logits whose most probable token is `tokens` (N,), by `sharpness` (N,)."""
    logits = torch.zeros(1, N, V)
    logits[0, torch.arange(N), tokens] = sharpness
    return logits


def run(logits_of, **options):
    config = SamplerConfig(**{"reverse": "paper", **options})
    return list(denoise(logits_of, Draws(0, [0], 0), config, tokens=N, vocabulary=V, eta=0.2))


@pytest.mark.parametrize("schedule", ["paper", "few_first"])
def test_each_step_decodes_the_scheduled_number_and_none_returns_to_mask(schedule):
    steps = run(lambda x: torch.zeros(1, N, V), steps=5, schedule=schedule)
    before = torch.zeros(1, N, dtype=torch.bool)
    for k, x in zip((4, 3, 2, 1, 0), steps, strict=True):
        decoded = x != MASK
        assert int(decoded.sum()) == decoded_tokens(k, 5, N, schedule)
        assert (decoded | ~before).all()
        before = decoded
    assert (steps[-1] < V).all()


def test_the_model_reads_the_tokens_of_the_step_before_starting_from_all_mask():
    seen = []

    def logits_of(x):
        seen.append(x.clone())
        return peaked(torch.arange(N) % V, torch.full((N,), 30.0))

    steps = run(logits_of, steps=3)
    assert (seen[0] == MASK).all()
    assert torch.equal(seen[1], steps[0])
    assert torch.equal(seen[2], steps[1])
    assert torch.equal(steps[2][0], torch.arange(N) % V)


def test_without_gumbel_noise_the_most_confident_positions_come_first():
    sharpness = torch.linspace(1, 6, N)[torch.randperm(N, generator=torch.Generator().manual_seed(1))]
    logits = peaked(torch.zeros(N, dtype=torch.long), sharpness)
    level = confidence(logits, torch.zeros(1, N, dtype=torch.long), torch.full((1, N), 0.3), temperature=0.0)
    torch.testing.assert_close(level, logits.log_softmax(-1)[..., 0])
    sampled = torch.zeros(1, N, dtype=torch.long)
    x = keep_most_confident(torch.full((1, N), MASK), sampled, level, 7, MASK)
    assert set((x[0] != MASK).nonzero().flatten().tolist()) == set(sharpness.topk(7).indices.tolist())


def test_confidence_is_of_the_full_logits_plus_scaled_gumbel():
    logits = torch.tensor([[[2.0, 1.0, 0.0, -1.0]]])
    level = confidence(logits, torch.tensor([[1]]), torch.tensor([[0.25]]), temperature=0.9)
    log_p = 1.0 - np.log(np.exp([2.0, 1.0, 0.0, -1.0]).sum())
    assert float(level) == pytest.approx(log_p + 0.9 * -np.log(-np.log(0.25)), abs=1e-5)


def test_decoded_tokens_take_the_new_sample_and_maskgit_freezes_them():
    """A model that changes its mind: it says 1 at first, 2 from then on."""

    def logits_of(x):
        return peaked(torch.full((N,), 1 if bool((x == MASK).all()) else 2), torch.full((N,), 50.0))

    revised = run(logits_of, steps=4)
    assert set(revised[0][revised[0] != MASK].tolist()) == {1}
    assert set(revised[1][revised[1] != MASK].tolist()) == {2}
    assert (revised[-1] == 2).all()
    frozen = run(logits_of, steps=4, reverse="frozen")
    assert int((frozen[-1] == 1).sum()) == decoded_tokens(3, 4, N)
    assert torch.equal(frozen[-1] == 1, frozen[0] == 1)


def test_only_the_top_k_are_sampled_in_proportion():
    logits = torch.log(torch.tensor([0.1, 0.4, 0.2, 0.3])).expand(20_000, 4)
    uniform = torch.arange(20_000) / 20_000
    share = torch.bincount(sample_tokens(logits, uniform, 3), minlength=4) / 20_000
    torch.testing.assert_close(share, torch.tensor([0, 4 / 9, 2 / 9, 3 / 9]), atol=2e-4, rtol=0)
    assert (sample_tokens(logits, uniform, 1) == 1).all()
    everything = torch.bincount(sample_tokens(logits, uniform, None), minlength=4) / 20_000
    torch.testing.assert_close(everything, torch.tensor([0.1, 0.4, 0.2, 0.3]), atol=2e-4, rtol=0)


def test_the_most_probable_is_the_first_of_the_highest():
    logits = torch.randn(3, 50, 40, generator=torch.Generator().manual_seed(2))
    assert torch.equal(sample_tokens(logits, torch.rand(3, 50), 1), logits.topk(1, dim=-1).indices[..., 0])
    strided = logits.transpose(1, 2)
    assert torch.equal(most_probable(strided), strided.argmax(-1))
    assert most_probable(torch.tensor([[1.0, 5.0, 5.0, -torch.inf]])).tolist() == [1]
    assert most_probable(strided.bfloat16()).shape == (3, 40)
    assert most_probable(torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64, requires_grad=True)).tolist() == 1


def test_pick_never_leaves_the_vocabulary():
    weights = torch.tensor([[0.0, 0.5, 0.5, 0.0]])
    assert int(pick(weights, torch.tensor([0.0]))) == 1
    assert int(pick(weights, torch.tensor([1 - 1e-16]))) in (2, 3)
    assert int(pick(weights, torch.tensor([0.75]))) == 2


def test_guidance_is_on_at_one():
    conditional, unconditional = torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.5])
    assert guide(conditional, unconditional, 0.0).tolist() == [2.0, 0.0]
    assert guide(conditional, unconditional, 1.0).tolist() == [3.0, -0.5]
    assert guide(conditional, unconditional, 2.0).tolist() == [4.0, -1.0]


@pytest.mark.parametrize("schedule", ["paper", "few_first"])
@pytest.mark.parametrize("eta", [0.2, 0.0])
def test_the_d3pm_step_is_the_marginal_of_the_matrices(schedule, eta):
    steps, vocabulary = 4, 3
    alphas, betas = mask_rates(steps, schedule), noise_rates(steps, eta)
    q, qbar = diffusion.transitions(alphas, betas, vocabulary), diffusion.cumulative(alphas, betas, vocabulary)
    x0 = np.random.default_rng(0).dirichlet(np.ones(vocabulary), size=vocabulary + 1)
    if eta == 0:
        x0[:vocabulary] = np.eye(vocabulary)  # without noise a visible token is certain
    for k in range(steps):
        rates = ReverseRates.at(k, steps, schedule, eta)
        law = reverse_probabilities(torch.from_numpy(x0), torch.arange(vocabulary + 1), rates).numpy()
        expected = diffusion.reverse(q[k], qbar[k], qbar[k + 1], x0)
        reachable = slice(None) if k + 1 < steps else slice(vocabulary, None)  # x_K is MASK
        np.testing.assert_allclose(law[reachable], expected[reachable], atol=1e-12)


def test_d3pm_sampling_decodes_everything_and_never_masks_again():
    steps = run(lambda x: torch.zeros(1, N, V), steps=6, reverse="d3pm", top_k=None)
    before = torch.zeros(1, N, dtype=torch.bool)
    for x in steps:
        assert ((x != MASK) | ~before).all()
        before = x != MASK
    assert before.all()


def test_random_numbers_depend_on_seed_future_frame_and_step_each():
    base = uniform_numbers(1, 2, 3, 4, 50)
    assert np.array_equal(base, uniform_numbers(1, 2, 3, 4, 50))
    for other in ((0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4), (1, 2, 3, 0), (1, 3, 2, 4), (1, 2, 4, 3)):
        assert not np.isin(uniform_numbers(*other, 50), base).any()
    assert not np.isin(base[0], base[1]).any()
    one, two = Draws(5, [7], 1).at(2, 9), Draws(5, [0, 7], 1).at(2, 9)
    assert torch.equal(one[0][0], two[0][1])
    assert torch.equal(one[1][0], two[1][1])


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"steps": 0}, "sampler.steps"),
        ({"top_k": 0}, "sampler.top_k"),
        ({"guidance": float("nan")}, "sampler.guidance"),
        ({"schedule": "x"}, "sampler.schedule"),
        ({"reverse": "x"}, "sampler.reverse"),
        ({"keep_frames": 0}, "sampler.keep_frames"),
    ],
)
def test_wrong_options_are_refused_by_their_flag(options, flag):
    with pytest.raises(UsageError, match=flag):
        SamplerConfig(**options)

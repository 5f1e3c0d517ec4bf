"""The schedules are the paper's: percentages decoded per step, and rates whose products give them back."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.world_model.schedule import (
    decoded_tokens,
    gamma,
    kept_fractions,
    mask_rates,
    noise_rates,
    scheduled_tokens,
)


def test_decoded_tokens_of_ten_steps_at_the_papers_size():
    tokens = 128 * 128
    printed = [round(100 * decoded_tokens(k, 10, tokens) / tokens, 1) for k in range(9, -1, -1)]
    assert printed == [15.6, 30.9, 45.4, 58.8, 70.7, 80.9, 89.1, 95.1, 98.8, 100.0]
    maskgit = [round(100 * decoded_tokens(k, 10, tokens, "few_first") / tokens, 1) for k in range(9, -1, -1)]
    assert maskgit[:3] == [1.2, 4.9, 10.9]
    assert maskgit[-2:] == [84.4, 100.0]


@pytest.mark.parametrize("schedule", ["paper", "few_first"])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_decoding_never_loses_tokens_and_ends_with_all(schedule, steps):
    counts = [decoded_tokens(k, steps, 37, schedule) for k in range(steps - 1, -1, -1)]
    assert counts == sorted(counts)
    assert counts[-1] == 37
    assert counts[0] >= 1


def test_the_ceiling_is_taken_after_the_product():
    assert scheduled_tokens(2 / 3, 16384) == 8192  # cos(pi / 3) is a little more than 1/2 in floating point
    assert scheduled_tokens(0.5, 10) == 8  # 7.07 up
    assert scheduled_tokens(1.0, 10) == 0
    assert gamma(0.0) == 1.0


@pytest.mark.parametrize("schedule", ["paper", "few_first"])
def test_mask_rates_multiply_up_to_the_fractions_that_the_sampler_decodes(schedule):
    steps, tokens = 10, 1_000_000
    kept = np.cumprod(1 - mask_rates(steps, schedule))
    np.testing.assert_allclose(kept, kept_fractions(steps, schedule)[1:], atol=1e-12)
    decoded = [decoded_tokens(k, steps, tokens, schedule) / tokens for k in range(1, steps)]
    np.testing.assert_allclose(kept[:-1], decoded, atol=2e-6)
    assert kept[-1] == 0  # after K steps everything is MASK


def test_noise_rates_grow_to_eta_linearly():
    steps, eta = 8, 0.2
    noised = 1 - np.cumprod(1 - noise_rates(steps, eta))
    np.testing.assert_allclose(noised, eta * np.arange(1, steps + 1) / steps, atol=1e-12)
    assert noise_rates(steps, eta)[0] == pytest.approx(1 / (steps / eta))
    assert (noise_rates(steps, 0.0) == 0).all()


def test_unknown_names_and_shares_are_refused():
    with pytest.raises(UsageError, match=r"sampler\.schedule"):
        decoded_tokens(1, 2, 3, "linear")
    with pytest.raises(UsageError, match=r"sampler\.schedule"):
        kept_fractions(3, "linear")
    with pytest.raises(UsageError, match=r"world_model\.diffusion\.eta"):
        noise_rates(3, 20)

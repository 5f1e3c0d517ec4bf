"""Schedules of the diffusion: how much is masked and how much is noise after k of K steps.

gamma(u) = cos(u pi / 2). Going forward (k = 0 is data, k = K is all MASK), alpha_k is the chance that a token turns
into MASK at step k, and beta_k the chance that it turns into a token drawn uniformly from the vocabulary.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import UsageError

FloatArray = NDArray[np.float64]
Schedule = Literal["paper", "few_first"]


def gamma(u: float) -> float:
    """The mask schedule cos(u pi / 2): gamma(0) = 1, gamma(1) = 0."""
    return math.cos(u * math.pi / 2)


def scheduled_tokens(u: float, tokens: int) -> int:
    """ceil(gamma(u) N): how many are masked in line 4 of Algorithm 1, how many are decoded in line 6 of Algorithm 2.

    Rounding before the ceiling keeps exact products exact: gamma(2/3) N is N/2, not N/2 + 1.

    >>> scheduled_tokens(2 / 3, 16384), scheduled_tokens(0.0, 10), scheduled_tokens(1.0, 10)
    (8192, 10, 0)
    """
    return math.ceil(round(gamma(u) * tokens, 6))


def decoded_tokens(k: int, steps: int, tokens: int, schedule: Schedule = "paper") -> int:
    """M, how many tokens are decoded after step k (k runs K-1 ... 0); all of them at k = 0.

    "paper" is Algorithm 2 as printed, ceil(gamma(k / K) N): many tokens early. "few_first", that of MaskGIT, leaves
    floor(gamma(1 - k/K) N) masked: few tokens early.

    >>> [decoded_tokens(k, 4, 100) for k in (3, 2, 1, 0)]
    [39, 71, 93, 100]
    >>> [decoded_tokens(k, 4, 100, "few_first") for k in (3, 2, 1, 0)]
    [8, 30, 62, 100]
    """
    if schedule == "paper":
        return scheduled_tokens(k / steps, tokens)
    if schedule == "few_first":
        return tokens - math.floor(round(gamma(1 - k / steps) * tokens, 6))
    raise UsageError(f"sampler.schedule is one of {', '.join(get_args(Schedule))}, got {schedule!r}")


def kept_fractions(steps: int, schedule: Schedule = "paper") -> FloatArray:
    """(K + 1,) alpha-bar_k, the chance that a token is not MASK after k = 0 ... K steps: 1 at first, 0 at the end.

    The same fractions that the sampler decodes, without the rounding to whole tokens.
    """
    if schedule == "paper":
        return np.array([gamma(k / steps) for k in range(steps)] + [0.0])
    if schedule == "few_first":
        return np.array([1.0] + [1 - gamma(1 - k / steps) for k in range(1, steps)] + [0.0])
    raise UsageError(f"sampler.schedule is one of {', '.join(get_args(Schedule))}, got {schedule!r}")


def mask_rates(steps: int, schedule: Schedule = "paper") -> FloatArray:
    """(K,) alpha_1 ... alpha_K, with prod_{s <= k} (1 - alpha_s) = alpha-bar_k: alpha_k = 1 - abar_k / abar_{k-1}."""
    kept = kept_fractions(steps, schedule)
    return 1 - kept[1:] / kept[:-1]


def noise_rates(steps: int, eta: float = 0.2) -> FloatArray:
    """(K,) beta_1 ... beta_K = 1 / (K / eta - k + 1), with 1 - prod_{s <= k} (1 - beta_s) = eta k / K."""
    if not 0 <= eta <= 1:
        raise UsageError(f"world_model.diffusion.eta is a fraction in [0, 1], got {eta}")
    if eta == 0:
        return np.zeros(steps)
    return 1 / (steps / eta - np.arange(1, steps + 1) + 1)

"""Algorithm 2: a frame's tokens by iterative decoding.

Axes: R rows (futures), H/W tokens of a frame, N = H W, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from copilot4d.errors import UsageError
from copilot4d.world_model.reverse import (
    ReverseRates,
    confidence,
    keep_most_confident,
    pick,
    reverse_probabilities,
    sample_tokens,
)
from copilot4d.world_model.schedule import Schedule, decoded_tokens

ReverseStep = Literal["paper", "frozen", "d3pm"]
MASK64 = (1 << 64) - 1
PURPOSE = 0x5A4D504C  # keeps the sampler's random numbers apart from others of the same seed


@dataclass(frozen=True, kw_only=True)
class SamplerConfig:
    """How a frame is sampled. Nothing here needs retraining."""

    steps: int = 10  # K
    guidance: float = 1.0  # w; 0 turns it off, and 1 does not
    top_k: int | None = 3  # None: all of the vocabulary
    schedule: Schedule = "paper"
    reverse: ReverseStep | None = None  # None: "frozen" for a model of the process maskgit, else "paper"
    keep_frames: int | None = None  # how much past stays when the window slides; None: as much as fits

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UsageError(f"sampler.steps must be at least 1, got {self.steps}")
        if not np.isfinite(self.guidance):
            raise UsageError(f"sampler.guidance must be a finite number, got {self.guidance}")
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"sampler.top_k must be at least 1, got {self.top_k}")
        if self.schedule not in get_args(Schedule):
            raise UsageError(f"sampler.schedule is one of {', '.join(get_args(Schedule))}, got {self.schedule!r}")
        if self.reverse is not None and self.reverse not in get_args(ReverseStep):
            raise UsageError(f"sampler.reverse is one of {', '.join(get_args(ReverseStep))}, got {self.reverse!r}")
        if self.keep_frames is not None and self.keep_frames < 1:
            raise UsageError(f"sampler.keep_frames must be at least 1, got {self.keep_frames}")


def uniform_numbers(seed: int, future: int, frame: int, step: int, count: int) -> NDArray[np.float64]:
    """(2, count) in [0, 1), by (seed, future, frame, step) alone: one row to draw tokens with, one for Gumbel noise."""
    key = np.array([seed & MASK64, PURPOSE], dtype=np.uint64)
    counter = np.array([0, step, frame, future], dtype=np.uint64)  # Philox itself counts in the first word
    return np.random.Generator(np.random.Philox(key=key, counter=counter)).random((2, count))


@dataclass(frozen=True)
class Draws:
    """The random numbers of one frame for several futures: row r belongs to future `futures[r]`."""

    seed: int
    futures: Sequence[int]
    frame: int

    def at(self, step: int, count: int) -> tuple[Tensor, Tensor]:
        """(R, count) twice, for diffusion step k."""
        rows = [uniform_numbers(self.seed, future, self.frame, step, count) for future in self.futures]
        both = torch.from_numpy(np.stack(rows))
        return both[:, 0], both[:, 1]


def denoise(
    logits_of: Callable[[Tensor], Tensor],
    draws: Draws,
    config: SamplerConfig,
    *,
    tokens: int,
    vocabulary: int,
    eta: float,
    device: torch.device | str = "cpu",
) -> Iterator[Tensor]:
    """Algorithm 2: yields x_k (R, N) for k = K-1 ... 0. logits_of maps x_{k+1} to the (guided) logits (R, N, V)."""
    x = torch.full((len(draws.futures), tokens), vocabulary, device=device)  # line 1
    for k in range(config.steps - 1, -1, -1):  # line 2
        for_token, for_gumbel = (numbers.to(device) for numbers in draws.at(k, tokens))
        logits = logits_of(x).float()
        if config.reverse == "d3pm":
            rates = ReverseRates.at(k, config.steps, config.schedule, eta)
            x = pick(reverse_probabilities(_top_k_softmax(logits, config.top_k), x, rates), for_token)
        else:
            sampled = sample_tokens(logits, for_token, config.top_k)  # line 3
            if config.reverse == "frozen":
                sampled = torch.where(x == vocabulary, sampled, x)  # decoded tokens are frozen
            count = decoded_tokens(k, config.steps, tokens, config.schedule)  # line 6
            if count < tokens:
                level = confidence(logits, sampled, for_gumbel, k / config.steps)  # line 4
                x = keep_most_confident(x, sampled, level, count, vocabulary)  # lines 5, 7
            else:  # where all are kept, the least confident is, too
                x = sampled
        yield x  # after k = 0: line 9


def _top_k_softmax(logits: Tensor, top_k: int | None) -> Tensor:
    """p(x_0) over the whole vocabulary, zero outside the top_k."""
    if top_k is None or top_k >= logits.shape[-1]:
        return logits.softmax(-1)
    values, tokens = logits.topk(top_k, dim=-1)
    return torch.zeros_like(logits).scatter_(-1, tokens, values.softmax(-1))

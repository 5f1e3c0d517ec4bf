"""Algorithm 1, lines 3-7: mask a random share of a frame's tokens, and noise some of the rest.

Axes: B samples, T frames, N tokens of a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from copilot4d.world_model.schedule import scheduled_tokens


@dataclass(frozen=True)
class NoiseDraw:
    """All randomness of Algorithm 1 for a batch."""

    u0: Tensor  # (B, T) decides the share of masked tokens
    u1: Tensor  # (B, T) decides the share of noise among the rest
    rank: Tensor  # (B, T, N) a random permutation of 0 ... N-1 in each frame
    replacement: Tensor  # (B, T, N) tokens drawn uniformly from the vocabulary


@dataclass(frozen=True)
class Corrupted:
    """x_k: tokens after masking and noising, and where they were masked or noised (B, T, N)."""

    tokens: Tensor
    masked: Tensor
    noised: Tensor


def draw_noise(generators: Sequence[torch.Generator], frames: int, tokens: int, vocabulary: int) -> NoiseDraw:
    """One generator per sample, so that a sample's noise does not depend on the batch it is in."""
    draws = []
    for generator in generators:
        u = torch.rand(2, frames, generator=generator, dtype=torch.float64)
        scores = torch.rand(frames, tokens, generator=generator, dtype=torch.float64)
        rank = scores.argsort(dim=-1).argsort(dim=-1)
        replacement = torch.randint(vocabulary, (frames, tokens), generator=generator)
        draws.append((u[0], u[1], rank, replacement))
    return NoiseDraw(*(torch.stack(part) for part in zip(*draws, strict=True)))


def corrupt(tokens: Tensor, draw: NoiseDraw, *, eta: float, mask_token: int) -> Corrupted:
    """Algorithm 1 on (B, T, N) tokens. eta: the largest share of noise among the tokens that are not masked (0.2).

    The first ceil(gamma(u0) N) ranks are masked, the next round(u1 eta N_rest) noised: as the ranks are a random
    permutation, both are random sets of exactly that size.
    """
    n = tokens.shape[-1]
    masks = torch.tensor([[scheduled_tokens(u, n) for u in row] for row in draw.u0.tolist()])  # line 4
    noises = torch.round(draw.u1 * eta * (n - masks)).long()  # line 6
    first, last = masks[..., None], (masks + noises)[..., None]
    masked = (draw.rank < first).to(tokens.device)
    noised = ((draw.rank >= first) & (draw.rank < last)).to(tokens.device)
    noisy = torch.where(noised, draw.replacement.to(tokens), tokens)
    return Corrupted(noisy.masked_fill(masked, mask_token), masked, noised)  # line 7

"""One reverse step of the sampler on a frame's tokens: Algorithm 2's, MaskGIT's, and D3PM's.

Axes: R rows (futures), N tokens of a frame, V vocabulary. MASK is the token V.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from copilot4d.world_model.schedule import Schedule, kept_fractions, mask_rates, noise_rates


def guide(conditional: Tensor, unconditional: Tensor, guidance: float) -> Tensor:
    """Classifier-free guidance: conditional + w (conditional - unconditional). w = 0 is none, w = 1 already guides."""
    return conditional + guidance * (conditional - unconditional)


def sample_tokens(logits: Tensor, uniform: Tensor, top_k: int | None) -> Tensor:
    """(..., V) logits and (...,) numbers in [0, 1) -> (...,) tokens drawn from the top_k most probable (None: all)."""
    if top_k == 1:
        return most_probable(logits)
    values, tokens = logits.topk(min(top_k or logits.shape[-1], logits.shape[-1]), dim=-1)
    return tokens.gather(-1, pick(values.softmax(-1), uniform)[..., None])[..., 0]


def most_probable(logits: Tensor) -> Tensor:
    """(..., V) logits -> (...,) the highest, the first of equal ones. On CPUs numpy finds it several times faster."""
    if logits.device.type != "cpu" or logits.dtype not in (torch.float32, torch.float64):
        return logits.argmax(-1)
    return torch.from_numpy(np.asarray(logits.detach().numpy().argmax(-1)))


def pick(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """(..., V) weights and (...,) numbers in [0, 1) -> (...,) indices, by the inverse of the cumulative sum."""
    cumulative = probabilities.double().cumsum(-1)
    threshold = uniform.to(cumulative)[..., None] * cumulative[..., -1:]
    return (threshold >= cumulative[..., :-1]).sum(-1)


def confidence(logits: Tensor, tokens: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """l_k, line 4 of Algorithm 2: log p(token) under the full logits, plus Gumbel(0, 1) noise times k / K."""
    log_p = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    tiny = torch.finfo(torch.float64).tiny
    exponential = (-torch.log(uniform.double().clamp_min(tiny))).clamp_min(tiny)
    gumbel = -torch.log(exponential)
    return log_p + temperature * gumbel.to(log_p)


def keep_most_confident(tokens: Tensor, sampled: Tensor, level: Tensor, count: int, mask_token: int) -> Tensor:
    """Lines 5-7 of Algorithm 2: x_k is the sample on the `count` most confident positions, MASK elsewhere.

    Positions that are decoded already are infinitely confident: they take the new sample and never return to MASK.
    """
    decoded = tokens != mask_token
    level = level.masked_fill(decoded, float("inf"))
    chosen = torch.zeros_like(decoded).scatter_(-1, level.topk(count, dim=-1).indices, True)
    return torch.where(chosen | decoded, sampled, torch.full_like(tokens, mask_token))


@dataclass(frozen=True, kw_only=True)
class ReverseRates:
    """The numbers of the step x_{k+1} -> x_k; see `diffusion` for the matrices they stand for."""

    alpha: float  # chance to be masked at forward step k+1
    beta: float  # chance to be noised at forward step k+1
    kept: float  # not masked after k forward steps
    kept_next: float  # not masked after k + 1
    noised: float  # share of noise among tokens after k
    noised_next: float  # after k + 1

    @classmethod
    def at(cls, k: int, steps: int, schedule: Schedule, eta: float) -> ReverseRates:
        """The rates of the step to k, for k = K-1 ... 0."""
        kept = kept_fractions(steps, schedule)
        return cls(
            alpha=float(mask_rates(steps, schedule)[k]),
            beta=float(noise_rates(steps, eta)[k]),
            kept=float(kept[k]),
            kept_next=float(kept[k + 1]),
            noised=eta * k / steps,
            noised_next=eta * (k + 1) / steps,
        )


def reverse_probabilities(x0: Tensor, tokens: Tensor, rates: ReverseRates) -> Tensor:
    """p(x_k | x_{k+1}) = sum over x_0 of q(x_k | x_{k+1}, x_0) p(x_0 | x_{k+1}): (..., V) and (...,) -> (..., V + 1).

    Closed form of `diffusion.reverse`. With M = V, after k steps a token is its old self with omega-bar = kept (1 -
    noised), or any given one with nu-bar = kept noised / M; one step has omega = (1 - alpha)(1 - beta) and nu = (1 -
    alpha) beta / M. A MASK stays MASK with chi_k / chi_{k+1}; a token never becomes MASK again.
    """
    vocabulary = x0.shape[-1]
    omega_bar, nu_bar = rates.kept * (1 - rates.noised), rates.kept * rates.noised / vocabulary
    masked = tokens == vocabulary
    chi, chi_next = 1 - rates.kept, 1 - rates.kept_next
    result = x0.new_zeros((*x0.shape[:-1], vocabulary + 1))
    from_mask = (rates.alpha / chi_next) * (omega_bar * x0 + nu_bar)
    from_token = _from_token(x0, tokens.masked_fill(masked, 0), rates, omega_bar, nu_bar)
    result[..., :vocabulary] = torch.where(masked[..., None], from_mask, from_token)
    result[..., vocabulary] = masked * (chi / chi_next)
    return result


def _from_token(x0: Tensor, tokens: Tensor, rates: ReverseRates, omega_bar: float, nu_bar: float) -> Tensor:
    """Where x_{k+1} = j is a token: (omega [i=j] + nu) (omega-bar p_i / q_i + nu-bar sum_l p_l / q_l), q_l = q(j|l)."""
    vocabulary = x0.shape[-1]
    itself = torch.zeros_like(x0).scatter_(-1, tokens[..., None], 1.0)
    omega, nu = (1 - rates.alpha) * (1 - rates.beta), (1 - rates.alpha) * rates.beta / vocabulary
    nu_next = rates.kept_next * rates.noised_next / vocabulary
    if nu_next == 0:  # without noise a token is what it was; or, at k + 1 = K, it cannot be there at all
        return itself
    evidence = rates.kept_next * (1 - rates.noised_next) * itself + nu_next
    ratio = x0 / evidence
    return (omega * itself + nu) * (omega_bar * ratio + nu_bar * ratio.sum(-1, keepdim=True))

"""From occupancies along rays to depths: w_i = alpha_i prod_{j<i} (1 - alpha_j), D = sum_i w_i h_i."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from copilot4d.rendering.sampling import RaySamples


class Composite(NamedTuple):
    """What a ray sees: the un-normalised expected depth sum w_i h_i, and how much of it was stopped, sum w_i."""

    depth_m: Tensor  # (R,)
    opacity: Tensor  # (R,), in [0, 1]


def rendering_weights(alpha: Tensor) -> Tensor:
    """(..., N) occupancies in [0, 1], near to far -> (..., N) the chance that the ray stops at each sample.

    >>> rendering_weights(torch.tensor([0.5, 0.5, 1.0, 0.7])).tolist()
    [0.5, 0.25, 0.25, 0.0]
    """
    passed = torch.cumprod(1 - alpha, dim=-1)
    reached = torch.cat([torch.ones_like(alpha[..., :1]), passed[..., :-1]], dim=-1)
    return alpha * reached


def weights_from_logits(logits: Tensor) -> Tensor:
    """(..., N) logits of the occupancies -> the same weights, in logarithms: no underflow, a cheap backward pass.

    -inf is an empty sample; its gradient is zero.
    """
    blocked = functional.softplus(logits)  # -log(1 - alpha)
    before = blocked.cumsum(dim=-1) - blocked
    return torch.sigmoid(logits) * torch.exp(-before)


def composite(weights: Tensor, depths_m: Tensor) -> Composite:
    """(R, N) weights and sample depths -> depth and opacity of each ray."""
    return Composite((weights * depths_m).sum(dim=-1), weights.sum(dim=-1))


def median_depth(weights: Tensor, depths_m: Tensor, step_m: float) -> Tensor:
    """(R, N) weights and sample depths -> (R,) the depth at which half of a ray that stops has stopped; 0 for none.

    Each sample's weight is spread evenly over one step around it. Where a ray may stop at one of two surfaces the mean
    lies in the air between them; the median lies on one.

    >>> median_depth(torch.tensor([[0.25, 0.5, 0.0]]), torch.tensor([[1.0, 2.0, 3.0]]), 0.1).tolist()
    [1.975000023841858]
    """
    stopped = weights.cumsum(dim=-1)
    half = 0.5 * stopped[..., -1:]
    at = (stopped < half).sum(dim=-1, keepdim=True).clamp(max=weights.shape[-1] - 1)
    weight = weights.gather(-1, at)
    before = stopped.gather(-1, at) - weight
    part = (half - before) / weight.clamp(min=torch.finfo(weights.dtype).tiny)
    found = depths_m.gather(-1, at) + step_m * (part.clamp(0, 1) - 0.5)
    return torch.where(half > 0, found, torch.zeros_like(found))[..., 0]


def pad_samples(values: Tensor, samples: RaySamples, fill: float) -> Tensor:
    """(S,) packed values -> (R, N), one row per ray, `fill` behind a ray's last sample."""
    padded = values.new_full((samples.ray_count, max(1, samples.longest)), fill)
    return padded.index_put((samples.rays, samples.slots), values)

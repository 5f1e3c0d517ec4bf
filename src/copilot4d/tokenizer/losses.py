"""The tokenizer's losses. Every one is a mean over scenes first, so that a batch may be split anyhow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from copilot4d.errors import UsageError

Concentration = Literal["squared", "absolute"]


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """Weights of the losses; the paper's, where it has them."""

    codebook: float = 0.25  # lambda 1
    commitment: float = 1.0  # lambda 2
    depth: float = 1.0
    concentration: float = 1.0
    concentration_norm: Concentration = "squared"  # w^2, or |w| as printed
    termination: float = 0.0  # log likelihood of the place where a ray stops; not in the paper, learns much faster
    margin_m: float = 0.4  # epsilon: weight within it of the surface is free
    occupancy: float = 1.0  # binary cross entropy of the coarse branch
    occupied_weight: float = 1.0  # how much more an occupied voxel counts in it
    agreement: float = 0.0  # encoder outputs of two scans of one moment must be alike; not in the paper

    def __post_init__(self) -> None:
        if self.concentration_norm not in get_args(Concentration):
            known = ", ".join(get_args(Concentration))
            raise UsageError(f"tokenizer.losses.concentration_norm is one of {known}, got {self.concentration_norm!r}")
        names = ("codebook", "commitment", "depth", "concentration", "termination", "margin_m", "occupancy",
                 "occupied_weight", "agreement")  # fmt: skip
        for name in names:
            if not getattr(self, name) >= 0:
                raise UsageError(f"tokenizer.losses.{name} must not be negative, got {getattr(self, name)}")


def scene_mean(values: Tensor, scenes: Tensor, count: int) -> Tensor:
    """(R,) one value per ray -> the mean over scenes of each scene's mean; a scene without rays counts as 0."""
    sums = values.new_zeros(count).index_add(0, scenes, values)
    rays = torch.bincount(scenes, minlength=count).clamp(min=1)
    return (sums / rays).mean()


def depth_loss(depth_m: Tensor, true_depth_m: Tensor, is_surface: Tensor) -> Tensor:
    """(R,) |D - D_gt| of rays that end inside the volume; 0 of those that leave it: they saw no surface here."""
    error = (depth_m - true_depth_m).abs()
    return torch.where(is_surface, error, torch.zeros_like(error))


def concentration_loss(
    weights: Tensor, depths_m: Tensor, true_depth_m: Tensor, is_surface: Tensor, margin_m: float, norm: Concentration
) -> Tensor:
    """(R, N) weights and sample depths -> (R,) the sum over samples further than the margin from the surface.

    A ray that leaves the volume has no surface: all its samples count.
    """
    off = ((depths_m - true_depth_m[:, None]).abs() > margin_m) | ~is_surface[:, None]
    size = weights.square() if norm == "squared" else weights
    return torch.where(off, size, torch.zeros_like(size)).sum(dim=-1)


def termination_loss(
    logits: Tensor, depths_m: Tensor, true_depth_m: Tensor, is_surface: Tensor, step_m: float
) -> Tensor:
    """(R, N) occupancy logits at samples -> (R,) minus the log likelihood that the ray stops where it did.

    A ray passes every sample before its surface and stops at the one nearest to it: sum -log(1 - alpha) of the former,
    plus -log(alpha) of the latter. A ray that leaves the volume passes all. -inf is no sample.
    """
    ahead = depths_m - true_depth_m[:, None]
    passed = (ahead < -step_m / 2) | ~is_surface[:, None]
    stopped = (ahead.abs() <= step_m / 2) & is_surface[:, None] & (logits > -torch.inf)
    signed = torch.where(stopped, -logits, logits)
    return (functional.softplus(signed) * (passed | stopped)).sum(dim=-1)


def agreement_loss(one: Tensor, other: Tensor, shared: Tensor) -> Tensor:
    """(B, H, W, D) encoder outputs of two scans -> how far they are apart in the columns (B, H, W) that both hit.

    Squared distance over the squared length of the outputs, which gradients do not change: 0 for equal outputs, 2 for
    unrelated ones of equal length. A mean over scenes.
    """
    one, other = one.float(), other.float()
    apart = (one - other).square().sum(dim=-1) * shared
    length = 0.5 * (one.square().sum(dim=-1) + other.square().sum(dim=-1)) * shared
    return (apart.sum(dim=(1, 2)) / length.sum(dim=(1, 2)).detach().clamp(min=1e-6)).mean()


def occupancy_loss(logits: Tensor, occupied: Tensor, occupied_weight: float = 1.0) -> Tensor:
    """Binary cross entropy, a mean over all voxels: any shape of logits, and the flat positions (V,) that hold points.

    -y p log v - (1 - y) log(1 - v) = softplus(l) everywhere, plus p softplus(-l) - softplus(l) where y = 1: no dense
    target is made.
    """
    flat = logits.flatten().float()
    true = flat[occupied]
    whole = functional.softplus(flat).sum() - functional.softplus(true).sum()
    return (whole + occupied_weight * functional.softplus(-true).sum()) / flat.numel()

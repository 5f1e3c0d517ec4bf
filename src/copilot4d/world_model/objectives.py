"""The three training objectives and their masks. Axes: B samples, T frames, H/W tokens of a frame."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, get_args

import torch
from torch import Tensor

from copilot4d.errors import UsageError
from copilot4d.layers.temporal import AttentionMask
from copilot4d.world_model.noise import NoiseDraw, corrupt

Process = Literal["absorbing_uniform", "maskgit"]


class Objective(Enum):
    """What is denoised, and what a frame sees."""

    FUTURE = "future"  # the past is given, the future is denoised; causal
    JOINT = "joint"  # past and future are denoised together; causal
    FRAME = "frame"  # every frame is denoised on its own; identity mask, null actions


@dataclass(frozen=True, kw_only=True)
class DiffusionConfig:
    """How the model is trained to denoise."""

    process: Process = "absorbing_uniform"  # or "maskgit": no noise, loss on masked tokens only, decoded tokens frozen
    eta: float = 0.2  # the largest share of noise among tokens that are not masked
    future_probability: float = 0.5
    joint_probability: float = 0.4  # what remains trains single frames, which guidance needs
    label_smoothing: float = 0.1
    moving_weight: float = 1.0  # of the loss on cells that hold, or just held, something that moves
    empty_weight: float = 1.0  # of the loss on columns without a point

    def __post_init__(self) -> None:
        if self.process not in get_args(Process):
            raise UsageError(
                f"world_model.diffusion.process is one of {', '.join(get_args(Process))}, got {self.process!r}"
            )
        for name in ("eta", "future_probability", "joint_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"world_model.diffusion.{name} must lie in [0, 1], got {getattr(self, name)}")
        if self.future_probability + self.joint_probability > 1 + 1e-9:
            raise UsageError(
                "world_model.diffusion: future_probability and joint_probability must not add up to more than 1"
            )
        for name in ("moving_weight", "empty_weight"):
            if not 0 < getattr(self, name) <= 1e4:
                raise UsageError(f"world_model.diffusion.{name} must lie in (0, 10000], got {getattr(self, name)}")
        if not 0 <= self.label_smoothing < 1:
            raise UsageError(f"world_model.diffusion.label_smoothing must lie in [0, 1), got {self.label_smoothing}")

    @property
    def weighs(self) -> bool:
        """Whether cells count differently, so that what columns hold must be known."""
        return self.moving_weight != 1 or self.empty_weight != 1

    @property
    def noise(self) -> float:
        """eta as it acts: MaskGIT knows no noise."""
        return 0.0 if self.process == "maskgit" else self.eta

    def share(self, objective: Objective) -> float:
        """Of the iterations."""
        if objective is Objective.FUTURE:
            return self.future_probability
        if objective is Objective.JOINT:
            return self.joint_probability
        return max(0.0, round(1 - self.future_probability - self.joint_probability, 9))

    def objective(self, u: float) -> Objective:
        """The objective of an iteration, from a uniform number in [0, 1)."""
        if u < self.future_probability:
            return Objective.FUTURE
        if u < self.future_probability + self.joint_probability:
            return Objective.JOINT
        return Objective.FRAME


@dataclass(frozen=True)
class Denoising:
    """One training example: what the network reads, what it must say, and where that counts."""

    inputs: Tensor  # (B, T, H, W) with MASK
    targets: Tensor  # (B, T, H, W)
    counted: Tensor  # (B, T, H, W) bool: positions in the loss
    mask: AttentionMask
    first: int  # the first frame with counted positions


def make_denoising(
    tokens: Tensor, objective: Objective, draw: NoiseDraw, config: DiffusionConfig, *, past_frames: int, mask_token: int
) -> Denoising:
    """Corrupt a batch of clips (B, T, H, W) for one objective."""
    corrupted = corrupt(tokens.flatten(2), draw, eta=config.noise, mask_token=mask_token)
    inputs, masked = corrupted.tokens.view_as(tokens), corrupted.masked.view_as(tokens)
    counted = masked if config.process == "maskgit" else torch.ones_like(masked)
    first = 0
    if objective is Objective.FUTURE:
        first = past_frames
        inputs = torch.cat([tokens[:, :first], inputs[:, first:]], dim=1)
        counted = torch.cat([torch.zeros_like(counted[:, :first]), counted[:, first:]], dim=1)
    mask = AttentionMask.IDENTITY if objective is Objective.FRAME else AttentionMask.CAUSAL
    return Denoising(inputs, tokens, counted, mask, first)

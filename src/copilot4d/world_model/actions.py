"""The action of a frame: the ego's motion, as the network is given it. The one place where poses become actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray

TokenFrame = Literal["own", "reference"]
ActionInput = Literal["matrix", "fourier"]
WAVELENGTHS_M = (256.0, 128.0, 64.0, 32.0, 16.0, 8.0, 4.0, 2.0)
TYPICAL_S = 0.35  # between two frames: between the protocol's 0.2 s and 0.6 s


@dataclass(frozen=True)
class Actions:
    """One action per frame: `motion` (B, T, 4, 4) float32; where not `known` (B, T), the null action stands in.

    interval_s: (B, T) the time between two frames of the clip; 0 where it is not known, None where it is known nowhere.
    expected: (B, T, H, W) the tokens of the past carried on to each frame, for models that read them: MASK where there
    are none, as in past frames; None: there are none anywhere.
    """

    motion: Tensor
    known: Tensor
    interval_s: Tensor | None = None
    expected: Tensor | None = None

    def __post_init__(self) -> None:
        if self.motion.shape[-2:] != (4, 4) or self.motion.shape[:-2] != self.known.shape:
            raise UsageError(f"actions are (B, T, 4, 4) with known (B, T), got {self.motion.shape}, {self.known.shape}")
        if self.interval_s is not None and self.interval_s.shape != self.known.shape:
            raise UsageError(f"intervals are (B, T) as known is, got {self.interval_s.shape}, {self.known.shape}")
        if self.expected is not None and self.expected.shape[:2] != self.known.shape:
            raise UsageError(
                f"expected tokens are (B, T, H, W) with known (B, T), got {self.expected.shape}, {self.known.shape}"
            )

    @classmethod
    def null(cls, batch: int, frames: int, device: torch.device | str = "cpu") -> Actions:
        """Null actions for all frames."""
        motion = torch.eye(4, device=device).expand(batch, frames, 4, 4)
        return cls(motion, torch.zeros(batch, frames, dtype=torch.bool, device=device))

    def frames(self, start: int, stop: int | None = None) -> Actions:
        """The actions of frames start ... stop - 1."""
        return self._each(lambda part: part[:, start:stop])

    def repeated(self, times: int) -> Actions:
        """Every row of the batch `times` times, row after row."""
        return self._each(lambda part: part.repeat_interleave(times, 0))

    def expanded(self, frames: int) -> Actions:
        """One action (B, 1) for `frames` frames."""
        return self._each(lambda part: part.expand(-1, frames, *part.shape[2:]))

    def with_known(self, known: Tensor) -> Actions:
        """The same motions, known elsewhere."""
        return replace(self, known=known)

    def with_expected(self, expected: Tensor | None) -> Actions:
        """The same motions, with other expected tokens."""
        return replace(self, expected=expected)

    def to(self, device: torch.device | str) -> Actions:
        """The same actions on another device."""
        return self._each(lambda part: part.to(device))

    def features(self, kind: ActionInput, *, interval: bool) -> Tensor:
        """(B, T, F) what the network reads, see `action_features`."""
        motion = self.motion
        if kind == "matrix":
            read = motion.flatten(-2)  # row-major, as in the paper
        else:
            place = motion[..., :3, 3]
            angles = place[..., None] * (2 * torch.pi / torch.tensor(WAVELENGTHS_M, device=motion.device))
            waves = torch.cat([angles.sin(), angles.cos()], dim=-1).flatten(-2)
            read = torch.cat([motion[..., :3, :3].flatten(-2), place / 32.0, waves], dim=-1)
        if not interval:
            return read
        seconds = motion.new_zeros(self.known.shape) if self.interval_s is None else self.interval_s.to(motion)
        told = seconds > 0
        log = torch.where(told, seconds.clamp_min(1e-3) / TYPICAL_S, 1.0).log()
        return torch.cat([read, torch.stack([told.to(motion), log, log.square()], dim=-1)], dim=-1)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Actions:
        interval = None if self.interval_s is None else change(self.interval_s)
        expected = None if self.expected is None else change(self.expected)
        return Actions(change(self.motion), change(self.known), interval, expected)


def action_features(kind: ActionInput, *, interval: bool) -> int:
    """How many numbers of an action the network reads.

    "matrix", the paper's: the 4x4 motion, row by row, in metres; behind a LayerNorm, 1 m counts little far away from
    the reference. "fourier": rotation, place, and sines and cosines of the place, which tell 1 m equally everywhere.
    interval: and three numbers of the time between frames.
    """
    return (16 if kind == "matrix" else 9 + 3 + 3 * 2 * len(WAVELENGTHS_M)) + (3 if interval else 0)


def actions_of(
    world_from_lidar: FloatArray, token_frame: TokenFrame, *, world_from_reference: FloatArray | None = None,
    interval_s: FloatArray | float | None = None,
) -> Actions:  # fmt: skip
    """Poses of the frames of a clip, oldest first, (T, 4, 4) or (B, T, 4, 4) -> their actions (B, T, ...).

    token_frame "own": every sweep is tokenised in its own frame, and the action of frame t is `previous_from_current`,
    the motion t-1 -> t: where the lidar at t is, seen from the lidar at t-1. The first frame's is unknown. It is the
    same motion wherever the world's origin is.
    token_frame "reference": all sweeps are tokenised in the frame of the pose `world_from_reference`, (4, 4) or
    (B, 4, 4), and the action of frame t is `reference_from_t`: where the sensor is in the grid. All are known.
    interval_s: the time between two frames, of all clips or (B,); 0 where it is not known.
    """
    poses = np.asarray(world_from_lidar, dtype=np.float64)
    poses = poses[None] if poses.ndim == 3 else poses
    if poses.ndim != 4 or poses.shape[-2:] != (4, 4):
        raise UsageError(f"poses are (T, 4, 4) or (B, T, 4, 4) world_from_lidar, got {np.shape(world_from_lidar)}")
    known = np.ones(poses.shape[:2], dtype=bool)
    if token_frame == "own":
        motion = se3.relative_motion(np.concatenate([poses[:, :1], poses[:, :-1]], axis=1), poses)
        known[:, :1] = False
    elif token_frame == "reference":
        if world_from_reference is None:
            raise UsageError(
                'token_frame "reference" needs world_from_reference, the pose of the tokens\' common frame'
            )
        reference = np.asarray(world_from_reference, dtype=np.float64).reshape(-1, 1, 4, 4)
        motion = se3.relative_motion(np.broadcast_to(reference, poses.shape), poses)
    else:
        raise UsageError(f"world_model.token_frame is one of {', '.join(get_args(TokenFrame))}, got {token_frame!r}")
    interval = None
    if interval_s is not None:
        seconds = np.broadcast_to(np.asarray(interval_s, dtype=np.float32).reshape(-1, 1), known.shape)
        interval = torch.from_numpy(seconds.copy())
    return Actions(torch.from_numpy(motion.astype(np.float32)), torch.from_numpy(known), interval)

"""The action of a frame: the ego's motion, as the network is given it. The one place where poses become actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray

TokenFrame = Literal["own", "reference"]


@dataclass(frozen=True)
class Actions:
    """One action per frame: `motion` (B, T, 4, 4) float32; where not `known` (B, T), the null action stands in."""

    motion: Tensor
    known: Tensor

    def __post_init__(self) -> None:
        if self.motion.shape[-2:] != (4, 4) or self.motion.shape[:-2] != self.known.shape:
            raise UsageError(f"actions are (B, T, 4, 4) with known (B, T), got {self.motion.shape}, {self.known.shape}")

    @classmethod
    def null(cls, batch: int, frames: int, device: torch.device | str = "cpu") -> Actions:
        """Null actions for all frames."""
        motion = torch.eye(4, device=device).expand(batch, frames, 4, 4)
        return cls(motion, torch.zeros(batch, frames, dtype=torch.bool, device=device))

    def frames(self, start: int, stop: int | None = None) -> Actions:
        """The actions of frames start ... stop - 1."""
        return Actions(self.motion[:, start:stop], self.known[:, start:stop])

    def repeated(self, times: int) -> Actions:
        """Every row of the batch `times` times, row after row."""
        return Actions(self.motion.repeat_interleave(times, 0), self.known.repeat_interleave(times, 0))

    def to(self, device: torch.device | str) -> Actions:
        """The same actions on another device."""
        return Actions(self.motion.to(device), self.known.to(device))


def actions_of(
    world_from_lidar: FloatArray, token_frame: TokenFrame, *, world_from_reference: FloatArray | None = None
) -> Actions:
    """Poses of the frames of a clip, oldest first, (T, 4, 4) or (B, T, 4, 4) -> their actions (B, T, ...).

    token_frame "own": every sweep is tokenised in its own frame, and the action of frame t is `previous_from_current`,
    the motion t-1 -> t: where the lidar at t is, seen from the lidar at t-1. The first frame's is unknown. It is the
    same motion wherever the world's origin is.
    token_frame "reference": all sweeps are tokenised in the frame of the pose `world_from_reference`, (4, 4) or
    (B, 4, 4), and the action of frame t is `reference_from_t`: where the sensor is in the grid. All are known.
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
        raise UsageError(f"--token-frame is one of {', '.join(get_args(TokenFrame))}, got {token_frame!r}")
    return Actions(torch.from_numpy(motion.astype(np.float32)), torch.from_numpy(known))

"""Clips side by side, as the world model's training reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from copilot4d.tokens.token_clips import TokenClip
from copilot4d.world_model import Actions, TokenFrame, WorldModelConfig, actions_of


@dataclass(frozen=True, kw_only=True)
class ClipBatch:
    """Clips side by side: tokens (B, T, H, W) and one action per frame."""

    tokens: Tensor
    actions: Actions
    columns: Tensor | None = None  # (B, T, H, W) what each column holds, where that is known


def batch_of(clips: Sequence[TokenClip], token_frame: TokenFrame) -> ClipBatch:
    """Clips side by side, with the actions of their poses."""
    poses = np.stack([clip.world_from_lidar for clip in clips])
    references = np.stack([clip.world_from_lidar[clip.past_frames - 1] for clip in clips])
    intervals_s = np.array([clip.interval_s for clip in clips])
    actions = actions_of(poses, token_frame, world_from_reference=references, interval_s=intervals_s)
    expected = [clip.expected for clip in clips if clip.expected is not None]
    if len(expected) == len(clips):
        actions = actions.with_expected(torch.stack(expected))
    columns = [clip.columns for clip in clips if clip.columns is not None]
    return ClipBatch(
        tokens=torch.stack([clip.tokens for clip in clips]),
        actions=actions,
        columns=torch.stack(columns) if len(columns) == len(clips) else None,
    )


def newest_past(batch: ClipBatch, config: WorldModelConfig, past: int) -> ClipBatch:
    """The same clips with their newest `past` past frames alone.

    A single one tells neither the time between frames nor what moves.
    """
    start = config.past_frames - past
    if start == 0:
        return batch
    actions = batch.actions.frames(start)
    if config.token_frame == "own":  # the first frame's motion is unknown
        known = actions.known.clone()
        known[:, 0] = False
        actions = actions.with_known(known)
    if past == 1 and actions.interval_s is not None:
        actions = replace(actions, interval_s=torch.zeros_like(actions.interval_s))
    if past == 1:
        actions = actions.with_expected(None)
    columns = None if batch.columns is None else batch.columns[:, start:]
    return ClipBatch(tokens=batch.tokens[:, start:], actions=actions, columns=columns)

"""Token clips in memory, with the interface of `TokenClips`."""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from copilot4d.tokens.token_clips import TokenClip
from tests.world_model.models import random_poses


class MemoryClips:
    """Clips as they are given; variant v has all tokens turned up by v, so that variants can be told apart."""

    def __init__(self, tokens: torch.Tensor, poses: np.ndarray, *, past_frames: int, vocabulary: int,
                 token_frame: str = "own", variants: int = 1, intervals: tuple[int, ...] = (2,)) -> None:  # fmt: skip
        self.tokens, self.poses, self.past_frames, self.intervals = tokens, poses, past_frames, intervals
        self.token_frame, self.vocabulary, self.variants = token_frame, vocabulary, variants
        self.token_shape = (int(tokens.shape[2]), int(tokens.shape[3]))
        self.tokenizer_sha256 = "a" * 64
        self.gathered_past = False
        self.has_expected = self.has_columns = False
        self.intervals_s = tuple(interval / 10 for interval in intervals)
        self.fingerprint = hashlib.sha256(tokens.numpy().tobytes()).hexdigest()

    def __len__(self) -> int:
        return len(self.tokens)

    def clip(self, item: int, variant: int) -> TokenClip:
        if not 0 <= variant < self.variants:
            raise IndexError(variant)
        return TokenClip(
            tokens=(self.tokens[item] + variant) % self.vocabulary,
            world_from_lidar=self.poses[item],
            past_frames=self.past_frames,
            drive=f"drive_{item}",
            reference=self.past_frames - 1,
            interval=self.intervals[item % len(self.intervals)],
        )


def random_clips(count: int = 6, *, frames: int = 4, past_frames: int = 2, side: int = 8, vocabulary: int = 11,
                 seed: int = 0, **changes) -> MemoryClips:  # fmt: skip
    """Clips of noise, driven with turns."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, (count, frames, side, side), generator=generator)
    return MemoryClips(
        tokens, random_poses(count, frames, seed), past_frames=past_frames, vocabulary=vocabulary, **changes
    )

"""Randomness by counter: every draw depends on (seed, step, index) and the draw's purpose, never on what came before.

So a resumed run, another number of loader workers, and another number of ranks see the same samples, the same
augmentation and the same noise. The generator is Philox (numpy), whose 256-bit counter gives each (step, index) a
stream of its own; purposes ("augmentation", "noise") have different keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

MASK64 = (1 << 64) - 1


def stream_key(purpose: str) -> int:
    """A 64-bit key for a purpose, the same on every machine and in every run."""
    return int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")


def counter_generator(seed: int, purpose: str, step: int, index: int = 0) -> np.random.Generator:
    """The numpy generator of one (seed, purpose, step, index)."""
    key = np.array([seed & MASK64, stream_key(purpose)], dtype=np.uint64)
    # Philox counts in the lowest word: 2^128 draws before one stream could reach the next index.
    counter = np.array([0, 0, index & MASK64, step & MASK64], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def counter_seed(seed: int, purpose: str, step: int, index: int = 0) -> int:
    """A 63-bit seed for generators of other libraries."""
    return int(counter_generator(seed, purpose, step, index).integers(0, 1 << 63))


def seed_torch(seed: int, device: torch.device) -> None:
    """Seed torch's global generators of the CPU and of one device; `torch.manual_seed` takes longer, for all."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def permuted(position: int, size: int, seed: int, epoch: int) -> int:
    """Where `position` goes in the epoch's permutation of range(size), without making the permutation.

    A four-round Feistel network permutes the smallest even-bit range that holds `size`; values outside walk on until
    they fall inside, which takes fewer than four rounds on average.
    """
    if not 0 <= position < size:
        raise ValueError(f"position {position} is outside range({size})")
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half_bits) - 1
    keys = [_mix(seed, stream_key("order"), epoch, r) for r in range(4)]
    value = position
    while True:
        left, right = value >> half_bits, value & mask
        for key in keys:
            left, right = right, left ^ (_mix(key, right) & mask)
        value = (left << half_bits) | right
        if value < size:
            return value


def _mix(*words: int) -> int:
    """64-bit hash of integers: splitmix64's finaliser, chained."""
    state = 0
    for word in words:
        state = (state ^ (word & MASK64)) + 0x9E3779B97F4A7C15 & MASK64
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & MASK64
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & MASK64
        state ^= state >> 31
    return state


@dataclass(frozen=True, kw_only=True)
class SampleKey:
    """The identity of one sample of a run: slot `index` of the global batch of `step`."""

    seed: int
    step: int
    index: int
    batch: int  # slots of the global batch, over all ranks and accumulation steps

    @property
    def position(self) -> int:
        """How many samples of the run come before this one."""
        return self.step * self.batch + self.index

    def epoch(self, items: int) -> int:
        """Which pass over `items` items this sample belongs to."""
        return self.position // items

    def item(self, items: int) -> int:
        """Which of `items` items this sample is: each pass visits every item once, in an order of its own."""
        return permuted(self.position % items, items, self.seed, self.epoch(items))

    def generator(self, purpose: str) -> np.random.Generator:
        """Randomness of this sample for one purpose, e.g. "augmentation", "rays"."""
        return counter_generator(self.seed, purpose, self.step, self.index)


@dataclass(frozen=True, kw_only=True)
class StepCounter:
    """The randomness of one training step on one rank, handed to the loss.

    `indices` are the global batch's slots that this batch holds: noise drawn by `sample_generators` is the same
    whichever rank or accumulation step a sample lands on. What one step decides for all samples (the objective) comes
    from `step_generator`, which is equal on all ranks.
    """

    seed: int
    step: int
    indices: tuple[int, ...]

    def step_generator(self, purpose: str) -> np.random.Generator:
        """Numpy randomness of the whole step."""
        return counter_generator(self.seed, f"step:{purpose}", self.step)

    def step_torch(self, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        """Torch randomness of the whole step."""
        seed = counter_seed(self.seed, f"step:{purpose}", self.step)
        return torch.Generator(device).manual_seed(seed)

    def sample_generators(self, purpose: str) -> list[np.random.Generator]:
        """One numpy generator per sample of the batch."""
        return [counter_generator(self.seed, purpose, self.step, i) for i in self.indices]

    def sample_torch(self, purpose: str, device: torch.device | str = "cpu") -> list[torch.Generator]:
        """One torch generator per sample of the batch."""
        seeds = [counter_seed(self.seed, purpose, self.step, i) for i in self.indices]
        return [torch.Generator(device).manual_seed(s) for s in seeds]


def slots_of(batch: int, ranks: int, rank: int, accumulation: int) -> Sequence[tuple[int, ...]]:
    """The slots of the global batch that a rank holds, one tuple per accumulation step.

    Ranks are innermost, so that rows gathered from all ranks, in rank order, are the rows of a single-rank run.

    >>> slots_of(8, ranks=2, rank=1, accumulation=2)
    [(2, 3), (6, 7)]
    """
    per_pass = batch // (ranks * accumulation)
    starts = [(a * ranks + rank) * per_pass for a in range(accumulation)]
    return [tuple(range(start, start + per_pass)) for start in starts]

"""Small sweeps for tests of the tokenizer."""

from __future__ import annotations

import numpy as np
import torch

from copilot4d.geometry import Sweep, VoxelGrid
from copilot4d.presets import tiny
from copilot4d.tokenizer import Tokenizer, TokenizerConfig

SMALL = VoxelGrid.from_bounds((-4, -2, -1), (4, 2, 1), (16, 8, 4))  # cells 0.5 x 0.5 x 0.5, longer along x


def sweep_of(points) -> Sweep:
    points = np.asarray(points, dtype=np.float32).reshape(-1, 3)
    return Sweep(points=points, world_from_lidar=np.eye(4), timestamp_ns=0)


def random_sweep(count: int, seed: int = 0, grid: VoxelGrid = SMALL, beyond: float = 1.2) -> Sweep:
    """Points in a box that is `beyond` times as large as the grid."""
    low, high = np.array(grid.minimum), np.array(grid.maximum)
    middle, half = (low + high) / 2, beyond * (high - low) / 2
    return sweep_of(np.random.default_rng(seed).uniform(middle - half, middle + half, size=(count, 3)))


def tiny_tokenizer(config: TokenizerConfig | None = None, seed: int = 0) -> Tokenizer:
    torch.manual_seed(seed)
    return Tokenizer(tiny().tokenizer if config is None else config).eval()

"""Drives past landmarks, and stand-ins for a tokenizer that tell what they saw."""

from __future__ import annotations

import numpy as np
import torch

from copilot4d.geometry import Drive, Sweep, VoxelGrid, se3
from copilot4d.tokens.augmentation import AugmentationConfig
from copilot4d.tokens.token_cache import TokenCacheConfig
from copilot4d.tokens.tokenize_drives import ClipEncoder
from copilot4d.tokens.write_token_cache import write_token_cache
from copilot4d.training import World

ALONE = World(device=torch.device("cpu"))
GRID = VoxelGrid.from_bounds((-8.0, -8.0, -2.0), (8.0, 8.0, 2.0), shape=(8, 8, 1))
CONFIG = TokenCacheConfig(
    tokenizer_sha256="a" * 64,
    vocabulary=300,
    token_shape=(8, 8),
    grid=GRID,
    token_frame="reference",
    intervals=("0.2s", "3"),
    past_frames=3,
    future_frames=2,
    reference_every=2,
    augmentation=AugmentationConfig(mirror_probability=1.0),
)
HEIGHT_M = 1.5
# In the world, static, and beside the road: where the ego's own box passes, returns would be dropped.
LANDMARKS = np.array([[5.0, 3.9, HEIGHT_M], [-1.0, -3.0, HEIGHT_M], [3.0, 5.0, HEIGHT_M], [9.0, -2.3, HEIGHT_M]])
PERIOD_NS = 100_000_000


def moving_drive(frames=24, *, name="a", step_m=0.5, yaw=0.02, missing=(), ego_box=None, format="memory"):
    """An ego that drives forward in a bend through static landmarks; its own bonnet is in every sweep."""
    sweeps = []
    for i in range(frames):
        if i not in missing:
            pose = se3.from_yaw(yaw * i, (step_m * i, 0.1 * i, HEIGHT_M))
            points = np.concatenate([se3.transform_points(se3.invert(pose), LANDMARKS), [[1.0, 0, 0]]])
            sweeps.append(Sweep(points=points.astype(np.float32), world_from_lidar=pose, timestamp_ns=i * PERIOD_NS))
    return Drive.from_sweeps(name, sweeps, ego_box=ego_box, format=format)


BONNET = np.array([0.5, -0.5, -1.0, 1.5, 0.5, 1.0])


def occupied(sweeps):
    """A stand-in for a tokenizer: 1 where a cell of 2 m holds points."""
    tokens = torch.zeros(len(sweeps), 8, 8, dtype=torch.int64)
    for n, sweep in enumerate(sweeps):
        cells = np.floor((sweep.points[:, :2] + 8) / 2).astype(int)
        tokens[n, cells[:, 0], cells[:, 1]] = 1
    return tokens


def clock(sweeps):
    """A stand-in that writes the number of the sweep, in tenths of a second, everywhere."""
    return torch.stack([torch.full((8, 8), sweep.timestamp_ns // PERIOD_NS) for sweep in sweeps])


def make(folder, drives, encode=clock, config=CONFIG, **options):
    command = f"copilot4d tokenize --out {folder}"
    write_token_cache(
        folder, drives, ClipEncoder(encode, config, batch=3), config, ALONE, command=command, **options
    )  # fmt: skip
    return folder

"""Models whose answers are known by hand: a tokenizer of occupied pillars, and a world model of a world that stands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from copilot4d.geometry import VoxelGrid
from copilot4d.rendering import RayBatch
from copilot4d.tokenizer import Rendering
from copilot4d.world_model import Prediction

CELLS, HALF_M = 80, 20.0
CELL_M = 2 * HALF_M / CELLS
GRID = VoxelGrid.from_bounds((-HALF_M, -HALF_M, -2.0), (HALF_M, HALF_M, 2.0), shape=(CELLS, CELLS, 1))


@dataclass(frozen=True)
class StubConfig:
    """What forecasters ask of both models' configurations."""

    token_frame: str = "own"
    gathered_past: bool = False
    vocabulary: int = 2
    tokens: tuple[int, int] = (CELLS, CELLS)
    frames: int = 4
    past_frames: int = 2
    mode: str = "full"
    grid: VoxelGrid = GRID
    diffusion: object = None
    expected_input: bool = False

    @property
    def mask_token(self):
        return self.vocabulary

    def first_position(self, past):
        return 0


@dataclass(frozen=True)
class Diffusion:
    process: str = "maskgit"
    noise: float = 0.0


class PillarTokenizer:
    """Token 1: a point lies in the pillar. A ray stops at the first such pillar that it enters."""

    device = torch.device("cpu")

    def __init__(self):
        self.config = StubConfig()
        self.encoded = []  # the points of every sweep that was encoded
        self.newest = []  # the newest sweep of each call

    def eval(self):
        return self

    def encode(self, sweeps):
        tokens = torch.zeros(len(sweeps), CELLS, CELLS, dtype=torch.int64)
        self.newest.append(sweeps[-1])
        for row, sweep in zip(tokens, sweeps, strict=True):
            self.encoded.append(sweep.points)
            cells = np.floor((sweep.points[:, :2] + HALF_M) / CELL_M).astype(int)
            inside = ((cells >= 0) & (cells < CELLS)).all(axis=1)
            row[cells[inside, 0], cells[inside, 1]] = 1
        return tokens

    def decode(self, tokens):
        assert tokens.shape[1:] == (CELLS, CELLS)
        return tokens

    def render(self, scene, rays, *, seed=0):
        batch = RayBatch.of(rays)
        entry, leave = batch.span(GRID)
        depths = torch.arange(0.0, 3 * HALF_M, 0.05)
        points = batch.origins[:, None] + batch.directions[:, None] * depths[:, None]  # (R, D, 3)
        cells = ((points[..., :2] + HALF_M) / CELL_M).floor().long()
        inside = ((cells >= 0) & (cells < CELLS)).all(-1)
        x, y = cells.clamp(0, CELLS - 1).unbind(-1)
        hit = (scene[batch.scenes[:, None], x, y] == 1) & inside
        returned = hit.any(-1)
        depth = depths[hit.int().argmax(-1)]
        return Rendering(
            rays=batch, depth_m=depth, opacity=returned.float(), exit_m=torch.maximum(entry, leave), returned=returned,
            answered=returned, missed=~(leave > entry), samples=0,
        )  # fmt: skip


class PillarCache:
    """The newest tokens that were remembered."""

    def __init__(self):
        self.length, self.newest, self.first_position = 0, None, 0

    def repeated(self, times):
        copy = PillarCache()
        copy.length, copy.newest = self.length, self.newest.repeat_interleave(times, 0)
        return copy


class StandingWorld:
    """The next frame is the newest one: unchanged in a common frame, or moved by `previous_from_current`. With
    `expected_input` it is what is expected.
    """

    device = torch.device("cpu")

    def __init__(self, token_frame="own", **config):
        self.config = StubConfig(token_frame=token_frame, diffusion=Diffusion(), **config)
        self.remembered = []  # how many frames each pass brought

    def eval(self):
        return self

    def new_cache(self, past=None):
        return PillarCache()

    def remember(self, tokens, actions, cache):
        assert tokens.shape[:2] == actions.known.shape
        if tokens.shape[1]:
            self.remembered.append(tokens.shape[1])
            cache.newest = tokens[:, -1]
        cache.length += tokens.shape[1]
        assert cache.length < self.config.frames

    def predict_features(self, tokens, actions, cache, *, guidance):
        if self.config.expected_input:  # it believes what is expected
            features = torch.nn.functional.one_hot(actions.expected[:, 0], 2).float()
            return Prediction(features, features if guidance else None)
        after = torch.stack([self._next(row, m) for row, m in zip(cache.newest, actions.motion[:, 0], strict=True)])
        features = torch.nn.functional.one_hot(after, 2).float()
        return Prediction(features, features if guidance else None)

    def logits(self, features):
        return 50.0 * features

    def _next(self, tokens, motion):
        if self.config.token_frame == "reference":
            return tokens
        axis = (torch.arange(CELLS) + 0.5) * CELL_M - HALF_M
        centres = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1)  # in the current frame
        before = centres @ motion[:2, :2].T + motion[:2, 3]
        cells = ((before + HALF_M) / CELL_M).floor().long()
        inside = ((cells >= 0) & (cells < CELLS)).all(-1)
        x, y = cells.clamp(0, CELLS - 1).unbind(-1)
        return torch.where(inside, tokens[x, y], 0)

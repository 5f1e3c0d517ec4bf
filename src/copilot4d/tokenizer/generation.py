"""Free generation: a decoded scene as the sweep that a sensor would have made of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from copilot4d.errors import UsageError
from copilot4d.geometry import BeamPattern
from copilot4d.tokenizer.scene import Scene
from copilot4d.tokenizer.skipping import predicted_voxels, to_grid
from copilot4d.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class GeneratedPoints:
    """Points (N, 3) float32 in the scene's frame, how sure the model is of each, and which beam gave it."""

    points: NDArray[np.float32]
    opacity: NDArray[np.float32]  # (N,)
    beams: NDArray[np.int64]  # (N,) rows of the pattern's directions; empty for voxel centres


@torch.no_grad()
def generate_points(
    tokenizer: Tokenizer, scene: Scene, pattern: BeamPattern, *, seed: int | None = 0
) -> list[GeneratedPoints]:
    """One cloud per scene: every beam of the pattern, without those that see nothing within reach.

    A tokenizer of mode "voxel_centres" has no use for beams and gives the centres of the voxels it predicts.
    """
    if tokenizer.config.mode == "voxel_centres":
        return voxel_centres(tokenizer, scene, seed=seed)
    rays = pattern.rays()
    rendering = tokenizer.render(scene, [rays] * len(scene), seed=seed)
    kept = rendering.returned & (rendering.depth_m <= pattern.max_range_m)
    clouds = []
    for b in range(len(scene)):
        part = slice(b * len(rays), (b + 1) * len(rays))
        beams = kept[part].nonzero()[:, 0].cpu()
        clouds.append(
            GeneratedPoints(
                points=rendering.points[part].cpu()[beams].numpy(),
                opacity=rendering.opacity[part].cpu()[beams].numpy(),
                beams=beams.numpy(),
            )
        )
    return clouds


@torch.no_grad()
def voxel_centres(tokenizer: Tokenizer, scene: Scene, *, seed: int | None = None) -> list[GeneratedPoints]:
    """The centres of the voxels that the coarse branch predicts, with their probabilities; no noise without a seed."""
    if scene.coarse_logits is None:
        raise UsageError("a tokenizer of mode 'no_skipping' has no coarse branch whose voxels could be points")
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    voxels = to_grid(predicted_voxels(scene.coarse_logits, tokenizer.config.skipping, generator))
    sureness = torch.sigmoid(to_grid(scene.coarse_logits).float())
    clouds = []
    for occupied, probability in zip(voxels, sureness, strict=True):
        cells = occupied.nonzero().cpu()
        clouds.append(
            GeneratedPoints(
                points=tokenizer.config.grid.centre_of(cells.numpy()).astype(np.float32),
                opacity=probability[occupied].cpu().numpy(),
                beams=np.zeros(0, dtype=np.int64),
            )
        )
    return clouds

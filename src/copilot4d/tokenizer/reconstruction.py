"""A sweep through the tokenizer and back, on its own rays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from copilot4d.geometry import Sweep
from copilot4d.tokenizer.generation import voxel_centres
from copilot4d.tokenizer.skipping import true_mask
from copilot4d.tokenizer.tokenizer import Tokenizer
from copilot4d.tokenizer.voxels import PointBatch, voxelise

MIN_RANGE_M = 0.01


@dataclass(frozen=True, kw_only=True)
class Reconstruction:
    """What came back of a sweep, in its own frame."""

    truth: Sweep  # the points whose rays were asked for
    points: NDArray[np.float32]  # (N, 3), one per true point; for voxel centres any number
    on_rays: bool  # whether row i of the points answers row i of the truth
    opacity: NDArray[np.float32]  # (N,)
    tokens: NDArray[np.int64]  # (H, W)
    mask_recall: float  # of the cells that hold points, how many rays look at; NaN without a coarse branch
    mask_precision: float
    samples_per_ray: float


def clean_sweep(sweep: Sweep) -> Sweep:
    """Without points that are not finite or lie on their own origin: they have no ray."""
    x, y, z = (sweep.points if sweep.origins is None else sweep.points - sweep.origins).T
    depths = np.sqrt(x * x + y * y + z * z)  # by column: several times as fast as a norm over rows of three
    kept = np.isfinite(depths) & (depths > MIN_RANGE_M)
    return sweep if kept.all() else sweep.select(kept)


@torch.no_grad()
def reconstruct(tokenizer: Tokenizer, sweep: Sweep, *, seed: int | None = 0) -> Reconstruction:
    """Encode, decode, and look along every ray of the sweep."""
    truth = clean_sweep(sweep)
    tokens = tokenizer.encode([truth])
    scene = tokenizer.decode(tokens)
    recall = precision = samples = float("nan")
    if scene.coarse_logits is not None:
        seen = tokenizer.skipping_mask(scene, seed)
        batch = PointBatch.of([truth], tokenizer.device)
        held = true_mask(voxelise(batch, tokenizer.config.grid), tokenizer.config.skipping.pool)
        both = float((seen & held).sum())
        recall, precision = both / max(1.0, float(held.sum())), both / max(1.0, float(seen.sum()))
    if tokenizer.config.mode == "voxel_centres":
        (cloud,) = voxel_centres(tokenizer, scene)
        points, opacity = cloud.points, cloud.opacity
    else:
        rendering = tokenizer.render(scene, [truth.rays()[0]], seed=seed)
        points, opacity = rendering.points.cpu().numpy(), rendering.opacity.cpu().numpy()
        samples = rendering.samples / max(1, len(truth))
    return Reconstruction(
        truth=truth,
        points=points,
        on_rays=tokenizer.config.mode != "voxel_centres",
        opacity=opacity,
        tokens=tokens[0].cpu().numpy(),
        mask_recall=recall,
        mask_precision=precision,
        samples_per_ray=samples,
    )

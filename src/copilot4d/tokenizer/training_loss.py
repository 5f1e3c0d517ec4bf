"""One training pass of the tokenizer: sweeps and some of their rays in, named losses out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from copilot4d.geometry import VoxelGrid
from copilot4d.rendering import RayBatch
from copilot4d.tokenizer.losses import (
    agreement_loss,
    concentration_loss,
    depth_loss,
    occupancy_loss,
    scene_mean,
    termination_loss,
)
from copilot4d.tokenizer.renderer import Sampling, render_samples
from copilot4d.tokenizer.scene import Scene
from copilot4d.tokenizer.skipping import NEVER, network_position
from copilot4d.tokenizer.tokenizer import Tokenizer
from copilot4d.tokenizer.voxels import PointBatch, Voxels, voxelise


@dataclass(frozen=True, kw_only=True)
class TokenizerBatch:
    """Sweeps to reconstruct, and the rays (R,) on which the depth is supervised.

    `other` are points of the same scenes, in the same frames, by another scan. The encoder does not read them, but
    they show where surfaces are, and the encoder's outputs on both scans may be asked to agree.
    """

    points: PointBatch
    rays: RayBatch
    true_depths_m: Tensor  # (R,)
    other: PointBatch | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingPass:
    """Named losses (scalars; "total" is the weighted sum), and what the codebook's care needs."""

    losses: dict[str, Tensor]
    features: Tensor  # (B, H, W, D) encoder outputs, detached
    tokens: Tensor  # (B, H, W)
    empty: Tensor | None = None  # (B, H, W) bool: columns whose token is reserved


def training_pass(
    tokenizer: Tokenizer, batch: TokenizerBatch, *, offsets: Tensor | None, noise: torch.Generator | None = None
) -> TrainingPass:
    """offsets: (R,) in [0, 1), the jitter of each ray's samples. noise: of the predicted mask, where it is used."""
    config = tokenizer.config
    voxels = voxelise(batch.points, config.grid)
    held = [voxels] if batch.other is None else [voxels, voxelise(batch.other, config.grid)]
    empty = tokenizer.empty_columns(voxels)
    features = tokenizer.encoder(voxels)
    quantised = tokenizer.codebook(features, empty)
    scene = tokenizer.decode_codes(quantised.values, empty)
    losses = {"codebook": quantised.codebook_loss, "commitment": quantised.commitment_loss}
    if scene.coarse_logits is not None:
        position = torch.unique(torch.cat([network_position(v, config.backbone.patch, config.skipping) for v in held]))
        position = position[scene.coarse_logits.detach().flatten()[position] > NEVER]  # empty columns are decided
        losses["occupancy"] = occupancy_loss(scene.coarse_logits, position, config.losses.occupied_weight)
    if tokenizer.feature_grid is not None:
        losses |= rendering_losses(tokenizer, scene, held, batch, offsets, noise)
    if config.losses.agreement and len(held) > 1:
        shared = ~(voxels.empty_columns(config.tokens) | held[1].empty_columns(config.tokens))
        losses["agreement"] = agreement_loss(features, tokenizer.encoder(held[1]), shared)
    weights = {name: getattr(config.losses, name) for name in losses}
    total = torch.stack([weights[name] * value for name, value in losses.items()]).sum()
    return TrainingPass(
        losses={"total": total, **losses}, features=features.detach(), tokens=quantised.tokens, empty=empty
    )


def rendering_losses(
    tokenizer: Tokenizer,
    scene: Scene,
    held: Sequence[Voxels],
    batch: TokenizerBatch,
    offsets: Tensor | None,
    noise: torch.Generator | None,
) -> dict[str, Tensor]:
    """The losses on rays, each a mean over scenes; the arguments are those of `training_pass`.

    held: all that is known to hold points. Rays that end in a column whose token is reserved for emptiness are left
    out: the encoder's scan did not hit it, and the scene cannot show it.
    """
    config, rays, true_m = tokenizer.config, batch.rays, batch.true_depths_m
    assert tokenizer.feature_grid is not None
    if scene.empty is not None:
        kept = ~ends_in(scene.empty, rays, true_m, config.grid)
        rays, true_m = rays[kept], true_m[kept]
        offsets = None if offsets is None else offsets[kept]
    mask = tokenizer.mask_of(scene, noise, held)
    sampling = Sampling(
        grid=tokenizer.mask_grid, mask=mask, step_m=config.rendering.step_m, max_samples=config.samples_in_training
    )
    rendered = render_samples(tokenizer.feature_grid, scene.features, rays, sampling, offsets)
    entry_m, exit_m = rays.span(config.grid)
    is_surface = (true_m >= entry_m) & (true_m < exit_m)
    depth = depth_loss(rendered.composite.depth_m, true_m, is_surface)
    spread = concentration_loss(
        rendered.weights, rendered.depths_m, true_m, is_surface, config.losses.margin_m,
        config.losses.concentration_norm,
    )  # fmt: skip
    losses = {"depth": depth, "concentration": spread}
    if config.losses.termination:
        losses["termination"] = termination_loss(
            rendered.logits, rendered.depths_m, true_m, is_surface, config.rendering.step_m
        )  # fmt: skip
    return {name: scene_mean(values, rays.scenes, len(scene)) for name, values in losses.items()}


def ends_in(columns: Tensor, rays: RayBatch, depths_m: Tensor, grid: VoxelGrid) -> Tensor:
    """(R,) whether rays of these depths end inside the grid in one of the columns (B, H, W)."""
    points = rays.origins + rays.directions * depths_m[:, None]
    low, high = points.new_tensor(grid.minimum), points.new_tensor(grid.maximum)
    inside = ((points >= low) & (points < high)).all(dim=-1)
    share = ((points - low) / (high - low))[:, :2]
    size = points.new_tensor(columns.shape[1:])
    x, y = (share * size).long().clamp(min=0).minimum(size.long() - 1).unbind(-1)
    return inside & columns[rays.scenes, x, y]

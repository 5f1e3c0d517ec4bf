"""One training pass of the tokenizer: sweeps and some of their rays in, named losses out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from copilot4d.rendering import RayBatch
from copilot4d.tokenizer.losses import concentration_loss, depth_loss, occupancy_loss, scene_mean, termination_loss
from copilot4d.tokenizer.renderer import render_samples
from copilot4d.tokenizer.scene import Scene
from copilot4d.tokenizer.skipping import network_position, predicted_mask, true_mask
from copilot4d.tokenizer.tokenizer import Tokenizer
from copilot4d.tokenizer.voxels import PointBatch, Voxels, voxelise


@dataclass(frozen=True, kw_only=True)
class TokenizerBatch:
    """Sweeps to reconstruct, and the rays (R,) on which the depth is supervised."""

    points: PointBatch
    rays: RayBatch
    true_depths_m: Tensor  # (R,)


@dataclass(frozen=True, kw_only=True)
class TrainingPass:
    """Named losses (scalars; "total" is the weighted sum), and what the codebook's care needs."""

    losses: dict[str, Tensor]
    features: Tensor  # (B, H, W, D) encoder outputs, detached
    tokens: Tensor  # (B, H, W)


def training_pass(
    tokenizer: Tokenizer, batch: TokenizerBatch, *, offsets: Tensor | None, noise: torch.Generator | None = None
) -> TrainingPass:
    """offsets: (R,) in [0, 1), the jitter of each ray's samples. noise: of the predicted mask, where it is used."""
    config = tokenizer.config
    voxels = voxelise(batch.points, config.grid)
    features = tokenizer.encoder(voxels)
    quantised = tokenizer.codebook(features)
    scene = tokenizer.decode_codes(quantised.values)
    losses = {"codebook": quantised.codebook_loss, "commitment": quantised.commitment_loss}
    if scene.coarse_logits is not None:
        position = network_position(voxels, config.backbone.patch, config.skipping)
        losses["occupancy"] = occupancy_loss(scene.coarse_logits, position, config.losses.occupied_weight)
    if tokenizer.feature_grid is not None:
        losses |= rendering_losses(tokenizer, scene, voxels, batch, offsets, noise)
    weights = {name: getattr(config.losses, name) for name in losses}
    total = torch.stack([weights[name] * value for name, value in losses.items()]).sum()
    return TrainingPass(losses={"total": total, **losses}, features=features.detach(), tokens=quantised.tokens)


def rendering_losses(
    tokenizer: Tokenizer,
    scene: Scene,
    voxels: Voxels,
    batch: TokenizerBatch,
    offsets: Tensor | None,
    noise: torch.Generator | None,
) -> dict[str, Tensor]:
    """The losses on rays, each a mean over scenes; the arguments are those of `training_pass`."""
    config, rays, true_m = tokenizer.config, batch.rays, batch.true_depths_m
    assert tokenizer.feature_grid is not None
    mask = None
    if scene.coarse_logits is not None:
        mask = true_mask(voxels, config.skipping.pool)
        if config.rendering.training_mask == "union":
            mask |= predicted_mask(scene.coarse_logits.detach(), config.skipping, noise)
    rendered = render_samples(
        tokenizer.feature_grid, scene.features, rays, tokenizer.mask_grid, step_m=config.rendering.step_m,
        max_samples=config.rendering.max_samples, mask=mask, offsets=offsets,
    )  # fmt: skip
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

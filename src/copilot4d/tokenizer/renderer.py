"""Rays through a scene: sample where the mask says, ask the feature grid, composite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from copilot4d.geometry import VoxelGrid
from copilot4d.rendering import (
    Composite,
    RayBatch,
    composite,
    median_depth,
    one_pass,
    pad_samples,
    sample_rays,
    weights_from_logits,
)
from copilot4d.rendering.one_pass import columns_under
from copilot4d.tokenizer.feature_grid import FeatureGrid

DepthKind = Literal["sum", "normalised", "median"]  # in the order of `one_pass`

RAYS_AT_ONCE = 32768  # each part evaluates the columns of the feature grid that it needs anew


@dataclass(frozen=True, kw_only=True)
class RenderedSamples:
    """Rays with the weights and depths (R, N) of their samples; behind a ray's last sample both are 0."""

    weights: Tensor
    logits: Tensor  # of the occupancies; -inf behind the last sample
    depths_m: Tensor
    samples: int

    @property
    def composite(self) -> Composite:
        """Depth and opacity."""
        return composite(self.weights, self.depths_m)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Where rays have samples: each `step_m` in the cells of a mask, or everywhere in the grid without one."""

    grid: VoxelGrid  # of the mask
    mask: Tensor | None  # (B, X, Y, Z) bool
    step_m: float
    max_samples: int  # a ray with more keeps each second, third, ...


def render_samples(
    grid: FeatureGrid, features: Tensor, rays: RayBatch, sampling: Sampling, offsets: Tensor | None = None
) -> RenderedSamples:
    """(B, H, W, C) decoder map -> the samples of all rays. offsets: (R,) of their samples, in steps."""
    samples = sample_rays(
        rays, sampling.grid, step_m=sampling.step_m, max_samples=sampling.max_samples, occupied=sampling.mask,
        offsets=offsets,
    )  # fmt: skip
    points = rays.origins[samples.rays] + rays.directions[samples.rays] * samples.depths_m[:, None]
    with torch.autocast(device_type=features.device.type, enabled=False):
        logits = grid(features.float(), points, rays.scenes[samples.rays])
        padded = pad_samples(logits, samples, -torch.inf)
        weights = weights_from_logits(padded)
    return RenderedSamples(
        weights=weights, logits=padded, depths_m=pad_samples(samples.depths_m, samples, 0.0), samples=len(samples)
    )  # fmt: skip


@torch.no_grad()
def render_rays(
    grid: FeatureGrid, features: Tensor, rays: RayBatch, sampling: Sampling, kind: DepthKind = "sum"
) -> tuple[Composite, int]:
    """Depth and opacity of any number of rays; and how many samples lie on them. In one pass where that is possible:
    in fp32 on the CPU.
    """
    in_one_pass = features.device.type == "cpu" and grid.linear.weight.dtype == torch.float32
    render = render_in_one_pass if in_one_pass else render_in_parts
    return render(grid, features, rays, sampling, kind)


@torch.no_grad()
def render_in_one_pass(
    grid: FeatureGrid, features: Tensor, rays: RayBatch, sampling: Sampling, kind: DepthKind = "sum"
) -> tuple[Composite, int]:
    """`render_rays` on the CPU, scene by scene, without a table of samples."""
    depth, opacity, samples = torch.zeros(len(rays)), torch.zeros(len(rays)), 0
    for scene in range(len(features)):
        its = (rays.scenes == scene).nonzero()[:, 0]
        if not len(its):
            continue
        its_mask = None if sampling.mask is None else sampling.mask[scene]
        used = None if its_mask is None else columns_under(its_mask, sampling.grid, grid.grid)
        with torch.autocast(device_type="cpu", enabled=False):
            hidden = grid.hidden_grid(features[scene : scene + 1].float(), used)
        seen = one_pass.render(
            hidden, rays[its], sampling.grid, step_m=sampling.step_m, max_samples=sampling.max_samples, mask=its_mask,
            kind=get_args(DepthKind).index(kind),
        )  # fmt: skip
        depth[its], opacity[its] = seen.depth_m, seen.opacity
        samples += seen.samples
    return Composite(depth, opacity), samples


@torch.no_grad()
def render_in_parts(
    grid: FeatureGrid, features: Tensor, rays: RayBatch, sampling: Sampling, kind: DepthKind = "sum"
) -> tuple[Composite, int]:
    """`render_rays` in plain PyTorch on any device, some rays at a time."""
    depth, opacity, samples = [], [], 0
    for start in range(0, len(rays), RAYS_AT_ONCE):
        part = rays[start : start + RAYS_AT_ONCE]
        rendered = render_samples(grid, features, part, sampling)
        seen = rendered.composite
        if kind == "median":
            depth.append(median_depth(rendered.weights, rendered.depths_m, sampling.step_m))
        elif kind == "normalised":
            depth.append(seen.depth_m / seen.opacity.clamp(min=torch.finfo(seen.opacity.dtype).eps))
        else:
            depth.append(seen.depth_m)
        opacity.append(seen.opacity)
        samples += rendered.samples
    if not depth:
        nothing = rays.origins.new_zeros(0)
        return Composite(nothing, nothing), 0
    return Composite(torch.cat(depth), torch.cat(opacity)), samples

"""Training 4D-Occ: clips of any drives at the protocol's rates, some rays of each future frame, L1 of their depths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from copilot4d.baselines.occupancy_4d import (
    Occupancy4d,
    Occupancy4dConfig,
    OccupancyNetwork,
    PastVoxels,
    PublishedOccupancy4dConfig,
    past_voxels,
)
from copilot4d.config import default_values, to_mapping
from copilot4d.counter import SampleKey, StepCounter
from copilot4d.errors import UsageError
from copilot4d.geometry import Clip, Drive, Rays, intersect_box
from copilot4d.geometry.se3 import FloatArray
from copilot4d.rendering import RayBatch
from copilot4d.tokens.augmentation import AugmentationConfig
from copilot4d.training.occupancy_scores import forecast_picture, score_forecasts
from copilot4d.training.tasks.clips import ClipTask, Setting, check_settings

MIN_RANGE_M = 0.01


@dataclass(frozen=True, kw_only=True)
class OccupancyTraining:
    """What a 4D-Occ network is trained on, beside the drives."""

    model: Occupancy4dConfig | PublishedOccupancy4dConfig = field(default_factory=Occupancy4dConfig)
    settings: tuple[Setting, ...] = ("1s", "3s")  # whose frame rates it learns
    rays_per_frame: int = 1024  # supervised at each visit, of each future frame
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)

    def __post_init__(self) -> None:
        if self.rays_per_frame < 1:
            raise UsageError(f"`rays_per_frame` must be at least 1, got {self.rays_per_frame}")
        check_settings(self.settings)


@dataclass(frozen=True, kw_only=True)
class FutureRays:
    """R rays of several clips in their reference frames, each with its future step and the depth to be rendered."""

    rays: RayBatch  # `scenes` are the clips
    steps: Tensor  # (R,) int64
    depths_m: Tensor  # (R,) the return, or the exit of the region where it lies behind
    ends_inside: Tensor  # (R,) bool: the return lies in the region


@dataclass(frozen=True, kw_only=True)
class OccupancyBatch:
    """Clips: their pasts, and rays into their futures."""

    past: PastVoxels
    future: FutureRays


class OccupancyTask(ClipTask):
    """Every reference frame of `drives` that has a future is a sample, once per setting.

    `held_out`: a few complete clips of these drives, evenly spread, choose the best checkpoint.
    """

    name = "occupancy_4d"

    def __init__(
        self,
        config: OccupancyTraining,
        drives: Sequence[Drive],
        held_out: Sequence[Drive] = (),
        *,
        held_out_clips: int = 16,
    ) -> None:
        self.training = config
        frames = (config.model.past_frames, config.model.future_frames)
        super().__init__("4D-Occ", config.settings, frames, drives, held_out, held_out_clips=held_out_clips)

    def build_model(self) -> nn.Module:
        """A fresh network."""
        assert isinstance(self.training.model, Occupancy4dConfig)
        return Occupancy4d(self.training.model)

    def sample(self, key: SampleKey) -> OccupancyBatch:
        """A clip, augmented, as a batch of one: its past as voxels, and some rays of its future frames."""
        drive, window = self._item(key)
        clip = self._clip(drive, window)
        clip = self.training.augmentation.draw(key.generator("augmentation")).clip(clip)
        return OccupancyBatch(
            past=past_voxels(clip.past, self.training.model),
            future=future_rays(
                clip, self.training.model.grid.box, self.training.rays_per_frame, key.generator("rays")
            ),
        )  # fmt: skip

    def collate(self, samples: Sequence[OccupancyBatch]) -> OccupancyBatch:
        """All voxels and rays in one batch, each ray with its clip."""
        futures = [s.future for s in samples]
        counts = torch.tensor([len(f.rays) for f in futures])
        return OccupancyBatch(
            past=PastVoxels.joined([s.past for s in samples], self.training.model),
            future=FutureRays(
                rays=RayBatch(
                    origins=torch.cat([f.rays.origins for f in futures]),
                    directions=torch.cat([f.rays.directions for f in futures]),
                    scenes=torch.repeat_interleave(torch.arange(len(futures)), counts),
                ),
                steps=torch.cat([f.steps for f in futures]),
                depths_m=torch.cat([f.depths_m for f in futures]),
                ends_inside=torch.cat([f.ends_inside for f in futures]),
            ),
        )

    def loss(self, model: nn.Module, batch: Any, counter: StepCounter) -> Mapping[str, Tensor]:
        """Mean over clips of each clip's mean |expected depth - true depth|."""
        assert isinstance(model, OccupancyNetwork)
        future, clips = batch.future, len(batch.past)
        seen = model.render(model(batch.past), future.rays, future.steps)
        error = (seen.expected_m - future.depths_m).abs()
        with torch.no_grad():
            inside = future.ends_inside
            surface = clip_mean(error[inside], future.rays.scenes[inside], clips)
            opacity = clip_mean(seen.opacity[inside], future.rays.scenes[inside], clips)
        return {"total": clip_mean(error, future.rays.scenes, clips), "surface": surface, "opacity": opacity}

    def scores(self, model: nn.Module, clips: Sequence[tuple[str, Clip]]) -> Mapping[str, float]:
        """By the protocol, inside the network's region."""
        assert isinstance(model, OccupancyNetwork)
        return score_forecasts(model, clips)

    def picture(self, model: nn.Module, clip: Clip, title: str) -> NDArray[np.uint8]:
        """Truth above forecast."""
        assert isinstance(model, OccupancyNetwork)
        return forecast_picture(model, clip, title=title)

    def config(self) -> Mapping[str, Any]:
        """The network, the settings, the rays, the augmentation."""
        return to_mapping(self.training)

    def default_config(self) -> Mapping[str, Any]:
        """Of the same."""
        return default_values(self.training)

    def conventions(self) -> Mapping[str, Any]:
        """What the densities mean."""
        return {
            "frame": "the newest past sweep's lidar frame",
            "density": "softplus(logit) per cell size along x",
            "grid": to_mapping(self.training.model.grid),
        }

    def shard_units(self, model: nn.Module) -> Sequence[nn.Module]:
        """The blocks."""
        assert isinstance(model, OccupancyNetwork)
        return list(model.blocks())

    def compile_targets(self, model: nn.Module) -> Sequence[nn.Module]:
        """The blocks: the number of voxels and rays changes from batch to batch."""
        return self.shard_units(model)


def future_rays(clip: Clip, box: FloatArray, per_frame: int, generator: np.random.Generator) -> FutureRays:
    """Up to `per_frame` rays of each future frame, in the reference frame.

    A ray that is stopped before it enters the region tells nothing about it and is never chosen. One that leaves the
    region says that its way through it was free: its depth is the exit's.
    """
    origins, directions, steps, depths, inside = [], [], [], [], []
    for step, sweep in enumerate(clip.future):
        reference_from_future, order = clip.reference_from(sweep), generator.permutation(len(sweep))
        for candidates in (order[: 2 * per_frame], order):  # nearly always the first are enough
            rays, depth = sweep.select(candidates).rays()
            rays = Rays(rays.origins.astype(np.float64), rays.directions.astype(np.float64))
            rays = rays.transformed(reference_from_future)
            segment = intersect_box(rays, box)
            with np.errstate(invalid="ignore"):
                usable = np.isfinite(depth) & (depth > MIN_RANGE_M) & segment.hits & (segment.entry < depth)
            chosen = np.flatnonzero(usable)[:per_frame]
            if len(chosen) == per_frame:
                break
        # Side by side in the batch as in space: neighbours read the same voxels, and find them in the cache.
        chosen = chosen[np.argsort(np.arctan2(rays.directions[chosen, 1], rays.directions[chosen, 0]), kind="stable")]
        origins.append(rays.origins[chosen])
        directions.append(rays.directions[chosen])
        steps.append(np.full(len(chosen), step, dtype=np.int64))
        depths.append(np.minimum(depth[chosen], segment.exit[chosen]))
        inside.append(depth[chosen] < segment.exit[chosen])

    return FutureRays(
        rays=RayBatch(
            origins=_floats(np.concatenate(origins)),
            directions=_floats(np.concatenate(directions)),
            scenes=torch.zeros(sum(map(len, steps)), dtype=torch.int64),
        ),
        steps=torch.from_numpy(np.concatenate(steps)),
        depths_m=_floats(np.concatenate(depths)),
        ends_inside=torch.from_numpy(np.concatenate(inside)),
    )


def clip_mean(values: Tensor, clips: Tensor, count: int) -> Tensor:
    """(R,) one value per ray -> the mean over clips of each clip's mean; a clip without rays counts as 0."""
    sums = values.new_zeros(count).index_add(0, clips, values)
    return (sums / torch.bincount(clips, minlength=count).clamp(min=1)).mean()


def _floats(values: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float32))

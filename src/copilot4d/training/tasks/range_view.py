"""Training ST3DCNN, SPFNet and S2Net: clips as range images, L1 of the ranges and cross-entropy of the masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from copilot4d.baselines.range_view import (
    RANGE_VIEW,
    RangeViewConfig,
    RangeViewForecaster,
    RangeViewNetwork,
    past_images,
    sweep_images,
)
from copilot4d.baselines.range_view.losses import chamfer_loss, mask_loss, range_loss
from copilot4d.config import default_values, to_mapping
from copilot4d.counter import SampleKey, StepCounter
from copilot4d.errors import ForecastError, UsageError
from copilot4d.evaluation.protocol import Protocol
from copilot4d.geometry import Clip, Drive
from copilot4d.training.forecast_scores import clip_picture, score_clips
from copilot4d.training.tasks.clips import ClipTask, Setting, check_settings

PICTURE_HALF_M, PICTURE_HEIGHTS_M = 40.0, (-2.5, 2.5)


@dataclass(frozen=True, kw_only=True)
class RangeViewTraining:
    """What a network of range images is trained on, beside the drives."""

    model: RangeViewConfig
    settings: tuple[Setting, ...] = ("1s", "3s")  # whose frame rates it learns; it is not told which
    turns: bool = True  # all images of a clip turned by the same number of columns
    mirror_probability: float = 0.5
    mask_weight: float = 1.0
    chamfer_weight: float = 0.0  # published: ST3DCNN ends with some epochs of weight 1
    chamfer_from_step: int = 0  # before it the Chamfer loss has no weight
    kl_weight: float = 1e-3  # per nat and frame, of networks with a latent

    def __post_init__(self) -> None:
        check_settings(self.settings)
        if not 0 <= self.mirror_probability <= 1:
            raise UsageError(f"`mirror_probability` must lie in [0, 1], got {self.mirror_probability}")
        for name in ("mask_weight", "chamfer_weight", "kl_weight", "chamfer_from_step"):
            if not 0 <= getattr(self, name) < np.inf:
                raise UsageError(f"`{name}` must be at least 0, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class RangeBatch:
    """B clips as range images, in metres; 0 is an empty cell."""

    past: Tensor  # (B, P, H, W)
    future: Tensor  # (B, F, H, W)


class RangeViewTask(ClipTask):
    """Every reference frame of `drives` with a whole future is a sample, once per setting."""

    def __init__(
        self,
        config: RangeViewTraining,
        drives: Sequence[Drive],
        held_out: Sequence[Drive] = (),
        *,
        held_out_clips: int = 16,
    ) -> None:
        self.training, self.name = config, config.model.network
        frames = (config.model.past_frames, config.model.future_frames)
        super().__init__(
            self.name, config.settings, frames, drives, held_out, held_out_clips=held_out_clips, least_future=frames[1]
        )

    def build_model(self) -> nn.Module:
        """A fresh network."""
        return RANGE_VIEW[self.name].network(self.training.model)

    def sample(self, key: SampleKey) -> RangeBatch:
        """A clip as a batch of one, turned and mirrored."""
        config, clip = self.training.model, self._clip(*self._item(key))
        for sweep in (*clip.past, *clip.future):
            config.geometry.check(sweep)
        past = past_images(clip.past, config)
        future = torch.stack(sweep_images(clip.future, clip.reference, config))
        generator = key.generator("augmentation")
        columns = int(generator.integers(config.geometry.columns)) if self.training.turns else 0
        mirrored = bool(generator.random() < self.training.mirror_probability)
        past, future = (x.roll(columns, dims=-1) for x in (past, future))
        if mirrored:
            past, future = past.flip(-1), future.flip(-1)
        return RangeBatch(past=past[None], future=future[None])

    def collate(self, samples: Sequence[RangeBatch]) -> RangeBatch:
        """All in one."""
        return RangeBatch(past=torch.cat([s.past for s in samples]), future=torch.cat([s.future for s in samples]))

    def loss(self, model: nn.Module, batch: Any, counter: StepCounter) -> Mapping[str, Tensor]:
        """The sum of the weighted losses, and each of them."""
        assert isinstance(model, RangeViewNetwork)
        training, noise = self.training, None
        if model.latent_shape is not None:
            draws = [torch.randn(model.latent_shape, generator=g) for g in counter.sample_torch("latent")]
            noise = torch.stack(draws).to(batch.past.device)
        predicted = model(batch.past, future=batch.future, noise=noise)
        losses = {"range": range_loss(predicted, batch.future), "mask": mask_loss(predicted, batch.future)}
        total = losses["range"] + training.mask_weight * losses["mask"]
        if predicted.kl is not None:
            losses["kl"] = predicted.kl.mean()
            total = total + training.kl_weight * losses["kl"]
        if training.chamfer_weight and counter.step >= training.chamfer_from_step:
            directions = torch.from_numpy(training.model.geometry.directions()).to(batch.past.device)
            losses["chamfer"] = chamfer_loss(predicted, batch.future, directions, training.model.mask_threshold)
            total = total + training.chamfer_weight * losses["chamfer"]
        return {"total": total, **losses}

    def scores(self, model: nn.Module, clips: Sequence[tuple[str, Clip]]) -> Mapping[str, float]:
        """By the protocol. A network that says that nothing comes back, as at the very start, has no score."""
        assert isinstance(model, RangeViewNetwork)
        try:
            return score_clips(RangeViewForecaster(model), Protocol(), clips)
        except ForecastError:
            return {"chamfer_roi": float("nan"), "frames_not_scored": float(sum(len(c.future) for _, c in clips))}

    def picture(self, model: nn.Module, clip: Clip, title: str) -> NDArray[np.uint8]:
        """Truth above forecast."""
        assert isinstance(model, RangeViewNetwork)
        return clip_picture(
            RangeViewForecaster(model), clip, half_m=PICTURE_HALF_M, heights_m=PICTURE_HEIGHTS_M, on_rays=False,
            title=title,
        )  # fmt: skip

    def config(self) -> Mapping[str, Any]:
        """The network, the settings, the weights of the losses, the augmentation."""
        return to_mapping(self.training)

    def default_config(self) -> Mapping[str, Any]:
        """Of the same."""
        return default_values(self.training)

    def conventions(self) -> Mapping[str, Any]:
        """What the images mean."""
        model = self.training.model
        return {"frame": model.frame, "geometry": to_mapping(model.geometry)}

    def shard_units(self, model: nn.Module) -> Sequence[nn.Module]:
        """The blocks."""
        assert isinstance(model, RangeViewNetwork)
        return list(model.blocks())

    def compile_targets(self, model: nn.Module) -> Sequence[nn.Module]:
        """The blocks."""
        return self.shard_units(model)

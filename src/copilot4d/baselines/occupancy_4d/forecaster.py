"""A trained 4D-Occ network behind the `Forecaster` protocol."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from copilot4d.baselines.deterministic import same_futures
from copilot4d.baselines.occupancy_4d.config import DepthKind
from copilot4d.baselines.occupancy_4d.model import Occupancy4d
from copilot4d.baselines.occupancy_4d.past import past_voxels
from copilot4d.errors import ForecastError
from copilot4d.forecaster import Forecast, check_forecast_input, future_timestamps
from copilot4d.geometry import Rays, Sweep, se3
from copilot4d.geometry.beam_pattern import estimate_beam_pattern
from copilot4d.geometry.se3 import FloatArray
from copilot4d.rendering import SOME_OPACITY, RayBatch, answered_depths
from copilot4d.rendering.voxel_depth import VoxelDepths


class Occupancy4dForecaster:
    """Renders each future step's occupancy along given rays, or along the beams that the past sweeps show.

    A given ray that nothing stops is answered just behind the exit of the region; a beam without return is dropped.
    `guidance`, `steps` and `seed` change nothing: there is nothing to sample.
    """

    def __init__(self, model: Occupancy4d, *, name: str = "occupancy_4d") -> None:
        self.model = model.eval()
        self.name = name

    def to(self, device: torch.device | str) -> Occupancy4dForecaster:
        """Move the network; returns this forecaster."""
        self.model.to(device)
        return self

    @torch.no_grad()
    def forecast(
        self,
        past: Sequence[Sweep],
        future_poses: FloatArray,
        rays: Sequence[Rays] | None = None,
        *,
        guidance: float = 1.0,
        steps: int = 10,
        seed: int = 0,
        futures: int = 1,
    ) -> Forecast:
        """See `Forecaster.forecast`."""
        check_forecast_input(past, future_poses, rays, futures=futures)
        most = self.model.config.future_frames
        if len(future_poses) > most:
            raise ForecastError(
                f"this network forecasts {most} frames, but {len(future_poses)} were asked for; ask for fewer, or "
                f"train one with `future_frames: {len(future_poses)}`"
            )
        world_from_future = np.asarray(future_poses, dtype=np.float64)
        pattern = None if rays is not None else estimate_beam_pattern(past)
        asked = rays if pattern is None else [pattern.rays()] * len(world_from_future)
        assert asked is not None
        answers = self._answers(past, world_from_future, asked)
        sweeps = []
        for (depth_m, returned), its_rays, pose, stamp in zip(
            answers, asked, world_from_future, future_timestamps(past, len(world_from_future)), strict=True
        ):
            kept = np.ones(len(its_rays), dtype=np.bool_)
            if pattern is not None:
                kept = returned & (depth_m <= pattern.max_range_m)
            sweeps.append(_sweep_on(its_rays[kept], depth_m[kept], pose, stamp))
        return same_futures(sweeps, None if rays is None else [depth for depth, _ in answers], futures)

    def _answers(
        self, past: Sequence[Sweep], world_from_future: FloatArray, rays: Sequence[Rays]
    ) -> list[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        """Per future frame (R,) depths along its rays, and whether each ray has a return."""
        model, config = self.model, self.model.config
        world_from_reference = np.asarray(past[-1].world_from_lidar, dtype=np.float64)
        logits = model(past_voxels(past, config).to(model.device))
        answers = []
        for step, (pose, its_rays) in enumerate(zip(world_from_future, rays, strict=True)):
            seen_from = its_rays.transformed(se3.relative_motion(world_from_reference, pose))
            batch = RayBatch.of([seen_from], model.device)
            seen = model.render(logits, batch, torch.full_like(batch.scenes, step))
            entry, leave = batch.span(config.grid)
            exit_m = torch.where(leave > entry, leave, 0.0)  # a ray that misses the region starts outside it
            depth = _depth_of(seen, exit_m, config.depth)
            inside = depth <= exit_m
            returned = inside & (seen.opacity >= config.min_opacity)
            depth = answered_depths(depth, inside & (seen.opacity >= SOME_OPACITY), exit_m)
            answers.append((depth.cpu().numpy(), returned.cpu().numpy()))
        return answers


def _depth_of(seen: VoxelDepths, exit_m: Tensor, kind: DepthKind) -> Tensor:
    if kind == "median":
        return seen.median_m
    if kind == "expected":
        return seen.expected_m
    stopped = seen.opacity.clamp(min=SOME_OPACITY)
    return (seen.expected_m - (1 - seen.opacity) * exit_m) / stopped


def _sweep_on(rays: Rays, depths_m: FloatArray, world_from_lidar: FloatArray, timestamp_ns: int) -> Sweep:
    return Sweep(
        points=rays.points_at(depths_m).astype(np.float32),
        world_from_lidar=world_from_lidar,
        timestamp_ns=timestamp_ns,
        origins=rays.origins.astype(np.float32) if rays.origins.any() else None,
    )

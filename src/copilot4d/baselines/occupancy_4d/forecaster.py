"""A trained 4D-Occ network behind the `Forecaster` protocol."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from copilot4d.baselines.deterministic import same_futures
from copilot4d.baselines.occupancy_4d.config import DepthKind
from copilot4d.baselines.occupancy_4d.future_occupancy import FutureOccupancy, OccupancyReading
from copilot4d.baselines.occupancy_4d.network import OccupancyNetwork
from copilot4d.errors import ForecastError
from copilot4d.forecaster import Forecast, PlainForecaster, check_forecast_input, future_timestamps
from copilot4d.geometry import Rays, Sweep, sweep_on
from copilot4d.geometry.beam_pattern import estimate_beam_pattern
from copilot4d.geometry.se3 import FloatArray


class Occupancy4dForecaster(PlainForecaster):
    """Renders each future step's occupancy along given rays, or along the beams that the past sweeps show.

    A given ray that nothing stops is answered just behind the exit of the region; a beam without return is dropped.
    `guidance`, `steps` and `seed` change nothing: there is nothing to sample. depth: what to answer, where it should
    not be what the network's configuration says; then part of the name.
    """

    def __init__(self, model: OccupancyNetwork, *, name: str = "occupancy_4d", depth: DepthKind | None = None) -> None:
        self.model = model.eval()
        self.depth = depth or model.config.depth
        self.name = name if depth is None else f"{name}_{depth}"

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
        guidance: float | None = None,
        steps: int | None = None,
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
            sweeps.append(sweep_on(its_rays[kept], depth_m[kept], pose, stamp))
        return same_futures(sweeps, None if rays is None else [depth for depth, _ in answers], futures)

    def _answers(
        self, past: Sequence[Sweep], world_from_future: FloatArray, rays: Sequence[Rays]
    ) -> list[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        """Per future frame (R,) depths along its rays, and whether each ray has a return."""
        config = self.model.config
        future_occupancy = FutureOccupancy.of(self.model, past)
        answers = []
        for step, (pose, its_rays) in enumerate(zip(world_from_future, rays, strict=True)):
            found = future_occupancy.along(its_rays, pose, step)
            depth = _depth_of(found, self.depth)
            returned = (depth <= found.exit_m) & (found.rendered.opacity >= config.min_opacity)
            answers.append((found.answered(depth).cpu().numpy(), returned.cpu().numpy()))
        return answers


def _depth_of(found: OccupancyReading, kind: DepthKind) -> Tensor:
    if kind == "median":
        return found.rendered.median_m
    return found.rendered.expected_m if kind == "expected" else found.mean_m

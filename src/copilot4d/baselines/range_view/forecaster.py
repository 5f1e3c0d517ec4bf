"""A trained network of range images behind the `Forecaster` protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from copilot4d.baselines.angular import nearest_in_angle
from copilot4d.baselines.range_view.config import RangeViewConfig, RangeViewNetwork, images
from copilot4d.errors import ForecastError
from copilot4d.forecaster import Forecast, PlainForecaster, check_forecast_input, future_timestamps
from copilot4d.geometry import Rays, Sweep, se3
from copilot4d.geometry.se3 import FloatArray


class RangeViewForecaster(PlainForecaster):
    """Predicts range images, and gives their cells as points: free clouds.

    Given rays are answered by the point nearest in angle, as for `copy_last`. A network in its sweeps' own frames, as
    published, does not look at poses; one in the reference frame has the past carried there by the past poses, and its
    forecast carried on by the future ones. `seed` decides what a network with a latent draws; `guidance` and `steps`
    change nothing.
    """

    def __init__(self, model: RangeViewNetwork) -> None:
        self.model = model.eval()
        self.name = model.config.name
        self.fingerprint = _fingerprint(model)

    @property
    def settings(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The frame that it works in."""
        return {"frame": self.model.config.frame}

    def to(self, device: torch.device | str) -> RangeViewForecaster:
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
        config = self.model.config
        if len(future_poses) > config.future_frames:
            raise ForecastError(
                f"this network forecasts {config.future_frames} frames, but {len(future_poses)} were asked for; ask "
                f"for fewer, or train one with `future_frames: {len(future_poses)}`"
            )
        for sweep in past:
            config.geometry.check(sweep)
        given = past_images(past, config)[None].to(self.model.device)
        drawn = [self._future(given, past, future_poses, rays, seed, number) for number in range(futures)]
        return replace(drawn[0], alternatives=tuple(drawn[1:]))

    def _future(
        self, given: Tensor, past: Sequence[Sweep], future_poses: FloatArray, rays: Sequence[Rays] | None, seed: int,
        number: int,
    ) -> Forecast:  # fmt: skip
        config, noise = self.model.config, None
        if self.model.latent_shape is not None:
            generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, number]).generate_state(1)[0]))
            noise = torch.randn(1, *self.model.latent_shape, generator=generator).to(given.device)
        ranges = self.model(given, noise=noise).masked(config.mask_threshold)[0].cpu().numpy()
        sweeps, depths = [], []
        stamps = future_timestamps(past, len(future_poses))
        for i, (image, pose, stamp) in enumerate(zip(ranges, future_poses, stamps, strict=False)):
            pose = np.asarray(pose, dtype=np.float64)
            points: NDArray[np.float32] = config.geometry.unproject(image)
            if config.frame == "reference":
                points = se3.transform_points(se3.relative_motion(pose, past[-1].world_from_lidar), points)
            sweeps.append(Sweep(points=points, world_from_lidar=pose, timestamp_ns=stamp))
            if rays is not None and len(rays[i]) and not len(points):
                raise ForecastError(
                    f"{self.name} predicts no return at all in future frame {i}, so it has no range for the rays: its "
                    "mask lies below `mask_threshold` everywhere. Train it for longer"
                )
            if rays is not None:
                depths.append(nearest_in_angle(points, rays[i]).ranges_m[:, 0])
        return Forecast(sweeps=tuple(sweeps), depths=None if rays is None else tuple(depths))


def past_images(past: Sequence[Sweep], config: RangeViewConfig) -> Tensor:
    """(P, H, W): the newest sweeps as range images; frames that are missing at the start are empty."""
    seen = list(past)[-config.past_frames :]
    return images(sweep_images(seen, seen[-1], config), config.past_frames)


def sweep_images(sweeps: Sequence[Sweep], reference: Sweep, config: RangeViewConfig) -> list[Tensor]:
    """(H, W) each: sweeps in their own frames, or all in the reference's, as the configuration says."""
    found = []
    for sweep in sweeps:
        points = sweep.points
        if config.frame == "reference" and sweep is not reference:
            motion = se3.relative_motion(reference.world_from_lidar, sweep.world_from_lidar)
            points = se3.transform_points(motion, points)
        found.append(torch.from_numpy(config.geometry.project(points)))
    return found


def _fingerprint(model: RangeViewNetwork) -> str:
    digest = hashlib.sha256(repr(model.config).encode())
    for value in model.state_dict().values():
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]

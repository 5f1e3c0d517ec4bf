"""`Copilot4D`: the model with all its parts, behind the same door as every baseline.

past sweeps -> tokens -> sampled future tokens -> scenes -> depths along rays -> future sweeps
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from copilot4d.baselines.occupancy_4d import Occupancy4d
from copilot4d.checkpoints.parts import check_fit
from copilot4d.config import to_mapping
from copilot4d.depth_selection import DepthSelector
from copilot4d.forecaster import Forecast, Sampling, check_forecast_input, warn_of_empty_frames, warn_of_interval
from copilot4d.forecasting.session import ForecastSession
from copilot4d.geometry import BeamPattern, Rays, Sweep
from copilot4d.geometry.se3 import FloatArray
from copilot4d.tokenizer import Tokenizer
from copilot4d.world_model import SamplerConfig, WorldModel


@dataclass(frozen=True, eq=False)
class Copilot4D:
    """Forecasts with a tokenizer and a world model that was trained on its tokens.

    sampler: how it samples; `guidance` and `steps` of a call take the place of the sampler's own. Several futures are
    sampled in one batch.
    """

    tokenizer: Tokenizer
    world_model: WorldModel
    _: KW_ONLY
    depth_selector: DepthSelector | None = None  # chooses between rendered and measured depths; None: rendered alone
    occupancy: Occupancy4d | None = None  # gives depths to choose from, too; a selector trained with one needs it
    name: str = "copilot4d"
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    pattern: BeamPattern | None = None  # of the sensor, where no rays are given; None: estimated from each past
    trained_on: tuple[str, ...] = ()  # the data, in words, where it is known; for `limits`
    intervals_s: tuple[float, ...] = ()  # seconds between the frames that it was trained on; empty: not known
    _warned: set[str] = field(default_factory=set, repr=False)  # what was said once; shared by variants of a model

    def __post_init__(self) -> None:
        check_fit(self.tokenizer, self.world_model, self.depth_selector, self.occupancy)
        for network in self._networks:
            network.eval()

    @torch.no_grad()
    def forecast(
        self, past: Sequence[Sweep], future_poses: FloatArray, rays: Sequence[Rays] | None = None, *,
        guidance: float | None = None, steps: int | None = None, seed: int = 0, futures: int = 1,
    ) -> Forecast:  # fmt: skip
        """See `Forecaster.forecast`. On given rays every ray has a depth: the selected one, and just behind the
        region's exit where nothing stops the ray. Without rays, the sensor's beams that come back are the points.
        """
        check_forecast_input(past, future_poses, rays, futures=futures)
        session = self.imagine(past, guidance=guidance, steps=steps, seed=seed, futures=futures)
        given = [None] * len(future_poses) if rays is None else rays
        frames = [session.step(pose, its_rays) for pose, its_rays in zip(future_poses, given, strict=True)]
        made = []
        for future in zip(*frames, strict=True):
            depths = tuple(frame.depths for frame in future if frame.depths is not None)
            made.append(
                Forecast(sweeps=tuple(frame.sweep for frame in future), depths=None if rays is None else depths)
            )
        warn_of_empty_frames(self.name, made, past[-1], region_half_m=self.region_half_m)
        return replace(made[0], alternatives=tuple(made[1:]))

    @torch.no_grad()
    def imagine(
        self, past: Sequence[Sweep], *, guidance: float | None = None, steps: int | None = None, seed: int = 0,
        futures: int = 1,
    ) -> ForecastSession:  # fmt: skip
        """See `Imaginative.imagine`: frames one at a time, with their tokens and opacities."""
        if "interval" not in self._warned and warn_of_interval(
            self.name, past[-self.world_model.config.past_frames :], self.intervals_s
        ):
            self._warned.add("interval")
        # A window that slid looks like a training clip again: as much past, and room for as many frames.
        keep_frames = self.world_model.config.past_frames
        used = self.sampling.changed(guidance=guidance, steps=steps)
        return ForecastSession(
            past, tokenizer=self.tokenizer, world_model=self.world_model, depth_selector=self.depth_selector,
            occupancy=self.occupancy, pattern=self.pattern, seed=seed, futures=futures,
            sampler=replace(self.sampler, guidance=used.guidance, steps=used.steps, keep_frames=keep_frames),
        )  # fmt: skip

    def to(self, device: str | torch.device) -> Copilot4D:
        """Move all networks to a device, in place."""
        for network in self._networks:
            network.to(device)
        return self

    def with_occupancy(self, network: Occupancy4d) -> Copilot4D:
        """The same model without a selector, with the depths of an occupancy network on every ray."""
        return replace(self, depth_selector=None, occupancy=network)

    def without_selector(self) -> Copilot4D:
        """The same model before depths are selected: what a selector is trained on."""
        return replace(self, depth_selector=None)

    def tokens_only(self) -> Copilot4D:
        """The same model with rays that read the decoded tokens alone, as in the paper."""
        return replace(self, depth_selector=None, occupancy=None)

    def with_sampler(self, **changes: Any) -> Copilot4D:
        """The same model with other sampling, e.g. schedule="few_first", top_k=None."""
        return replace(self, sampler=replace(self.sampler, **changes))

    @property
    def sampling(self) -> Sampling:
        """Guidance and steps where a call leaves them open: those of the sampler."""
        return Sampling(guidance=self.sampler.guidance, steps=self.sampler.steps)

    @property
    def settings(self) -> dict[str, Any]:
        """What decides a forecast beside guidance, steps and seed, for the files that tell how it was made."""
        sampled = {"schedule": self.sampler.schedule, "top_k": self.sampler.top_k, "reverse": self.sampler.reverse}
        selects = {} if self.depth_selector is None else {"depth_selection": True}
        return sampled | selects | ({} if self.occupancy is None else {"occupancy_depths": True})

    @property
    def region_half_m(self) -> float:
        """How far the model reads and predicts, forward, back and to the sides: the nearest edge of its grid."""
        box = self.tokenizer.config.grid.box
        return float(min(np.abs(box[[0, 1, 3, 4]])))

    @property
    def limits(self) -> str:
        """What those who read its forecasts should know, in a sentence or two."""
        is_own = self.world_model.config.token_frame == "own"
        where = "the ego" if is_own else "the ego's starting position"
        has_measured = self.depth_selector is not None
        beyond = "it repeats what the past sweeps saw" if has_measured else "it predicts nothing"
        words = f"{self.name} predicts within {self.region_half_m:g} m of {where}; farther out {beyond}."
        data = ", ".join(one.split(" (")[0] for one in self.trained_on)  # details are on the model cards
        return f"{words} Trained on {data} only." if data else words

    def __repr__(self) -> str:
        rows, columns = self.tokenizer.config.tokens
        depths = "selected depths" if self.depth_selector is not None else "rendered depths"
        return f"Copilot4D({self.name!r}, {rows} x {columns} tokens, within {self.region_half_m:g} m, {depths})"

    @property
    def fingerprint(self) -> str:
        """Tells these weights and settings from all others."""
        return hashlib.sha256(f"{self._weights} {sorted(self.settings.items())}".encode()).hexdigest()

    @property
    def _networks(self) -> tuple[Tokenizer | WorldModel | DepthSelector | Occupancy4d, ...]:
        """Those that it has."""
        parts = (self.tokenizer, self.world_model, self.depth_selector, self.occupancy)
        return tuple(part for part in parts if part is not None)

    @cached_property
    def _weights(self) -> str:
        """Of all parameters and configurations; buffers are derived from them, or only training needs them."""
        digest = hashlib.sha256()
        for model in self._networks:
            digest.update(repr(sorted(to_mapping(model.config).items())).encode())
            for name, parameter in model.named_parameters():
                digest.update(name.encode())
                digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

"""`ModelForecaster`: tokenizer and world model behind the same door as every baseline.

past sweeps -> tokens -> sampled future tokens -> scenes -> depths along rays -> future sweeps
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from copilot4d.baselines.occupancy_4d import Occupancy4d
from copilot4d.config import to_mapping
from copilot4d.copy_path import CopyGate
from copilot4d.errors import UsageError
from copilot4d.forecaster import Forecast, check_forecast_input
from copilot4d.geometry import BeamPattern, Rays, Sweep
from copilot4d.geometry.se3 import FloatArray
from copilot4d.model_imagination import ModelImagination, Models
from copilot4d.tokenizer import Tokenizer
from copilot4d.world_model import SamplerConfig, WorldModel


class ModelForecaster:
    """Forecasts with a tokenizer and a world model that was trained on its tokens.

    pattern: what the sensor fires, for forecasts without given rays; None: estimated from each past.
    sampler: how frames are sampled; `guidance` and `steps` of a call take the place of its own.
    trained_on: the data, in words, where it is known; for `limits`.
    copy_gate: lets rays take what the past measured along them; None: they see the decoded tokens alone.
    second_opinion: a network that the gate hears beside; a gate that was learned with one needs it.
    Several futures are sampled in one batch. `to` moves both models to a device.
    """

    def __init__(
        self, tokenizer: Tokenizer, world_model: WorldModel, *, name: str = "copilot4d",
        sampler: SamplerConfig | None = None, pattern: BeamPattern | None = None, trained_on: Sequence[str] = (),
        copy_gate: CopyGate | None = None, second_opinion: Occupancy4d | None = None,
    ) -> None:  # fmt: skip
        made, read = tokenizer.config, world_model.config
        if (made.vocabulary, made.tokens) != (read.vocabulary, read.tokens):
            raise UsageError(
                f"the tokenizer makes {made.tokens} tokens of {made.vocabulary} codes, but the world model reads "
                f"{read.tokens} of {read.vocabulary}: take the tokenizer that the world model was trained with"
            )
        if made.mode == "voxel_centres":
            raise UsageError("a tokenizer of mode 'voxel_centres' renders no rays, so it cannot forecast sweeps")
        if copy_gate is not None and copy_gate.config.hears_second_opinion != (second_opinion is not None):
            learned = "with" if copy_gate.config.hears_second_opinion else "without"
            raise UsageError(
                f"this copy gate was learned {learned} a second opinion: give it the same, or learn it again"
            )
        self.name = name
        self.tokenizer, self.world_model = tokenizer.eval(), world_model.eval()
        # A window that slid looks like a training clip again: as much past, and room for as many frames.
        self.sampler = replace(sampler or SamplerConfig(), keep_frames=read.past_frames)
        self.pattern = pattern
        self.trained_on = tuple(trained_on)
        self.copy_gate = None if copy_gate is None else copy_gate.eval()
        self.second_opinion = None if second_opinion is None else second_opinion.eval()

    @torch.no_grad()
    def forecast(
        self, past: Sequence[Sweep], future_poses: FloatArray, rays: Sequence[Rays] | None = None, *,
        guidance: float = 1.0, steps: int = 10, seed: int = 0, futures: int = 1,
    ) -> Forecast:  # fmt: skip
        """See `Forecaster.forecast`. On given rays every ray has a depth: what the past measured along it or what is
        imagined, and just behind the region's exit where neither stops it. Without rays, the sensor's beams that came
        back are the points.
        """
        check_forecast_input(past, future_poses, rays, futures=futures)
        world = self.imagine(past, guidance=guidance, steps=steps, seed=seed, futures=futures)
        asked = [None] * len(future_poses) if rays is None else rays
        frames = [world.step(pose, its_rays) for pose, its_rays in zip(future_poses, asked, strict=True)]
        made = []
        for future in zip(*frames, strict=True):
            depths = tuple(frame.depths for frame in future if frame.depths is not None)
            made.append(
                Forecast(sweeps=tuple(frame.sweep for frame in future), depths=None if rays is None else depths)
            )
        return replace(made[0], alternatives=tuple(made[1:]))

    @torch.no_grad()
    def imagine(
        self, past: Sequence[Sweep], *, guidance: float = 1.0, steps: int = 10, seed: int = 0, futures: int = 1
    ) -> ModelImagination:
        """See `Imaginative.imagine`: frames one at a time, with their tokens and opacities."""
        models = Models(
            tokenizer=self.tokenizer, world_model=self.world_model, pattern=self.pattern, copy_gate=self.copy_gate,
            second_opinion=self.second_opinion,
        )  # fmt: skip
        sampler = replace(self.sampler, guidance=guidance, steps=steps)
        return ModelImagination(models, past, sampler=sampler, seed=seed, futures=futures)

    def to(self, device: str | torch.device) -> ModelForecaster:
        """Move all networks to a device, in place."""
        for network in self._networks:
            network.to(device)
        return self

    def with_second_opinion(self, network: Occupancy4d) -> ModelForecaster:
        """The same models before a gate chooses, with another network to ask about every ray."""
        return self._with(copy_gate=None, second_opinion=network)

    def without_gate(self) -> ModelForecaster:
        """The same models before a gate chooses: what a gate learns from."""
        return self._with(copy_gate=None)

    def without_copying(self) -> ModelForecaster:
        """The same models with rays that see the decoded tokens alone, as in the paper."""
        return self._with(copy_gate=None, second_opinion=None)

    def with_sampler(self, **changes: Any) -> ModelForecaster:
        """The same models with other sampling, e.g. schedule="maskgit", top_k=None."""
        return self._with(sampler=replace(self.sampler, **changes))

    def _with(self, **changes: Any) -> ModelForecaster:
        kept: dict[str, Any] = {
            "name": self.name, "sampler": self.sampler, "pattern": self.pattern, "trained_on": self.trained_on,
            "copy_gate": self.copy_gate, "second_opinion": self.second_opinion,
        }  # fmt: skip
        return ModelForecaster(self.tokenizer, self.world_model, **kept | changes)

    @property
    def settings(self) -> dict[str, Any]:
        """What decides a forecast beside guidance, steps and seed, for the files that tell how it was made."""
        sampled = {name: getattr(self.sampler, name) for name in ("schedule", "top_k", "reverse")}
        copies = {} if self.copy_gate is None else {"copy_path": True}
        return sampled | copies | ({} if self.second_opinion is None else {"second_opinion": True})

    @property
    def region_half_m(self) -> float:
        """How far the model sees and predicts, forward, back and to the sides: the nearest edge of its grid."""
        box = self.tokenizer.config.grid.box
        return float(min(np.abs(box[[0, 1, 3, 4]])))

    @property
    def limits(self) -> str:
        """What those who read its forecasts should know, in a sentence or two."""
        x, y, _ = (high - low for low, high in self.tokenizer.config.grid.box.reshape(2, 3).T)
        is_own = self.world_model.config.token_frame == "own"
        where = "the ego, wherever it goes," if is_own else "the place where the ego is when the forecast begins"
        beyond = "predicts no points beyond" if self.copy_gate is None else "shows beyond what the past sweeps measured"
        words = f"{self.name} knows {x:.0f} m x {y:.0f} m around {where} and {beyond}."
        return f"{words} Trained on: {', '.join(self.trained_on)}." if self.trained_on else words

    @property
    def fingerprint(self) -> str:
        """Tells these weights and settings from all others."""
        return hashlib.sha256(f"{self._weights} {sorted(self.settings.items())}".encode()).hexdigest()

    @property
    def _networks(self) -> tuple[Tokenizer | WorldModel | CopyGate | Occupancy4d, ...]:
        """Those that it has."""
        parts = (self.tokenizer, self.world_model, self.copy_gate, self.second_opinion)
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

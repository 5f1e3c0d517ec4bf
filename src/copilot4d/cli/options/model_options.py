"""The options of every verb that forecasts: which model, where it runs, how it samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.checks import check_folders
from copilot4d.errors import UsageError

FAST_STEPS = 4


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, and how it samples. Baselines draw nothing at random: for them all but the model means nothing."""

    model: str = "mini"
    """mini, a baseline's name (copy_last, ray_tracing), a model's folder, a run, or hf:user/name from the hub."""
    tokenizer: Path | None = None
    """The tokenizer's run or folder, for the run of a world model that does not name its own."""
    guidance: float = 1.0
    """Strength of classifier-free guidance; 0 turns it off."""
    sampling_steps: int = 10
    """Steps of the sampler per frame."""
    seed: int = 0
    """The random seed."""
    schedule: Literal["paper", "few_first"] | None = None
    """How many tokens each step decides: paper (many early) or few_first (MaskGIT's). By default the model's own."""
    top_k: int | None = None
    """Sample from the k most likely tokens (0: all). By default the model's own."""
    depth_selection: bool = True
    """Choose each ray's depth, rendered or measured, where the model has a depth selector; else rendered alone."""
    depth: Literal["expected", "normalised", "median"] | None = None
    """What a 4D-Occ answers: a ray's expected depth, as published, or the mean or median of where it is stopped."""
    fast: bool = False
    """Quicker and less exact: 4 sampling steps and no guidance, unless --sampling-steps or --guidance say otherwise."""
    device: str = "auto"
    """cpu, cuda, cuda:1."""

    @property
    def steps_used(self) -> int:
        """Sampling steps, with --fast taken into account."""
        return FAST_STEPS if self.fast and self.sampling_steps == ModelOptions.sampling_steps else self.sampling_steps

    @property
    def guidance_used(self) -> float:
        """Guidance, with --fast taken into account."""
        return 0.0 if self.fast and self.guidance == ModelOptions.guidance else self.guidance

    def check(self) -> None:
        """What can be told before torch is loaded."""
        if self.sampling_steps < 1:
            raise UsageError(f"--sampling-steps must be at least 1, got {self.sampling_steps}")
        if not math.isfinite(self.guidance):
            raise UsageError(f"--guidance must be a finite number, got {self.guidance}")
        if self.top_k is not None and self.top_k < 0:
            raise UsageError(f"--top-k must be at least 0, got {self.top_k}")
        check_folders(tokenizer=self.tokenizer)

"""The options of every verb that forecasts: which model, where it runs, how it samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.checks import check_folders, check_sampling

FAST_STEPS = 4


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, and how it samples. Baselines draw nothing at random: for them all but the model means nothing."""

    model: str = "mini"
    """mini, a baseline's name (copy_last, ray_tracing), a model's folder, a run, or hf:user/name from the hub."""
    tokenizer: Path | None = None
    """The tokenizer's run or folder, for the run of a world model that does not name its own."""
    guidance: float | None = None
    """Strength of classifier-free guidance; 0 turns it off. By default as stored with the model."""
    sampling_steps: int | None = None
    """Steps of the sampler per frame. By default as stored with the model."""
    seed: int = 0
    """The random seed."""
    schedule: Literal["paper", "few_first"] | None = None
    """How many tokens each step decides: paper (many early) or few_first (MaskGIT's). By default as stored with
    the model."""
    top_k: int | None = None
    """Sample from the k most likely tokens (0: all). By default as stored with the model."""
    depth_selection: bool = True
    """Choose each ray's depth, rendered or measured, where the model has a depth selector; else rendered alone."""
    depth: Literal["expected", "normalised", "median"] | None = None
    """What a 4D-Occ answers: a ray's expected depth, as published, or the mean or median of where it is stopped."""
    fast: bool = False
    """Quicker and less exact: at most 4 sampling steps and no guidance, unless --sampling-steps or --guidance say
    otherwise."""
    device: str = "auto"
    """cpu, cuda, cuda:1."""

    def check(self) -> None:
        """What can be told before torch is loaded."""
        check_sampling(steps=self.sampling_steps, guidance=self.guidance, top_k=self.top_k)
        check_folders(tokenizer=self.tokenizer)

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
    """Which model, and how it samples. Baselines are not sampled and ignore the sampling options."""

    model: str = "mini"
    """mini, a baseline (copy_last, ray_tracing), a model folder, a run, or hf:user/name from the Hugging Face hub."""
    tokenizer: Path | None = None
    """The tokenizer's run or folder, if --model is a run of a world model that does not name its tokenizer."""
    guidance: float = 1.0
    """Strength of classifier-free guidance. 0: off, which is faster."""
    sampling_steps: int = 10
    """Sampling steps per frame. Fewer are faster."""
    seed: int = 0
    """The random seed."""
    schedule: Literal["paper", "few_first"] | None = None
    """How many tokens each sampling step decodes: paper (many early) or few_first (as in MaskGIT). By default the
    model's own."""
    top_k: int | None = None
    """Sample from the k most likely tokens (0: all). By default the model's own."""
    depth_selection: bool = True
    """Use the model's depth selector, if it has one. Without it, all depths are rendered from tokens."""
    depth: Literal["expected", "normalised", "median"] | None = None
    """Only for 4D-Occ: which depth of a ray to use. expected (as published), or the mean (normalised) or the median
    given that the ray has a return."""
    fast: bool = False
    """Faster and less accurate: 4 sampling steps and no guidance, unless --sampling-steps or --guidance are given."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""

    @property
    def steps_used(self) -> int:
        """Sampling steps, with --fast taken into account."""
        return FAST_STEPS if self.fast and self.sampling_steps == ModelOptions.sampling_steps else self.sampling_steps

    @property
    def guidance_used(self) -> float:
        """Guidance, with --fast taken into account."""
        return 0.0 if self.fast and self.guidance == ModelOptions.guidance else self.guidance

    def check(self) -> None:
        """Checks that need no torch."""
        if self.sampling_steps < 1:
            raise UsageError(f"--sampling-steps must be at least 1, got {self.sampling_steps}")
        if not math.isfinite(self.guidance):
            raise UsageError(f"--guidance must be a finite number, got {self.guidance}")
        if self.top_k is not None and self.top_k < 0:
            raise UsageError(f"--top-k must be at least 0, got {self.top_k}")
        check_folders(tokenizer=self.tokenizer)

"""The options of every verb that forecasts: which model, where it runs, how it samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.checks import check_folders, check_sampling

FAST_STEPS = 4


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, and how it samples. Baselines are not sampled and ignore the sampling options."""

    model: str = "mini"
    """mini, a baseline (copy_last, ray_tracing), a model folder, a run, or hf:user/name from the Hugging Face hub."""
    tokenizer: Path | None = None
    """The tokenizer's run or folder, if --model is a run of a world model that does not name its tokenizer."""
    guidance: float | None = None
    """Strength of classifier-free guidance. 0: off, which is faster. By default as stored with the model."""
    sampling_steps: int | None = None
    """Sampling steps per frame. Fewer are faster. By default as stored with the model."""
    seed: int = 0
    """The random seed."""
    schedule: Literal["paper", "few_first"] | None = None
    """How many tokens each sampling step decodes: paper (many early) or few_first (as in MaskGIT). By default as
    stored with the model."""
    top_k: int | None = None
    """Sample from the k most likely tokens (0: all). By default as stored with the model."""
    depth_selection: bool = True
    """Use the model's depth selector, if it has one. Without it, all depths are rendered from tokens."""
    depth: Literal["expected", "normalised", "median"] | None = None
    """Only for 4D-Occ: which depth of a ray to use. expected (as published), or the mean (normalised) or the median
    given that the ray has a return."""
    fast: bool = False
    """Faster and less accurate: at most 4 sampling steps and no guidance, unless --sampling-steps or --guidance are
    given."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""

    def check(self) -> None:
        """Checks that need no torch."""
        check_sampling(steps=self.sampling_steps, guidance=self.guidance, top_k=self.top_k)
        check_folders(tokenizer=self.tokenizer)

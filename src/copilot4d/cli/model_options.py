"""The options of every verb that forecasts: which model, where it runs, how it samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot4d.baselines import BASELINES
from copilot4d.cli.console import console
from copilot4d.errors import UsageError
from copilot4d.forecaster import Forecaster
from copilot4d.forecasting.load import load_forecaster

NO_DENSITIES = (
    "--depth says how the densities of a 4D-Occ are read, and {} is none: leave it out, or name a 4D-Occ by --model"
)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, and how it samples. Baselines draw nothing at random: for them all but the model means nothing."""

    model: str
    """mini, a baseline's name (copy_last, ray_tracing), a model's folder, or the run of a world model."""
    tokenizer: Path | None = None
    """The tokenizer's run or folder, for the run of a world model that does not name its own."""
    guidance: float = 1.0
    """Strength of classifier-free guidance; 0 turns it off."""
    sampling_steps: int = 10
    """Steps of the sampler per frame."""
    seed: int = 0
    """Of the random draws."""
    schedule: Literal["paper", "few_first"] | None = None
    """How many tokens each step decides: paper (many early) or few_first (MaskGIT's). By default the model's own."""
    top_k: int | None = None
    """Draw among so many tokens; 0: among all. By default the model's own."""
    depth_selection: bool = True
    """Choose each ray's depth, rendered or measured, where the model has a depth selector; else rendered alone."""
    depth: Literal["expected", "normalised", "median"] | None = None
    """What a 4D-Occ answers: a ray's expected depth, as published, or the mean or median of where it is stopped."""
    device: str = "auto"
    """cpu, cuda, cuda:1."""


def tell_limits(forecaster: Forecaster, roi_half_m: float | None = None) -> None:
    """Say how far a trained model sees and what it was trained on; and where it is scored beyond what it sees."""
    words = forecaster.limits
    seen_m = forecaster.region_half_m
    if roi_half_m is not None and roi_half_m > seen_m:
        words += (
            f" The scores count rays up to {roi_half_m:g} m to each side, also where it predicts nothing: "
            f"--roi-half {seen_m:g} scores what it knows (and baselines by the same rule)."
        )
    if words:
        console.print(words, markup=False, highlight=False)


def load(options: ModelOptions) -> Forecaster:
    """The model that the options name, ready to forecast."""
    if options.model in BASELINES:
        if options.depth is not None:
            raise UsageError(NO_DENSITIES.format(options.model))
        return load_forecaster(options.model)
    from copilot4d.baselines.occupancy_4d import Occupancy4dForecaster
    from copilot4d.forecasting.copilot4d import Copilot4D  # only here: baselines need no torch
    from copilot4d.training.distributed import choose_device
    from copilot4d.training.malloc import keep_freed_memory

    device = choose_device(options.device)
    if device.type == "cpu":
        keep_freed_memory()
    forecaster = load_forecaster(
        options.model, tokenizer=options.tokenizer, device=str(device), depth_selection=options.depth_selection
    )
    if options.depth is not None:
        if not isinstance(forecaster, Occupancy4dForecaster):
            raise UsageError(NO_DENSITIES.format(options.model))
        forecaster = Occupancy4dForecaster(forecaster.model, depth=options.depth)
    if not isinstance(forecaster, Copilot4D):
        return forecaster
    if options.top_k is not None and options.top_k < 0:
        raise UsageError(f"--top-k must be at least 0, got {options.top_k}")
    if options.schedule is not None:
        forecaster = forecaster.with_sampler(schedule=options.schedule)
    if options.top_k is not None:
        forecaster = forecaster.with_sampler(top_k=options.top_k or None)
    return forecaster

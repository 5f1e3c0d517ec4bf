"""The options of every verb that forecasts: which model, where it runs, how it samples."""

from __future__ import annotations

from typing import Any

from copilot4d.baselines import BASELINES
from copilot4d.cli.console import console
from copilot4d.cli.options.model_options import FAST_STEPS, ModelOptions
from copilot4d.errors import UsageError
from copilot4d.forecaster import Forecaster, Sampling, sampling_of
from copilot4d.forecasting.hub import fetch, is_hub_name
from copilot4d.forecasting.load import check_model_name, load_forecaster

NO_DENSITIES = (
    "--depth says how the densities of a 4D-Occ are read, and {} is none: leave it out, or name a 4D-Occ by --model"
)


def tell_limits(forecaster: Forecaster, roi_half_m: float | None = None) -> None:
    """Say how far a trained model sees and what it was trained on; and where it is scored beyond what it sees."""
    words = forecaster.limits
    seen_m = forecaster.region_half_m
    if roi_half_m is not None and roi_half_m > seen_m:
        words += (
            f" Scores count rays up to {roi_half_m:g} m to each side, also where the model predicts nothing: "
            f"--roi-half {seen_m:g} scores only the region that it predicts."
        )
    if words:
        console.print(words, markup=False, highlight=False)


def hub_revision(model: str) -> dict[str, Any]:
    """For score files: which commit of the hub a model is; empty for models from elsewhere."""
    if not is_hub_name(model):
        return {}
    fetched = fetch(model)
    return {"hub": {"repository": fetched.repository, "revision": fetched.revision}}


def sampling(options: ModelOptions, forecaster: Forecaster) -> Sampling:
    """Guidance and steps: those of the flags that were given, else as stored with the model; --fast lowers these."""
    stored = sampling_of(forecaster)
    if options.fast:
        stored = Sampling(guidance=0.0, steps=min(stored.steps, FAST_STEPS))
    return stored.changed(guidance=options.guidance, steps=options.sampling_steps)


def load(options: ModelOptions) -> Forecaster:
    """The model that the options name, ready to forecast; it samples as they say where a call leaves that open."""
    if options.model in BASELINES:
        if options.depth is not None:
            raise UsageError(NO_DENSITIES.format(options.model))
        return load_forecaster(options.model)
    check_model_name(options.model)
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
        name = forecaster.name.removesuffix("_median")
        forecaster = Occupancy4dForecaster(forecaster.model, name=name, depth=options.depth)
    if not isinstance(forecaster, Copilot4D):
        return forecaster
    used = sampling(options, forecaster)
    forecaster = forecaster.with_sampler(guidance=used.guidance, steps=used.steps)
    if options.schedule is not None:
        forecaster = forecaster.with_sampler(schedule=options.schedule)
    if options.top_k is not None:
        forecaster = forecaster.with_sampler(top_k=options.top_k or None)
    return forecaster

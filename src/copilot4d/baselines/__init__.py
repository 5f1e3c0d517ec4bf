"""Forecasters without a network: the yardstick for every model. All speak the `Forecaster` protocol."""

from collections.abc import Callable
from functools import partial

from copilot4d.baselines.constant_velocity import ConstantVelocity
from copilot4d.baselines.copy_last import CopyLast
from copilot4d.baselines.ray_tracing import RayTracing
from copilot4d.forecaster import Forecaster

RECENT_AGE_DEG = 0.05  # chosen on a drive held out for choices: docs/baselines.md

BASELINES: dict[str, Callable[[], Forecaster]] = {
    "copy_last": CopyLast,
    "ray_tracing": RayTracing,
    "ray_tracing_recent": partial(RayTracing, age_deg=RECENT_AGE_DEG, name="ray_tracing_recent"),
    "constant_velocity": ConstantVelocity,
}

__all__ = ["BASELINES", "ConstantVelocity", "CopyLast", "RayTracing"]

"""Forecasters without a network: the yardstick for every model. All speak the `Forecaster` protocol."""

from collections.abc import Callable

from copilot4d.baselines.copy_last import CopyLast
from copilot4d.baselines.ray_tracing import RayTracing, RecentRayTracing
from copilot4d.forecaster import Forecaster

BASELINES: dict[str, Callable[[], Forecaster]] = {
    CopyLast.name: CopyLast,
    RayTracing.name: RayTracing,
    RecentRayTracing.name: RecentRayTracing,
}

__all__ = ["BASELINES", "CopyLast", "RayTracing", "RecentRayTracing"]

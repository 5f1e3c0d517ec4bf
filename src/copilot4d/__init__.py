"""copilot4d: an open, independent implementation of the Copilot4D lidar world model.

    from copilot4d import load_forecaster, open_dataset

    drive = open_dataset("path/to/anything")["08"]
    model = load_forecaster("mini")
    future = model.forecast(past, future_poses)

The names are resolved on first use, so that importing the package stays cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

from copilot4d.version import __version__

if TYPE_CHECKING:
    from copilot4d.datasets import Dataset, open_dataset
    from copilot4d.forecaster import Forecast, Forecaster
    from copilot4d.forecasting.load import load_forecaster
    from copilot4d.geometry import Drive, Rays, Sweep

__all__ = [
    "Dataset",
    "Drive",
    "Forecast",
    "Forecaster",
    "Rays",
    "Sweep",
    "__version__",
    "load_forecaster",
    "open_dataset",
]

_HOMES = {
    "Dataset": "datasets",
    "Drive": "geometry",
    "Forecast": "forecaster",
    "Forecaster": "forecaster",
    "Rays": "geometry",
    "Sweep": "geometry",
    "load_forecaster": "forecasting.load",
    "open_dataset": "datasets",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'copilot4d' has no attribute {name!r}")
    return getattr(importlib.import_module(f"copilot4d.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})

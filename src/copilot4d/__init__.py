"""copilot4d: an open, independent implementation of the Copilot4D lidar world model.

    from copilot4d import load_forecaster, open_dataset

    drive = open_dataset("path/to/anything")["08"]
    model = load_forecaster("ray_tracing")
    future = model.forecast(past, future_poses)

The two names are resolved on first use, so that importing the package stays cheap.
"""

from typing import TYPE_CHECKING, Any

from copilot4d.version import __version__

if TYPE_CHECKING:
    from copilot4d.datasets import open_dataset
    from copilot4d.forecasting.load import load_forecaster

__all__ = ["__version__", "load_forecaster", "open_dataset"]


def __getattr__(name: str) -> Any:
    if name == "open_dataset":
        from copilot4d.datasets import open_dataset

        return open_dataset
    if name == "load_forecaster":
        from copilot4d.forecasting.load import load_forecaster

        return load_forecaster
    raise AttributeError(f"module 'copilot4d' has no attribute {name!r}")

"""The options of `copilot4d serve`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from copilot4d.cli.options.data_options import DataOptions
from copilot4d.cli.options.model_options import ModelOptions


@dataclass(frozen=True, kw_only=True)
class Options(DataOptions, ModelOptions):
    """Play a log in real time and forecast from its newest sweep, as often as this machine can.

    Example: copilot4d serve --model ray_tracing --data drive.mcap

    Sweeps that arrive while a forecast is made are only past for the next one, and are counted. The same loop takes
    sweeps from a robot (docs/serve.md).
    """

    data: Path
    """A data set; its format is recognised."""
    drive: str | None = None
    """Which drive. By default the first."""
    speed: float = 1.0
    """Play so many times as fast as it was recorded; inf: without waiting."""
    spacing: float = 0.2
    """Seconds between the frames that the model sees and forecasts."""
    future: int = 5
    """Frames to forecast."""
    limit: int | None = None
    """End after so many forecasts."""
    out: Path | None = None
    """Also keep the forecasts: a folder, NNNN_future_KK.ply for each."""

"""The options of `copilot4d serve`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from copilot4d.cli.options.data_options import DataOptions
from copilot4d.cli.options.model_options import ModelOptions


@dataclass(frozen=True, kw_only=True)
class Options(DataOptions, ModelOptions):
    """Play a log in real time, and forecast from its newest sweep as often as the machine can.

    Example: copilot4d serve --model ray_tracing --data drive.mcap

    Sweeps that arrive during a forecast are counted as skipped, and serve as past for the next one. The same loop can
    read sweeps from a robot (docs/serve.md).
    """

    data: Path
    """A data set; its format is recognised."""
    drive: str | None = None
    """Which drive. By default the first."""
    speed: float = 1.0
    """Speed of the player: 1 is real time, inf does not wait."""
    spacing: float = 0.2
    """Seconds between frames, past and future."""
    future: int = 5
    """Frames to forecast."""
    limit: int | None = None
    """Stop after N forecasts."""
    out: Path | None = None
    """Also write the forecasts into this folder: NNNN_future_KK.ply."""

"""The options of `copilot4d view`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from copilot4d.cli.options.model_options import ModelOptions

AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions):
    """Open the what-if studio: choose a moment, draw a path for the ego, and see what the model predicts.

    Example: copilot4d view --data street-v1/val

    The studio is a page in your browser. By default only this machine can open it. Ctrl-C ends it.
    """

    data: Path
    """A data set: KITTI, nuScenes, Argoverse 2, your own folder of sweeps, or a simulated one such as street-v1/val."""
    drive: str | None = None
    """The first drive to show. By default the first with poses."""
    frame: int | None = None
    """The newest past sweep. By default the first with a complete past and future."""
    model: str = AUTO
    """mini, a baseline's name, a model's folder or run. auto: mini where it is installed, else ray_tracing."""
    futures: int = 1
    """How many futures of a plan to sample."""
    out: Path = Path("studio")
    """The folder for saved files."""
    port: int = 8080
    """The page's port. If it is in use, the next free one."""
    host: str = "127.0.0.1"
    """The address to listen on. There is no password: with any other address, other machines can open the page."""

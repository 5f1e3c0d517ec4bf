"""The options of `copilot4d view`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from copilot4d.cli.options.model_options import ModelOptions

AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions):
    """Open the what-if studio: pick a moment, draw the ego's way, watch the futures that a model imagines.

    Example: copilot4d view --data street-v1/val

    It is a page in your browser, served by this machine for this machine alone. Ctrl-C ends it.
    """

    data: Path
    """A data set: KITTI, nuScenes, Argoverse 2, an own folder of sweeps, or a simulated one such as street-v1/val."""
    drive: str | None = None
    """Which drive to begin with. By default the first that has poses."""
    frame: int | None = None
    """The newest sweep that the model may see. By default the first with a whole past and future."""
    model: str = AUTO
    """mini, a baseline's name, a model's folder or run. auto: mini where it is installed, else ray_tracing."""
    futures: int = 1
    """How many futures of a plan are sampled at first."""
    out: Path = Path("studio")
    """The folder for what you save."""
    port: int = 8080
    """Of the page. Where it is taken, the next free one is used."""
    host: str = "127.0.0.1"
    """The address to listen on. Any other than this machine's own lets others in: there is no password."""

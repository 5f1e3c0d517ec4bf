"""The options of `copilot4d forecast`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.data_options import DataOptions
from copilot4d.cli.options.model_options import ModelOptions


@dataclass(frozen=True, kw_only=True)
class Options(DataOptions, ModelOptions):
    """Predict the sweeps that follow a moment of a drive, and write one point file per future frame.

    Example: copilot4d forecast --model ray_tracing --data kitti --drive 08 --frame 120 --out forecast --pictures

    The input is the past sweeps and the ego's future poses, never the future sweeps. Poses come from the log; after its
    end, the ego keeps its velocity. --future-poses gives another path.
    """

    data: Path
    """A data set: KITTI, nuScenes, Argoverse 2, a ROS bag or MCAP file, or your own folder of sweeps. The format is
    recognised. Also without --data, as the first word: copilot4d forecast DATA ..."""
    out: Path
    """The folder to write into; or a file x.mcap that opens in Foxglove (pip install 'copilot4d[foxglove]')."""
    rerun: Path | None = None
    """Also write a file x.rrd that opens in Rerun (pip install 'copilot4d[rerun]', Python 3.11 or newer)."""
    drive: str | None = None
    """Which drive. By default the first that has a complete moment."""
    frame: int | None = None
    """The newest past sweep, counted from 0. By default the first with a complete past and future."""
    setting: Literal["1s", "3s"] = "1s"
    """How far to forecast: five frames up to 1 s or 3 s ahead (nuScenes: 2 or 6 keyframes)."""
    format: Literal["ply", "bin", "npz"] = "ply"
    """Format of the point files: ply opens in most viewers, bin is KITTI's, npz keeps everything."""
    pictures: bool = False
    """Also draw past, truth and forecast: forecast.png, forecast.gif, forecast.mp4."""
    future_poses: Path | None = None
    """A file with the ego's path, world_from_lidar in the log's world: KITTI text (a line per future frame) or TUM."""
    on_bad_sweep: Literal["raise", "skip"] = "raise"
    """skip: leave out past sweeps that cannot be read, and list them."""
    futures: int = 1
    """How many futures to sample and write."""

"""The options of `copilot4d simulate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write simulated drives of a spinning lidar, through streets with traffic that reacts to the ego.

    Example: copilot4d simulate --out streets --count 20 --sensor mini32 --seed 1 --workers 2

    The same options give the same bytes, with any number of workers. The same command resumes an interrupted run. In
    each drive's folder, truth.npz has the object of every point and the poses of all agents.
    """

    out: Path
    """The folder to write into: a data set for every other verb."""
    count: int = 10
    """How many drives, each on its own street. A larger number later adds drives."""
    sensor: str = "mini32"
    """hdl64 (KITTI-like), hdl32 (nuScenes-like, 20 Hz), vls_pair (Argoverse-2-like), mini32 (light)."""
    seed: int = 0
    """Another seed gives other streets; no two seeds share one."""
    workers: int = 1
    """Processes."""
    format: Literal["folder", "kitti"] = "folder"
    """folder: our own format, which keeps everything. kitti: a KITTI Odometry tree."""
    seconds: float = 12.0
    """The length of a drive in seconds."""
    rate_hz: float | None = None
    """Sweeps per second. By default the sensor's own rate."""

"""The options of `copilot4d simulate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write simulated drives: streets, traffic that reacts, and what a spinning lidar sees of them.

    Example: copilot4d simulate --out streets --count 20 --sensor mini32 --seed 1 --workers 2

    The same options give the same bytes, with any number of workers. Interrupted, the same command goes on where it
    stopped. Beside each drive, truth.npz says what every point lies on and where everybody was.
    """

    out: Path
    """The folder to write into: a data set for every other verb."""
    count: int = 10
    """How many drives; each has a street of its own. Asking for more later adds to the folder."""
    sensor: str = "mini32"
    """hdl64 (KITTI-like), hdl32 (nuScenes-like, 20 Hz), vls_pair (Argoverse-2-like), mini32 (light)."""
    seed: int = 0
    """Another seed gives other streets; no two seeds share one."""
    workers: int = 1
    """Processes."""
    format: Literal["folder", "kitti"] = "folder"
    """folder keeps everything; kitti is a KITTI Odometry tree."""
    seconds: float = 12.0
    """The length of a drive."""
    rate_hz: float | None = None
    """Sweeps a second; by default all that the sensor gives."""

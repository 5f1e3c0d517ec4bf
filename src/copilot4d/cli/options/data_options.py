"""The options of verbs that read a log: at which rate, and which topics of a bag."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """How a log is read, beside its path."""

    resample: float | None = None
    """Take the sweeps nearest to even times at so many a second, for logs at 20, 12.5 or 7 Hz."""
    lidar_topic: tuple[str, ...] = ()
    """Of a bag or MCAP file: the lidar's topic, where there are several. Several are merged into the first."""
    pose_topic: str | None = None
    """Of a bag or MCAP file: the topic of the poses, or the word tf."""
    deskew: bool | None = None
    """Move the points of a sweep to one instant by their times. Bags and MCAP files: by default where points have
    times. Own data: where copilot4d.yaml says so."""

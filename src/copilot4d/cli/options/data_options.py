"""The options of verbs that read a log: at which rate, and which topics of a bag."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """How a log is read."""

    resample: float | None = None
    """Use the sweeps nearest to an even rate in Hz, for logs at 20, 12.5 or 7 Hz: --resample 10."""
    lidar_topic: tuple[str, ...] = ()
    """Bag and MCAP files: the lidar's topic, if there are several. Several topics are merged into the first."""
    pose_topic: str | None = None
    """Bag and MCAP files: the topic of the poses, or tf."""
    deskew: bool | None = None
    """Motion-compensate each sweep by the times of its points. Bags and MCAP files: by default if points have times.
    Own data: by default if copilot4d.yaml says so."""

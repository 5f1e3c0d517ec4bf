"""Deskewing sweeps that are one file each and whose points have times: each point moved to its sweep's own time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.point_fields import PointFile
from copilot4d.datasets.point_times import TimesError, point_times_ns
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry.deskew import deskew
from copilot4d.geometry.se3 import FloatArray
from copilot4d.geometry.trajectory import Trajectory


@dataclass(frozen=True, kw_only=True)
class RecordedSweep:
    """A sweep as its file has it, each point in the lidar frame, with the times of the points."""

    points: NDArray[np.float32]  # (N, 3)
    times_ns: NDArray[np.int64]  # (N,)
    trajectory: Trajectory  # of the lidar
    origins: NDArray[np.float32] | None = None

    def deskewed(self, world_from_lidar: FloatArray) -> NDArray[np.float32]:
        """(N, 3) each point moved from its own time into the frame of this pose."""
        return deskew(self.points, self.times_ns, self.trajectory, world_from_lidar).points


@dataclass(frozen=True, kw_only=True)
class Deskewing:
    """How the points of a drive come to their sweep's time. Plain data, so that worker processes can be sent one."""

    trajectory: Trajectory  # of the lidar
    time_unit: str | None = None  # of the times of points; None: told by how long a sweep takes

    def recorded(self, path: Path, file: PointFile, stamp_ns: int) -> RecordedSweep:
        """The points with their times; DataError where the file has none, or none that a sweep can have."""
        if file.times is None:
            raise DataError(
                path, "times of points", expected="a column such as t, time, timestamp or offset_ns",
                found="none", remedy="write `time_field:` into copilot4d.yaml, or leave deskewing off",
            )  # fmt: skip
        try:
            times = point_times_ns(file.times, stamp_ns, self.time_unit)
        except TimesError as error:
            raise _bad_times(path, str(error)) from error
        if times is None:
            raise _bad_times(path, "one and the same for all points")
        return RecordedSweep(
            points=file.points, times_ns=times, trajectory=self.trajectory, origins=file.origins
        )  # fmt: skip

    def moved(self, path: Path, file: PointFile, stamp_ns: int, world_from_lidar: FloatArray) -> PointFile:
        """The file's points and the starts of their rays, in the frame of the lidar at `stamp_ns`."""
        sweep = self.recorded(path, file, stamp_ns)
        try:
            moved = deskew(sweep.points, sweep.times_ns, self.trajectory, world_from_lidar, sweep.origins)
        except UsageError as error:
            raise _bad_times(path, str(error)) from error
        return replace(file, points=moved.points, origins=moved.origins, times=None)


def _bad_times(path: Path, found: str) -> DataError:
    return DataError(
        path, "times of points", expected="the times of one sweep", found=found,
        remedy="write `time_unit:` or `time_field:` into copilot4d.yaml, or leave deskewing off",
    )  # fmt: skip

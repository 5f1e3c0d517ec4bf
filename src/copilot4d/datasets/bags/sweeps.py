"""One sweep of a bag: a PointCloud2 message to points, with the times of the points, deskewed and merged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.bags.bag import at_message, open_bag
from copilot4d.datasets.bags.point_cloud2 import CloudError, cloud_columns
from copilot4d.datasets.deskewing import RecordedSweep
from copilot4d.datasets.point_fields import INTENSITY_NAMES
from copilot4d.datasets.point_times import TimesError, point_times_ns, time_field
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import Sweep
from copilot4d.geometry.deskew import deskew
from copilot4d.geometry.se3 import FloatArray
from copilot4d.geometry.trajectory import Trajectory


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """The points of one message in its lidar's frame, without those that are no returns."""

    points: NDArray[np.float32]
    intensity: NDArray[np.float32] | None
    times_ns: NDArray[np.int64] | None


@dataclass(frozen=True, kw_only=True)
class LidarTopic:
    """The messages of one lidar, one per sweep: reads them. Plain data, so that worker processes can be sent one."""

    path: Path
    topic: str
    places: NDArray[np.int64]  # (N, 3)
    recorded_ns: NDArray[np.int64]  # (N,)
    stamps_ns: NDArray[np.int64]  # (N,)
    trajectory: Trajectory | None  # of this lidar's frame; None where the bag has no poses
    wanted_field: str | None = None
    wanted_unit: str | None = None

    def read(self, index: int, *, with_times: bool) -> Cloud:
        """One sweep. DataError that names the topic and the time where it cannot be read."""
        recorded = int(self.recorded_ns[index])
        message = open_bag(self.path).message(self.topic, self.places[index], recorded)
        try:
            columns = cloud_columns(message)
            missing = [name for name in "xyz" if name not in columns]
            if missing:
                raise CloudError(f"no field {', '.join(missing)} among {', '.join(columns)}")
            return self._cloud(columns, int(self.stamps_ns[index]), with_times)
        except CloudError as error:
            raise self.bad(recorded, "a PointCloud2 with x, y and z", str(error), "filter this message out") from error
        except TimesError as error:
            raise self.bad(
                recorded, "times of points", str(error),
                "write `time_unit:` or `time_field:` into the bag's description, or `deskew: false`",
            ) from error  # fmt: skip

    def _cloud(self, columns: Any, stamp_ns: int, with_times: bool) -> Cloud:
        points = np.empty((len(columns["x"]), 3), dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            for k, name in enumerate("xyz"):
                points[:, k] = columns[name]
        # Organised clouds hold a place for every ray: those without a return are NaN, or lie in the sensor itself.
        returned = np.isfinite(points).all(axis=1) & points.any(axis=1)
        if not returned.any():
            raise CloudError(f"none of its {len(points)} points is a return")
        shades = [n for wanted in INTENSITY_NAMES for n in columns if n.lower() == wanted]
        intensity = np.nan_to_num(columns[shades[0]].astype(np.float32)) if shades else None
        times = self._times(columns, stamp_ns) if with_times else None
        if returned.all():
            return Cloud(points=points, intensity=intensity, times_ns=times)
        return Cloud(
            points=points[returned],
            intensity=None if intensity is None else intensity[returned],
            times_ns=None if times is None else times[returned],
        )

    def _times(self, columns: Any, stamp_ns: int) -> NDArray[np.int64] | None:
        name = self.wanted_field or time_field(columns)
        if name is None:
            return None
        if name not in columns:
            raise TimesError(f"no field {name}; there are {', '.join(columns)}")
        return point_times_ns(columns[name], stamp_ns, self.wanted_unit)

    def bad(self, recorded_ns: int, expected: str, found: str, remedy: str) -> DataError:
        """A DataError about one message of this topic."""
        return at_message(self.path, self.topic, recorded_ns, expected=expected, found=found, remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class BagSweeps:
    """`Drive.read` of a bag: the first lidar's sweeps, and of each other lidar the sweep nearest in time."""

    lidars: tuple[LidarTopic, ...]
    world_from_lidar: FloatArray  # (N, 4, 4) of the first lidar at its stamps
    deskew: bool

    def __call__(self, index: int) -> Sweep:
        """Sweep `index`: every point in the first lidar's frame at its stamp."""
        first, *others = self.lidars
        reference, stamp = self.world_from_lidar[index], int(first.stamps_ns[index])
        parts = [self._moved(first, index, reference, first=True)]
        for other in others:
            nearest = int(np.argmin(np.abs(other.stamps_ns - stamp)))
            if abs(int(other.stamps_ns[nearest]) - stamp) <= self._half_interval_ns():
                parts.append(self._moved(other, nearest, reference, first=False))
        points = np.concatenate([part[0] for part in parts])
        has_intensity = all(part[1] is not None for part in parts)
        has_origins = len(self.lidars) > 1 or parts[0][2] is not None
        return Sweep(
            points=points,
            intensity=np.concatenate([part[1] for part in parts if part[1] is not None]) if has_intensity else None,
            origins=np.concatenate([p[2] if p[2] is not None else np.zeros_like(p[0]) for p in parts])
            if has_origins
            else None,
            world_from_lidar=reference,
            timestamp_ns=stamp,
        )

    def recorded(self, index: int) -> RecordedSweep | None:
        """Sweep `index` of the first lidar as it was recorded; None where its points have no times, or it no poses."""
        first = self.lidars[0]
        cloud = first.read(index, with_times=True)
        if cloud.times_ns is None or first.trajectory is None:
            return None
        return RecordedSweep(points=cloud.points, times_ns=cloud.times_ns, trajectory=first.trajectory)

    @property
    def is_deskewed(self) -> bool:
        """Whether points that have times are moved to their sweep's time when they are read."""
        return self.deskew

    def motion(self) -> tuple[str, str]:
        """What was done about the lidar's motion within a sweep, and what a user may want to change; reads a sweep."""
        first = self.lidars[0]
        try:
            timed = first.read(0, with_times=True).times_ns is not None
        except DataError:
            timed = False
        if not timed:
            return (
                f"left as recorded: the points of {first.topic} carry no times",
                "nothing, if the driver compensates motion; otherwise record the field with the times of the points",
            )
        if self.deskew:
            return (
                f"deskewed: each point of {first.topic} was moved to its sweep's stamp by its own time",
                "set `deskew` to false, if the driver had compensated the points already",
            )
        why = "there are no poses to deskew with" if first.trajectory is None else "deskewing is turned off"
        return f"left as recorded, although the points of {first.topic} carry times: {why}", "nothing, if so wanted"

    def _half_interval_ns(self) -> float:
        stamps = self.lidars[0].stamps_ns
        return float(np.median(np.diff(stamps))) / 2 if len(stamps) > 1 else 5e7

    def _moved(
        self, lidar: LidarTopic, index: int, reference: FloatArray, *, first: bool
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None, NDArray[np.float32] | None]:
        """Points, intensity and origins of one message in the frame of the reference pose."""
        cloud = lidar.read(index, with_times=self.deskew)
        times = cloud.times_ns
        if lidar.trajectory is None or (first and times is None):
            return cloud.points, cloud.intensity, None
        if times is None:
            times = np.full(len(cloud.points), lidar.stamps_ns[index], dtype=np.int64)
        try:
            moved = deskew(cloud.points, times, lidar.trajectory, reference)
        except UsageError as error:
            raise lidar.bad(
                int(lidar.recorded_ns[index]), "times of the points of one sweep", str(error),
                "write `time_unit:` into the bag's description, or `deskew: false`",
            ) from error  # fmt: skip
        return moved.points, cloud.intensity, moved.origins

"""`Trajectory`: where a sensor was over time, and what it knows about the moments between its samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """(N,) strictly increasing times and (N, 4, 4) float64 poses world_from_body; at least one sample."""

    timestamps_ns: NDArray[np.int64]
    world_from_body: FloatArray

    def __post_init__(self) -> None:
        count = len(self.timestamps_ns)
        if count < 1 or self.world_from_body.shape != (count, 4, 4):
            raise UsageError(
                f"a Trajectory needs a pose for each of its times, at least one: got {count} times and poses of shape "
                f"{self.world_from_body.shape}"
            )
        if not (np.diff(self.timestamps_ns) > 0).all():
            raise UsageError("a Trajectory's times must be strictly increasing")

    def at(self, timestamps_ns: NDArray[np.int64]) -> FloatArray:
        """(M, 4, 4): rotations by slerp, translations on a straight line. Beyond its ends the last segment goes on.

        >>> way = Trajectory(timestamps_ns=np.array([0, 100]), world_from_body=se3.from_yaw([0.0, 0.2], [[0, 0, 0],
        ...                  [1, 0, 0]]))
        >>> float(way.at(np.array([50]))[0, 0, 3]), round(float(se3.yaw_of(way.at(np.array([50])))[0]), 6)
        (0.5, 0.1)
        """
        return se3.interpolate_trajectory(*self._seconds(timestamps_ns))

    def knows(self, timestamps_ns: NDArray[np.int64], *, longest_gap_s: float) -> NDArray[np.bool_]:
        """(M,) whether each time lies between two samples at most `longest_gap_s` apart.

        Half a usual interval beyond either end counts as known, and so does a sample's own time.
        """
        times, _, query = self._seconds(timestamps_ns)
        steps = np.diff(times)
        margin = float(np.median(steps)) / 2 if len(steps) else 1e-6
        inside: NDArray[np.bool_] = (query >= times[0] - margin) & (query <= times[-1] + margin)
        if not len(steps):
            return inside
        segment = np.clip(np.searchsorted(times, query, side="right") - 1, 0, len(steps) - 1)
        near = steps[segment] <= max(longest_gap_s, 4 * margin)
        known: NDArray[np.bool_] = inside & (near | np.isin(query, times))
        return known

    def moved(self, body_from_sensor: FloatArray) -> Trajectory:
        """The trajectory of a sensor that is fixed to this body."""
        return Trajectory(
            timestamps_ns=self.timestamps_ns, world_from_body=se3.compose(self.world_from_body, body_from_sensor)
        )

    def _seconds(self, timestamps_ns: NDArray[np.int64]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Relative to the first sample: a float holds Unix times to 100 ns only."""
        start = self.timestamps_ns[0]
        query = np.asarray(timestamps_ns, dtype=np.int64)
        return (self.timestamps_ns - start) * 1e-9, self.world_from_body, (query - start) * 1e-9

"""Deskewing: the points of a sweep were measured one after another while the sensor moved; bring them to one instant.

A point measured at time t lies in the sensor's frame of that moment. In the frame of the sweep's reference instant it
is at `lidar_at_reference_from_lidar_at_t @ point`, and its ray started where the sensor was at t.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.geometry.trajectory import Trajectory

BIN_NS = 50_000  # points of one bin share a pose: 1.5 mm at 30 m/s
LONGEST_SWEEP_NS = 2_000_000_000  # a lidar that turns slower than this is no driving log


class Deskewed(NamedTuple):
    """Points and the origins of their rays, both (N, 3) float32 in the lidar frame of the reference instant."""

    points: NDArray[np.float32]
    origins: NDArray[np.float32]


def deskew(
    points: NDArray[np.float32], timestamps_ns: NDArray[np.int64], trajectory: Trajectory, reference: FloatArray,
    origins: NDArray[np.float32] | None = None,
) -> Deskewed:  # fmt: skip
    """Move points (N, 3), each in the lidar frame of its own time (N,), into the frame of `reference`.

    `trajectory` is the lidar's, `reference` world_from_lidar (4, 4) at the sweep's reference instant. `origins` (N, 3)
    are where the rays start in the moving lidar frame; by default its own origin. UsageError where the times of one
    sweep lie further apart than any sweep takes.

    A sensor that drives 1 m along x in 0.1 s and sees a wall 10 m ahead at each end of the sweep:

    >>> way = Trajectory(timestamps_ns=np.array([0, 10**8]), world_from_body=se3.from_yaw([0.0, 0.0], [[0, 0, 0],
    ...                  [1, 0, 0]]))
    >>> moved = deskew(np.array([[10, 0, 0], [9, 0, 0]], np.float32), np.array([0, 10**8]), way, np.eye(4))
    >>> moved.points[:, 0].tolist(), moved.origins[:, 0].tolist()
    ([10.0, 10.0], [0.0, 1.0])
    """
    if len(points) != len(timestamps_ns):
        raise UsageError(f"deskew needs a time for each point: {len(timestamps_ns)} for {len(points)} points")
    starts = np.zeros_like(points) if origins is None else origins
    if not len(points):
        return Deskewed(points=points, origins=starts)
    first, last = int(timestamps_ns.min()), int(timestamps_ns.max())
    if last - first > LONGEST_SWEEP_NS:
        raise UsageError(
            f"the points of one sweep are {(last - first) * 1e-9:.3g} s apart, and no lidar takes longer than "
            f"{LONGEST_SWEEP_NS * 1e-9:g} s: the unit of the times is not what was taken for it"
        )
    bins = ((timestamps_ns - first + BIN_NS // 2) // BIN_NS).astype(np.int64)
    moments = first + BIN_NS * np.arange(int(bins.max()) + 1, dtype=np.int64)
    reference_from = se3.relative_motion(reference, trajectory.at(moments))  # (bins, 4, 4)
    motion = reference_from[bins]  # (N, 4, 4)
    return Deskewed(points=_moved(motion, points), origins=_moved(motion, starts))


def _moved(a_from_b: FloatArray, points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each point (N, 3) by its own motion (N, 4, 4)."""
    x, y, z = points.astype(np.float64).T
    moved = np.empty_like(points)
    for row in range(3):
        turn = a_from_b[:, row]
        moved[:, row] = turn[:, 0] * x + turn[:, 1] * y + turn[:, 2] * z + turn[:, 3]
    return moved

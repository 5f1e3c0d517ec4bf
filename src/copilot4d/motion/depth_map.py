"""`DepthMap`: how far a sweep's beams went in each direction, so that one can tell which places they passed.

N points, A azimuths, E elevations
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry.se3 import FloatArray

BIN_DEG = (1.0, 1.5)  # azimuth, elevation: wider than the gaps between beams
BINS = (360, 60)  # elevations from -45 to 45 degrees
BEHIND_M, BEHIND_SHARE = 0.5, 0.02  # a beam has passed a point if it ends so much, and so much of the range, behind it


@dataclass(frozen=True)
class DepthMap:
    """The nearest range in each direction and those next to it (A, E); 0 where no beam ended, which says nothing."""

    nearest_m: FloatArray
    origin: FloatArray  # (3,) of the beams

    @classmethod
    def of(cls, points: FloatArray, origin: FloatArray) -> DepthMap:
        """Of the points (N, 3) of a sweep whose beams start at `origin`, both in one frame."""
        range_m, where = _directions(points - origin)
        nearest = np.full(BINS, np.inf)
        np.minimum.at(nearest, where, range_m)
        around = nearest.copy()
        for turn in (-1, 0, 1):
            for lift in (-1, 0, 1):
                shifted = np.roll(nearest, turn, axis=0)  # azimuth goes round
                if lift > 0:
                    around[:, lift:] = np.minimum(around[:, lift:], shifted[:, :-lift])
                elif lift < 0:
                    around[:, :lift] = np.minimum(around[:, :lift], shifted[:, -lift:])
                else:
                    around = np.minimum(around, shifted)
        return cls(np.where(np.isfinite(around) & np.isfinite(nearest), around, 0.0), origin)

    def passed(self, points: FloatArray) -> NDArray[np.bool_]:
        """(N, 3) in the map's frame -> (N,): all beams near that direction end well behind the point."""
        range_m, where = _directions(points - self.origin)
        passed: NDArray[np.bool_] = self.nearest_m[where] > range_m + BEHIND_M + BEHIND_SHARE * range_m
        return passed


def _directions(points: FloatArray) -> tuple[FloatArray, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """(N, 3) -> ranges (N,) and bins of azimuth and elevation."""
    range_m = np.linalg.norm(points, axis=-1)
    azimuth = np.degrees(np.arctan2(points[:, 1], points[:, 0])) % 360.0
    elevation = np.degrees(np.arcsin(points[:, 2] / np.maximum(range_m, 1e-6)))
    turn = (azimuth / BIN_DEG[0]).astype(np.int64) % BINS[0]
    lift = np.clip(((elevation + 45.0) / BIN_DEG[1]).astype(np.int64), 0, BINS[1] - 1)
    return range_m, (turn, lift)

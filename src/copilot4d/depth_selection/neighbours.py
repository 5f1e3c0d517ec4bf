"""`RangeView`: what the rays of a frame know, laid out as the sensor looks around, so that a ray sees its neighbours.

What one ray cannot tell, those beside it can: a wall that comes into view goes on to the left and right, a pole does
not. Cells are some degrees wide, so that the view is much the same for sensors with few and with many beams.

    R rays, F features, E elevations (lowest first), A azimuths (from straight behind, counter-clockwise)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry.se3 import FloatArray

ELEVATIONS, AZIMUTHS = 40, 180  # cells
LOWEST_RAD, HIGHEST_RAD = np.deg2rad(-30.0), np.deg2rad(20.0)  # rays beyond count as the lowest or highest
CELLS = ELEVATIONS * AZIMUTHS


@dataclass(frozen=True)
class RangeView:
    """Means of the features of the rays in each cell, and 1; all 0 where there are no rays: (F + 1, E, A)."""

    values: NDArray[np.float32]

    @classmethod
    def of(cls, features: NDArray[np.float32], cells: NDArray[np.int64]) -> RangeView:
        """Features (R, F) of rays and their cells (R,)."""
        counts = np.bincount(cells, minlength=CELLS)
        sums = [np.bincount(cells, weights=feature, minlength=CELLS) for feature in features.T]
        values = np.stack([*(total / np.maximum(counts, 1) for total in sums), counts > 0])
        return cls(values.reshape(-1, ELEVATIONS, AZIMUTHS).astype(np.float32))


def cells_of(directions: FloatArray) -> NDArray[np.int64]:
    """(R, 3) unit directions in the lidar's frame -> (R,) which cell of the view each lies in: row E, column A.

    >>> cells_of(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])) % AZIMUTHS
    array([ 90, 135])
    """
    turn = (np.arctan2(directions[:, 1], directions[:, 0]) + np.pi) / (2 * np.pi)
    height = (np.arcsin(np.clip(directions[:, 2], -1, 1)) - LOWEST_RAD) / (HIGHEST_RAD - LOWEST_RAD)
    column = np.minimum((turn * AZIMUTHS).astype(np.int64), AZIMUTHS - 1)
    row = np.clip(np.floor(height * ELEVATIONS).astype(np.int64), 0, ELEVATIONS - 1)
    return np.asarray(row * AZIMUTHS + column)

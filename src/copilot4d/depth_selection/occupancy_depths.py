"""Occupancy depths: where a network that predicts occupancy, and knows no tokens, lets the same rays stop.

The world model is trained to name tokens, an occupancy network of the 4D-Occ kind to tell where rays stop. The one is
sharp and samples futures; the other is coarse, but was trained on depths alone, also where nothing was measured. A
selector that has both chooses between them ray by ray.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from copilot4d.baselines.occupancy_4d import FutureOccupancy
from copilot4d.geometry import Rays
from copilot4d.geometry.se3 import FloatArray


@dataclass(frozen=True)
class OccupancyDepths:
    """Of R rays: the median and the mean depth of where a ray stops, and how much of it is stopped in the region."""

    depths_m: NDArray[np.float32]
    means_m: NDArray[np.float32]
    opacity: NDArray[np.float32]

    @classmethod
    def of(cls, predicted: FutureOccupancy, rays: Rays, world_from_lidar: FloatArray, step: int) -> OccupancyDepths:
        """Of rays of a lidar at this pose. Later steps than the network predicts are empty: nothing stops a ray."""
        found = predicted.along(rays, world_from_lidar, min(step, predicted.steps - 1))
        is_predicted = 1.0 if step < predicted.steps else 0.0
        reading = replace(found, rendered=found.rendered._replace(opacity=found.rendered.opacity * is_predicted))
        rendered = reading.rendered
        values = (reading.answered(rendered.median_m), reading.answered(reading.mean_m), rendered.opacity)
        return cls(*(value.cpu().numpy() for value in values))

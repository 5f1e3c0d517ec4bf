"""A second opinion: what a network that foresees occupancy, and knows no tokens, says along the same rays.

The world model is trained to name tokens, an occupancy network of the 4D-Occ kind to tell where rays stop. The one is
sharp and samples futures; the other is coarse, but was taught by depths alone what to expect where nothing was seen. A
gate that has both chooses between them ray by ray.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from copilot4d.baselines.occupancy_4d import Foreseen
from copilot4d.geometry import Rays
from copilot4d.geometry.se3 import FloatArray


@dataclass(frozen=True)
class Opinion:
    """Of R rays: the median and the mean depth of where a ray stops, and how much of it is stopped in the region."""

    depths_m: NDArray[np.float32]
    means_m: NDArray[np.float32]
    opacity: NDArray[np.float32]

    @classmethod
    def of(cls, foreseen: Foreseen, rays: Rays, world_from_lidar: FloatArray, step: int) -> Opinion:
        """Of rays of a lidar at this pose. Later steps than the network foresees are empty: nothing stops a ray."""
        found = foreseen.along(rays, world_from_lidar, min(step, foreseen.steps - 1))
        is_foreseen = 1.0 if step < foreseen.steps else 0.0
        seen = replace(found, seen=found.seen._replace(opacity=found.seen.opacity * is_foreseen))
        values = (seen.answered(seen.seen.median_m), seen.answered(seen.mean_m), seen.seen.opacity)
        return cls(*(value.cpu().numpy() for value in values))

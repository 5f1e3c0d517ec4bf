"""`RayReading`: what rays read in a decoded scene, which depths are selected for them, and the sweeps that they make.

R rays
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from copilot4d.depth_selection import Candidates, DepthSelector, Measured, OccupancyDepths, candidates
from copilot4d.depth_selection.candidates import MEASURED
from copilot4d.forecaster import ImaginedFrame
from copilot4d.geometry import BeamPattern, Rays, sweep_on
from copilot4d.geometry.se3 import FloatArray


@dataclass(frozen=True)
class RayReading:
    """Of R rays in one scene, all (R,): depths, also where nothing returns, opacities, what returned, and where rays
    leave the region.
    """

    depths_m: FloatArray
    opacity: FloatArray
    returned: np.ndarray
    exits_m: FloatArray
    occupancy: OccupancyDepths | None = None  # on the same rays

    def candidates(self, measured: Measured, rays: Rays) -> Candidates:
        """The depths that may be selected."""
        return candidates(measured, rays, self.depths_m, self.opacity, self.exits_m, self.occupancy)

    def select(self, selector: DepthSelector, measured: Measured, rays: Rays) -> RayReading:
        """The same rays with the depths that the selector chooses: rendered, measured, or of the occupancy network."""
        found = self.candidates(measured, rays)
        chosen = selector.choose(found)[:, None]
        depths = np.take_along_axis(found.depths_m, chosen, axis=1)[:, 0]
        returns = np.take_along_axis(found.returns, chosen, axis=1)[:, 0]
        # A beam comes back from what was measured on it, from what is rendered, and from where the occupancy network is
        # sure of a surface; not from a guess between beams.
        returned = returns | (self.returned & (chosen[:, 0] < MEASURED))
        return replace(self, depths_m=depths, returned=returned)

    def to_sweep(
        self, rays: Rays, world_from_lidar: FloatArray, timestamp_ns: int, *, pattern: BeamPattern | None
    ) -> ImaginedFrame:
        """A point for every ray, as scores need it; with the sensor's pattern, only of the beams that come back."""
        if pattern is None:
            sweep = sweep_on(rays, self.depths_m, world_from_lidar, timestamp_ns)
            return ImaginedFrame(sweep=sweep, depths=self.depths_m, opacity=self.opacity)
        kept = self.returned & (self.depths_m <= pattern.max_range_m)
        sweep = sweep_on(rays[kept], self.depths_m[kept], world_from_lidar, timestamp_ns)
        return ImaginedFrame(sweep=sweep, opacity=self.opacity[kept])

"""`Seen`: what rays see in a decoded scene, and the sweeps that it makes.

R rays
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from copilot4d.copy_path import Candidates, CopyGate, Measured, Opinion, candidates
from copilot4d.copy_path.candidates import MEASURED
from copilot4d.geometry import BeamPattern, Rays, sweep_on
from copilot4d.geometry.se3 import FloatArray
from copilot4d.imagination import ImaginedFrame


@dataclass(frozen=True)
class Seen:
    """What R rays see in one scene, all (R,): depths, also where nothing returns, opacities, what returned, and where
    rays leave the region.
    """

    depths_m: FloatArray
    opacity: FloatArray
    returned: np.ndarray
    exits_m: FloatArray
    second: Opinion | None = None  # on the same rays

    def candidates(self, measured: Measured, rays: Rays) -> Candidates:
        """What the rays may be answered."""
        return candidates(measured, rays, self.depths_m, self.opacity, self.exits_m, self.second)

    def copying(self, gate: CopyGate, measured: Measured, rays: Rays) -> Seen:
        """The same with the depths that the past measured, or the second opinion's, where the gate believes them."""
        found = self.candidates(measured, rays)
        chosen = gate.choose(found)[:, None]
        depths = np.take_along_axis(found.depths_m, chosen, axis=1)[:, 0]
        returns = np.take_along_axis(found.returns, chosen, axis=1)[:, 0]
        # A beam comes back from what was measured on it, from what is imagined, and from where the second opinion is
        # sure of a surface; not from a guess between beams.
        returned = returns | (self.returned & (chosen[:, 0] < MEASURED))
        return replace(self, depths_m=depths, returned=returned)

    def on(self, rays: Rays, world_from_lidar: FloatArray, timestamp_ns: int) -> ImaginedFrame:
        """A point for every ray: what scoring asks for."""
        sweep = sweep_on(rays, self.depths_m, world_from_lidar, timestamp_ns)
        return ImaginedFrame(sweep=sweep, depths=self.depths_m, opacity=self.opacity)

    def generated(self, pattern: BeamPattern, world_from_lidar: FloatArray, timestamp_ns: int) -> ImaginedFrame:
        """The points of the beams that came back: what a sensor would give."""
        kept = self.returned & (self.depths_m <= pattern.max_range_m)
        sweep = sweep_on(pattern.rays()[kept], self.depths_m[kept], world_from_lidar, timestamp_ns)
        return ImaginedFrame(sweep=sweep, opacity=self.opacity[kept])

"""Two sets of poses for one drive: how well its sweeps fit on each other by each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from copilot4d.doctor.ground import find_ground
from copilot4d.doctor.pairs import telling_pairs
from copilot4d.doctor.registration import SweepPair, structure
from copilot4d.errors import DataError
from copilot4d.geometry import Drive, se3
from copilot4d.geometry.se3 import FloatArray

_CLEARLY = 0.9


@dataclass(frozen=True, kw_only=True)
class PoseComparison:
    """Mean distance of points from the other sweep's surfaces, by the poses of the log and by other ones, metres."""

    pairs: int
    given_m: float
    other_m: float

    @property
    def verdict(self) -> str:
        """Which poses fit better, in a sentence."""
        if not self.pairs:
            return "no two sweeps have enough structure to compare them"
        numbers = f"misfit of {self.pairs} pairs of sweeps: {self.given_m:.2f} m with the log's poses, "
        numbers += f"{self.other_m:.2f} m with the estimated ones"
        if self.other_m < _CLEARLY * self.given_m:
            return f"{numbers}: the estimated poses fit better"
        if self.given_m < _CLEARLY * self.other_m:
            return f"{numbers}: the log's poses fit better"
        return f"{numbers}: both fit equally well"


def compare_poses(drive: Drive, other: FloatArray) -> PoseComparison:
    """The log's own poses against (N, 4, 4) others, on pairs of its sweeps (x forward, z up, metres)."""
    given_m, other_m = [], []
    for frames in telling_pairs(drive):
        try:
            clouds = [_structure(drive, frame) for frame in frames]
        except DataError:
            continue  # a finding says so
        pair = SweepPair.of(*clouds)
        if pair is not None:
            motions = [se3.relative_motion(p[frames.earlier], p[frames.later]) for p in (drive.world_from_lidar, other)]
            by_given, by_other = pair.misfits_m(np.stack(motions))
            given_m.append(by_given)
            other_m.append(by_other)
    if not given_m:
        return PoseComparison(pairs=0, given_m=float("nan"), other_m=float("nan"))
    return PoseComparison(pairs=len(given_m), given_m=float(np.mean(given_m)), other_m=float(np.mean(other_m)))


def _structure(drive: Drive, frame: int) -> FloatArray:
    points = drive[frame].points
    ground = find_ground(points)
    return structure(points, -ground.origin_height if ground is not None and ground.up == "+z" else None)

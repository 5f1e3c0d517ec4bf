"""What single sweeps say: how many points, how far, from where, and whether some are not usable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from copilot4d.doctor.finding import Finding, listed, problem
from copilot4d.geometry import Sweep
from copilot4d.geometry.se3 import FloatArray

_AT_ORIGIN = 1e-3
_MOST_AT_ORIGIN = 0.01  # of a sweep's points
_ORIGIN_STEP = 0.05  # origins nearer than this are one sensor


@dataclass(frozen=True, kw_only=True)
class CloudFacts:
    """One sweep in numbers. Lengths are in the points' own unit."""

    frame: int
    points: int
    at_origin: int
    range_median: float
    range_far: float  # 99th percentile
    range_max: float
    origins: tuple[tuple[float, float, float], ...]  # distinct ray origins

    @property
    def empty(self) -> bool:
        """No usable point."""
        return self.points - self.at_origin <= 0


def read_cloud(frame: int, sweep: Sweep) -> CloudFacts:
    """The facts of one sweep."""
    ranges = np.linalg.norm(sweep.points - _origins(sweep), axis=1)
    far = ranges[ranges > _AT_ORIGIN]
    some = far if len(far) else np.array([np.nan])
    middle, distant = np.percentile(some, [50, 99])
    return CloudFacts(
        frame=frame,
        points=len(sweep),
        at_origin=len(ranges) - len(far),
        range_median=float(middle),
        range_far=float(distant),
        range_max=float(some.max()),
        origins=distinct_origins(sweep),
    )


def distinct_origins(sweep: Sweep) -> tuple[tuple[float, float, float], ...]:
    """Where the sweep's rays start, in its own frame: one place per sensor."""
    if sweep.origins is None or not len(sweep):
        return ((0.0, 0.0, 0.0),)
    places = np.unique(np.round(sweep.origins / _ORIGIN_STEP).astype(np.int64), axis=0) * _ORIGIN_STEP
    return tuple((float(x), float(y), float(z)) for x, y, z in places)


def check_clouds(where: str, clouds: Sequence[CloudFacts]) -> list[Finding]:
    """Findings about empty sweeps and points that are no returns."""
    findings = []
    empty = [c.frame for c in clouds if c.empty]
    if empty:
        findings.append(problem(
            "sweep-empty", where, "Sweeps hold no usable point", f"frames {listed(empty)}",
            "copy these sweeps again, or remove them with their poses and times",
        ))  # fmt: skip
    padded = [c for c in clouds if not c.empty and c.at_origin > _MOST_AT_ORIGIN * c.points]
    if padded:
        worst = max(padded, key=lambda c: c.at_origin / c.points)
        findings.append(problem(
            "points-at-origin", where, "Many points lie at the sensor itself: rays without a return, written as 0 0 0",
            f"up to {worst.at_origin / worst.points:.0%} of a sweep (frame {worst.frame})",
            "drop points at 0 0 0: they would be scored as returns at no distance",
        ))  # fmt: skip
    return findings


def check_origins(where: str, clouds: Sequence[CloudFacts], origin_height_m: float | None) -> list[Finding]:
    """Whether the rays start where a lidar can be."""
    if not clouds:
        return []
    origins: FloatArray = np.array(sorted({o for c in clouds for o in c.origins}))
    far = np.linalg.norm(origins, axis=1).max()
    if far > 10:
        return [problem(
            "origins-far", where, "Rays start far from their sweep's own frame",
            f"an origin {far:.1f} from it", "give the origins in the sweep's own lidar frame, in metres",
        )]  # fmt: skip
    if len(origins) == 1 and not origins.any() and origin_height_m is not None and abs(origin_height_m) < 0.25:
        return [problem(
            "origins-on-ground", where, "The points' origin lies on the ground, not at the lidar",
            f"the ground is {abs(origin_height_m):.2f} m from the origin, so every ray would start there",
            "give the points in the lidar's frame (subtract the lidar's position on the vehicle), with poses of the "
            "lidar; or keep the frame and give each point its ray origin",
        )]  # fmt: skip
    return []


def _origins(sweep: Sweep) -> FloatArray:
    return sweep.point_origins

"""`ray_tracing`: all past sweeps gathered into one static cloud, and each ray takes the range of what it points at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from copilot4d.baselines.angular import nearest_in_angle
from copilot4d.baselines.deterministic import DeterministicForecaster, newest_with_points
from copilot4d.errors import UsageError
from copilot4d.forecaster import future_timestamps
from copilot4d.geometry import Rays, Sweep, se3, sweep_on
from copilot4d.geometry.se3 import FloatArray


class RayTracing(DeterministicForecaster):
    """The gathered past, seen from each future origin along each ray (as 4D-Occ's baseline of that name).

    Each ray takes the range of the gathered point that is nearest to it in angle. Without rays, the directions of the
    newest sweep's own points stand for the sensor's beams.

    age_deg: how many degrees further off a point counts for each sweep that it is older than the newest. At 0, the
    published definition, a car that moves leaves a trail of all its past places; a small age_deg thins it out. The name
    says it, so that scores of the two never pass for each other.
    """

    def __init__(self, *, age_deg: float = 0.0, name: str | None = None) -> None:
        if not 0 <= age_deg < np.inf:
            raise UsageError(f"RayTracing(age_deg) must be at least 0 degrees, got {age_deg}")
        self.age_deg = age_deg
        self.name = name or ("ray_tracing" if age_deg == 0 else f"ray_tracing_age_{age_deg:g}")

    def predict(
        self, past: Sequence[Sweep], future_poses: FloatArray, rays: Sequence[Rays] | None
    ) -> tuple[list[Sweep], list[FloatArray]]:
        """See `DeterministicForecaster.predict`."""
        world_from_reference = past[-1].world_from_lidar
        gathered = gather(past, world_from_reference)  # (N, 3) in the reference frame
        handicaps = self._handicaps(past)
        asked = rays if rays is not None else [newest_with_points(past).rays()[0]] * len(future_poses)
        sweeps, depths = [], []
        for pose, its_rays, timestamp_ns in zip(
            future_poses, asked, future_timestamps(past, len(future_poses)), strict=True
        ):
            future_from_reference = se3.relative_motion(pose, world_from_reference)
            seen = se3.transform_points(future_from_reference, gathered)
            depth = nearest_in_angle(seen, its_rays, handicaps=handicaps).ranges_m[:, 0]
            sweeps.append(sweep_on(its_rays, depth, pose, timestamp_ns))
            depths.append(depth)
        return sweeps, depths

    def _handicaps(self, past: Sequence[Sweep]) -> FloatArray | None:
        """(N,) radians, one per gathered point."""
        if self.age_deg == 0:
            return None
        ages = np.arange(len(past))[::-1]
        return np.repeat(np.deg2rad(self.age_deg) * ages, [len(sweep) for sweep in past])


def gather(past: Sequence[Sweep], world_from_reference: FloatArray) -> NDArray[np.float32]:
    """(N, 3): the points of all sweeps in the reference frame."""
    reference_from_world = se3.invert(world_from_reference)
    return np.concatenate([sweep.points_in(reference_from_world) for sweep in past])

"""How one moment may be scanned: by another sensor, with rays lost, noise on ranges, a sensor that sways.

A token should describe the street and not the scan. So the encoder reads one scan of a moment, made worse at random,
and the decoder is asked about rays of that scan and of another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from copilot4d.errors import UsageError
from copilot4d.geometry import Drive, Sweep, se3
from copilot4d.geometry.se3 import FloatArray


@dataclass(frozen=True, kw_only=True)
class ScanConfig:
    """How much the encoder's scan is changed; what the decoder is asked about stays true."""

    dropped_share: float = 0.0
    """Largest share of points that the encoder does not get."""
    jitter_m: float = 0.0
    """Standard deviation of the noise on the encoder's ranges, in metres."""
    sway_deg: float = 0.0
    """Largest pitch and roll of all scans of a moment, in degrees."""

    def __post_init__(self) -> None:
        if not 0 <= self.dropped_share < 1:
            raise UsageError(f"`scan.dropped_share` must lie in [0, 1), got {self.dropped_share}")
        if not 0 <= self.jitter_m < math.inf or not 0 <= self.sway_deg < 90:
            raise UsageError(
                f"`scan.jitter_m` must not be negative and `scan.sway_deg` must lie in [0, 90), got {self.jitter_m} "
                f"and {self.sway_deg}"
            )

    def sway(self, generator: np.random.Generator) -> FloatArray:
        """(4, 4) a small pitch and roll."""
        pitch, roll = np.deg2rad(self.sway_deg) * generator.uniform(-1, 1, size=2)
        nod = np.array([[np.cos(pitch), 0, np.sin(pitch)], [0, 1, 0], [-np.sin(pitch), 0, np.cos(pitch)]])
        lean = np.array([[1, 0, 0], [0, np.cos(roll), -np.sin(roll)], [0, np.sin(roll), np.cos(roll)]])
        return se3.from_rotation_translation(nod @ lean, np.zeros(3))

    def degraded(self, sweep: Sweep, generator: np.random.Generator) -> Sweep:
        """What the encoder gets of a sweep."""
        if self.dropped_share:
            share = self.dropped_share * generator.random()
            sweep = sweep.select(np.flatnonzero(generator.random(len(sweep)) >= share))
        if self.jitter_m:
            beams = sweep.points - sweep.point_origins
            length = np.linalg.norm(beams, axis=-1, keepdims=True)
            noise = self.jitter_m * generator.standard_normal((len(sweep), 1))
            moved = sweep.points + beams * (noise / np.maximum(length, 0.1))
            sweep = replace(sweep, points=moved.astype(np.float32))
        return sweep


def moved_into(sweep: Sweep, frame_from_sweep: FloatArray) -> Sweep:
    """A sweep in another frame, its rays with it."""
    return replace(
        sweep,
        points=se3.transform_points(frame_from_sweep, sweep.points).astype(np.float32),
        origins=se3.transform_points(frame_from_sweep, sweep.point_origins).astype(np.float32),
        world_from_lidar=sweep.world_from_lidar @ se3.invert(frame_from_sweep),
    )


def matched_drives(drives: Sequence[Drive], others: Mapping[str, Drive]) -> tuple[Drive | None, ...]:
    """For each drive the one of the same name by another sensor, None where there is none.

    Both must have the same sweeps at the same times.
    """
    matched = tuple(others.get(drive.name) for drive in drives)
    for drive, other in zip(drives, matched, strict=True):
        if other is None:
            continue
        if len(other) != len(drive) or np.abs(other.timestamps_ns - drive.timestamps_ns).max(initial=0) > 0:
            raise UsageError(
                f"drive {drive.name} and its other scan must have sweeps at the same times, got {len(drive)} and "
                f"{len(other)} sweeps that differ; simulate both at one rate"
            )
    if drives and not any(other is not None for other in matched):
        raise UsageError(
            f"`other_scans` holds none of the {len(drives)} drives to train on (the first is {drives[0].name}); it "
            "must have drives of the same names"
        )
    return matched

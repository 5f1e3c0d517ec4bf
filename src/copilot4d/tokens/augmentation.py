"""Augmentation of lidar clips: a mirror in y, a turn about z and a shift along the ground, with poses that follow.

Both keep a static world static: with `A` the change of each sweep's own frame, points become `A p` and poses become
`B world_from_lidar A^-1`, where B mirrors the world too (poses must stay rigid motions) or is the identity (turn).
After a turn the vehicle drives at an angle in its own frame, as if the lidar had been mounted turned. After a shift
the sensor is not at the frame's origin: so a sweep looks in the frame of another moment, where a world model with
`token_frame: reference` wants it tokenised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from copilot4d.errors import UsageError
from copilot4d.geometry import Clip, Drive, Sweep, se3
from copilot4d.geometry.se3 import FloatArray

MIRROR_Y = np.diag([1.0, -1.0, 1.0, 1.0])


@dataclass(frozen=True, kw_only=True)
class AugmentationConfig:
    """How much to augment: the chance of a mirror, the largest turn to either side, the largest shift."""

    mirror_probability: float = 0.5
    """Probability that a sample is mirrored."""
    max_yaw_deg: float = 180.0
    """Largest rotation about the vertical axis, to either side, in degrees."""
    max_shift_m: float = 0.0
    """Largest horizontal shift in metres. A third of the samples are not shifted."""

    def __post_init__(self) -> None:
        if not 0 <= self.mirror_probability <= 1:
            raise UsageError(f"`augmentation.mirror_probability` must lie in [0, 1], got {self.mirror_probability}")
        if not 0 <= self.max_yaw_deg <= 180:
            raise UsageError(f"`augmentation.max_yaw_deg` must lie in [0, 180], got {self.max_yaw_deg}")

        if not 0 <= self.max_shift_m < math.inf:
            raise UsageError(f"`augmentation.max_shift_m` must be a distance, at least 0, got {self.max_shift_m}")

    def draw(self, generator: np.random.Generator) -> Augmentation:
        """One augmentation. The generator comes from a counter (`SampleKey.generator("augmentation")`)."""
        mirror = bool(generator.random() < self.mirror_probability)
        yaw = math.radians(self.max_yaw_deg) * float(generator.uniform(-1, 1))
        if not self.max_shift_m:
            return Augmentation(mirror=mirror, yaw_rad=yaw)
        length = self.max_shift_m * max(0.0, float(generator.uniform(-0.5, 1)))
        angle = float(generator.uniform(0, 2 * math.pi))
        return Augmentation(mirror=mirror, yaw_rad=yaw, shift_m=(length * math.cos(angle), length * math.sin(angle)))


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """One augmentation, the same for all sweeps of a clip: mirror in y first, then a turn and a shift of all points."""

    mirror: bool = False
    yaw_rad: float = 0.0  # points turn counter-clockwise, seen from above
    shift_m: tuple[float, float] = (0.0, 0.0)  # along x and y, last

    @property
    def augmented_from_lidar(self) -> FloatArray:
        """(4, 4) the change of a sweep's own frame; with a mirror it is not a rigid motion."""
        change = se3.from_yaw(self.yaw_rad)
        change[:2, 3] = self.shift_m
        return change @ MIRROR_Y if self.mirror else change

    def pose(self, world_from_lidar: FloatArray) -> FloatArray:
        """(..., 4, 4) poses of the augmented sweeps: rigid, in the (possibly mirrored) world."""
        lidar_from_augmented = np.linalg.inv(self.augmented_from_lidar)
        augmented = world_from_lidar @ lidar_from_augmented
        return MIRROR_Y @ augmented if self.mirror else augmented

    def sweep(self, sweep: Sweep) -> Sweep:
        """The augmented sweep."""
        change = self.augmented_from_lidar
        centred = sweep.origins is None and not any(self.shift_m)
        return replace(
            sweep,
            points=se3.transform_points(change, sweep.points),
            origins=None if centred else se3.transform_points(change, sweep.point_origins),
            world_from_lidar=self.pose(sweep.world_from_lidar),
        )

    def clip(self, clip: Clip) -> Clip:
        """The augmented clip."""
        past = tuple(self.sweep(s) for s in clip.past)
        return replace(clip, past=past, future=tuple(self.sweep(s) for s in clip.future))

    def drive(self, drive: Drive) -> Drive:
        """The augmented drive, as lazy as the drive.

        Returns from the ego's own body are dropped first, because their box is not aligned with the axes after a turn.
        """
        return replace(
            drive,
            world_from_lidar=self.pose(drive.world_from_lidar),
            read=partial(_read_augmented, self, drive),
            ego_box=None,
        )


def _read_augmented(augmentation: Augmentation, drive: Drive, frame: int) -> Sweep:
    """Not a lambda: loader workers that are started anew (not forked) get it by pickling."""
    return augmentation.sweep(drive.read(frame).without_box(drive.ego_box))

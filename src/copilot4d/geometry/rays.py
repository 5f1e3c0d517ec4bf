"""Rays: a point seen by a sensor is an origin, a unit direction and a depth.

`Rays` are in one frame, which the caller's name says. `box` is (6,): xmin, ymin, zmin, xmax, ymax, zmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray


class RaySegment(NamedTuple):
    """Where rays run through a box: depths of entry and exit, and whether they meet it at all.

    A ray that starts inside enters at 0. Where `hits` is False both depths are NaN.
    """

    entry: FloatArray  # (N,)
    exit: FloatArray  # (N,)
    hits: NDArray[np.bool_]  # (N,)


@dataclass(frozen=True)
class Rays:
    """N rays in one frame: origins (N, 3) and unit directions (N, 3), of one floating dtype."""

    origins: FloatArray
    directions: FloatArray

    def __repr__(self) -> str:
        return f"Rays({len(self.directions):,})"

    def __post_init__(self) -> None:
        if self.origins.shape != self.directions.shape or self.origins.ndim != 2 or self.origins.shape[-1] != 3:
            raise UsageError(
                f"Rays need origins and directions of one shape (N, 3), got {self.origins.shape} and "
                f"{self.directions.shape}; broadcast a shared origin with Rays.from_origin"
            )

    def __len__(self) -> int:
        return len(self.directions)

    @classmethod
    def from_origin(cls, origin: FloatArray, directions: FloatArray) -> Rays:
        """Rays that share one origin (3,)."""
        origin = np.asarray(origin, dtype=directions.dtype)
        return cls(np.broadcast_to(origin, directions.shape), directions)

    @classmethod
    def joined(cls, parts: Sequence[Rays]) -> Rays:
        """The rays of several, one after another; all in one frame."""
        return cls(
            np.concatenate([part.origins for part in parts]), np.concatenate([part.directions for part in parts])
        )  # fmt: skip

    def points_at(self, depths: FloatArray) -> FloatArray:
        """(N,) depths -> (N, 3) points."""
        return self.origins + self.directions * depths[:, None]

    def transformed(self, a_from_b: FloatArray) -> Rays:
        """These rays (in b) expressed in a."""
        return Rays(se3.transform_points(a_from_b, self.origins), se3.rotate_vectors(a_from_b, self.directions))

    def __getitem__(self, selection: NDArray[np.bool_] | NDArray[np.integer] | slice) -> Rays:
        """The rays of a mask, of indices, or of a slice."""
        return Rays(self.origins[selection], self.directions[selection])


def rays_through(points: FloatArray, origins: FloatArray) -> tuple[Rays, FloatArray]:
    """(N, 3) points and their sensor's origin, (3,) or (N, 3) -> rays and depths (N,), so that rays.points_at(depths)
    gives the points back. A point on its origin gets depth 0 and direction +x.
    """
    points = np.asarray(points)
    origins = np.broadcast_to(np.asarray(origins, dtype=points.dtype), points.shape)
    offsets = points - origins
    depths = np.linalg.norm(offsets, axis=-1)
    forward = np.array([1, 0, 0], dtype=points.dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        directions = np.where(depths[:, None] > 0, offsets / depths[:, None], forward)
    return Rays(origins, directions.astype(points.dtype, copy=False)), depths


def intersect_box(rays: Rays, box: FloatArray) -> RaySegment:
    """Where each ray runs through a closed box, by slabs. A ray that only touches a face or an edge counts as a hit."""
    low, high = np.asarray(box[:3], dtype=rays.origins.dtype), np.asarray(box[3:], dtype=rays.origins.dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = 1 / rays.directions
        first, second = (low - rays.origins) * inverse, (high - rays.origins) * inverse
    # A ray parallel to a slab gives 0 * inf = NaN exactly when it runs in the slab's face: never a limit then.
    near = np.where(np.isnan(first) | np.isnan(second), -np.inf, np.minimum(first, second)).max(axis=-1)
    far = np.where(np.isnan(first) | np.isnan(second), np.inf, np.maximum(first, second)).min(axis=-1)
    near = np.maximum(near, 0)
    hits = near <= far
    nan = np.array(np.nan, dtype=near.dtype)
    return RaySegment(np.where(hits, near, nan), np.where(hits, far, nan), hits)


def inside_box(points: FloatArray, box: FloatArray) -> NDArray[np.bool_]:
    """(..., 3) -> (...,) whether points lie in the closed box, compared in the points' own precision."""
    x, y, z = points[..., 0], points[..., 1], points[..., 2]  # by column: six times as fast as all(axis=-1)
    inside = (x >= box[0]) & (x <= box[3]) & (y >= box[1]) & (y <= box[4]) & (z >= box[2]) & (z <= box[5])
    return np.asarray(inside)


@dataclass(frozen=True)
class BeamPattern:
    """What a spinning sensor fires in one sweep: unit directions (N, 3) in its own frame, and how far it can see."""

    directions: FloatArray
    max_range_m: float

    def rays(self) -> Rays:
        """The pattern as rays from the sensor's own origin."""
        return Rays.from_origin(np.zeros(3), self.directions)

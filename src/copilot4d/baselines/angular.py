"""Which points lie nearest in angle to given rays, as seen from where those rays start.

Directions are compared as unit vectors by their chord, which grows with the angle: there is no seam at +-180 degrees
and no distortion near the poles, unlike a comparison of azimuths and elevations.

    R rays, N points, K neighbours
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pykdtree.kdtree import KDTree

from copilot4d.errors import ForecastError
from copilot4d.geometry import Rays
from copilot4d.geometry.se3 import FloatArray

EXACT_ORIGINS = 8  # up to so many distinct origins (lidars) each get their own view of the points
ORIGIN_CELL_M = 0.1  # beyond that (an origin per firing) origins that share a cell of this size share a view


class AngularMatches(NamedTuple):
    """Per ray its K nearest points, nearest first. Where fewer exist, index is -1 and the other two are infinite."""

    indices: NDArray[np.int64]  # (R, K) into the points
    chords: NDArray[np.float32]  # (R, K) distance of the unit vectors: 2 sin(angle / 2)
    ranges_m: NDArray[np.float32]  # (R, K) from the ray's origin to the point


def nearest_in_angle(
    points: FloatArray, rays: Rays, neighbours: int = 1, *, handicaps: FloatArray | None = None
) -> AngularMatches:
    """(N, 3) points and R rays in one frame -> the `neighbours` points nearest to each ray in angle.

    handicaps: (N,) radians >= 0, how far off a point counts in addition to its angle: the nearest by
    sqrt(chord^2 + handicap^2), which is then what `chords` holds.
    Points that coincide with a ray's origin have no direction and are never chosen, nor are points that are not finite.
    """
    if not (np.isfinite(rays.origins).all() and np.isfinite(rays.directions).all()):
        raise ForecastError("rays must have finite origins and directions; some here have NaN or infinity")
    indices = np.full((len(rays), neighbours), -1, dtype=np.int64)
    chords = np.full((len(rays), neighbours), np.inf, dtype=np.float32)
    ranges_m = np.full((len(rays), neighbours), np.inf, dtype=np.float32)
    directions = np.ascontiguousarray(rays.directions, dtype=np.float32)
    points = np.asarray(points, dtype=np.float32)
    for origin, members in rays_by_origin(rays):
        offsets = points - origin.astype(np.float32)
        distance = np.sqrt(np.einsum("ij,ij->i", offsets, offsets))
        seen = np.flatnonzero((distance > 0) & (distance < np.inf))
        if len(seen) == 0:
            raise ForecastError("none of the points can be seen from the rays' origin: there is no range to give")
        if len(seen) < len(points):
            offsets, distance = offsets[seen], distance[seen]
        count = min(neighbours, len(seen))
        units, queries = offsets / distance[:, None], directions[members]
        if handicaps is not None:  # one more coordinate, in which every ray is at 0
            units = np.column_stack([units, np.asarray(handicaps, dtype=np.float32)[seen]])
            queries = np.column_stack([queries, np.zeros(len(queries), dtype=np.float32)])
        chord, found = KDTree(units).query(queries, k=count)
        found = found.reshape(-1, count).astype(np.int64)
        indices[members, :count] = seen[found]
        chords[members, :count] = chord.reshape(-1, count)
        ranges_m[members, :count] = distance[found]
    return AngularMatches(indices, chords, ranges_m)


def rays_by_origin(rays: Rays) -> Iterator[tuple[FloatArray, NDArray[np.int64]]]:
    """(origin (3,), indices of the rays that start there): one group per lidar, so usually one or two."""
    groups: list[tuple[FloatArray, NDArray[np.int64]]] = []
    rest = np.arange(len(rays))
    while len(rest) and len(groups) < EXACT_ORIGINS:
        origin = rays.origins[rest[0]]
        here = (rays.origins[rest] == origin).all(axis=1)
        groups.append((origin, rest[here]))
        rest = rest[~here]
    if len(rest) == 0:
        yield from groups
        return
    cells = np.floor(rays.origins / ORIGIN_CELL_M).astype(np.int64)
    _, cell = np.unique(cells, axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    for i in range(int(cell.max()) + 1):
        members = np.flatnonzero(cell == i)
        yield rays.origins[members].mean(axis=0, dtype=np.float64), members

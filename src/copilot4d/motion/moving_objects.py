"""Moving objects in the past sweeps: which points belong together, and how fast they go. No labels, poses alone.

A point may move if an older beam has passed the place where it is, or if few older sweeps have hit anything there. What
may move in the newest sweep is grouped, and each group tries all velocities: carried back in time, it must lie on
points of the older sweeps that may move, and not where their beams have passed. It moves if that fits clearly better
than standing still. Everything is seen from above, in the frame of the newest sweep.

S sweeps, N points, G points of a group, V velocities
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from copilot4d.compiled import compiled
from copilot4d.geometry import Sweep, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.motion.depth_map import DepthMap

HALF_M = 48.0  # how far from the newest sensor things are looked for
CELL_M = 0.25
CELLS = round(2 * HALF_M / CELL_M)
THIN_M = 0.2  # of the points in a cube of this size one is enough to find motion
ABOVE_GROUND_M = (0.3, 3.5)  # things that move stand on the ground
GROUND_CELL_M = 1.0
NO_GROUND_M = -1.8  # under the sensor, where nothing was measured
CLOSENESS = (1.0, 0.7, 0.25)  # of a place to points in its cell, beside it, two cells away
HIT = 0.7  # from this closeness on, a sweep has hit something at a place

FASTEST_M_S = 20.0
LONGEST_M = 14.0  # groups that are longer are no vehicles
MOST_POINTS, TRIED = 48, 40  # of a group in the search; velocities that are tried against passed places, too
PER_M_S = 0.004  # what speed costs: of two velocities that fit alike the slower one
PASSED = 0.7  # what a point costs that would have been where an older beam passed
STANDS = 0.75  # groups that fit standing still so well are not tried
PER_SWEEP = 0.75  # how much less each older sweep counts
SLOWEST_M_S = 0.5
LEAST_POINTS, SURE_POINTS = 4, 10  # of a group; from the second on it needs less evidence
LEAST_FIT, LEAST_GAIN = (0.45, 0.3), (0.3, 0.15)  # of small groups, of larger ones; over standing still


@dataclass(frozen=True)
class PastPoints:
    """The points of one sweep that stand on the ground, thinned out, in the frame of the newest sweep."""

    above: NDArray[np.int64]  # which of the sweep's points stand on the ground
    cube_of: NDArray[np.int64]  # (len(above),) which thinned point stands for each of them
    points: FloatArray  # (N, 3) thinned
    passed: NDArray[np.int64]  # (N,) by the beams of how many other sweeps
    hits: NDArray[np.int64]  # (N,) in how many other sweeps something is there
    is_left: NDArray[np.bool_]  # (N,) passed by the newest sweep's beams, which hit nothing there

    def may_move(self, most_hits: int) -> NDArray[np.bool_]:
        """(N,) whether a point may have moved."""
        return (self.passed > 0) | (self.hits <= most_hits)


@dataclass(frozen=True)
class MovingObject:
    """A group of points of the newest sweep, as numbers of its `PastPoints`, and its velocity along the ground."""

    members: NDArray[np.int64]
    velocity_m_s: FloatArray  # (2,)


@dataclass(frozen=True)
class MovingObjects:
    """What moves in the past sweeps. The sweeps' points are in the frame of the newest one."""

    points: tuple[FloatArray, ...]  # per sweep (N, 3), all of them
    past: tuple[PastPoints, ...]  # per sweep
    times_s: FloatArray  # (S,) against the newest, 0 the last
    objects: tuple[MovingObject, ...]


def find_moving_objects(past: Sequence[Sweep]) -> MovingObjects:
    """Of sweeps, oldest first."""
    world_from_newest = past[-1].world_from_lidar
    newest_from_world = se3.invert(world_from_newest)
    points = tuple(np.asarray(sweep.points_in(newest_from_world), dtype=np.float64) for sweep in past)
    times_s = np.array([(sweep.timestamp_ns - past[-1].timestamp_ns) * 1e-9 for sweep in past])
    origins = [_origin(sweep, world_from_newest) for sweep in past]
    thinned = [_standing(p, ground) for ground in [_ground_m(np.concatenate(points))] for p in points]
    maps = [DepthMap.of(p, origin) for p, origin in zip(points, origins, strict=True)]
    everything = [closeness_map(thin[:, :2]) for _, _, thin in thinned]
    parts = []
    for k, (above, cube_of, thin) in enumerate(thinned):
        others = [j for j in range(len(past)) if j != k]
        passed, hits = np.zeros((2, len(thin)), dtype=np.int64)
        for j in others:
            passed += maps[j].passed(thin)
            hits += _look(everything[j], thin) >= HIT
        is_left = maps[-1].passed(thin) & (_look(everything[-1], thin) < HIT)
        parts.append(PastPoints(above, cube_of, thin, passed, hits, is_left))
    objects: list[MovingObject] = []
    if len(past) > 1 and times_s[-2] < 0:
        objects = _objects(parts, times_s, maps, everything)
    return MovingObjects(points, tuple(parts), times_s, tuple(objects))


def _objects(
    parts: Sequence[PastPoints], times_s: FloatArray, maps: Sequence[DepthMap], everything: Sequence[Any]
) -> list[MovingObject]:
    newest, older = parts[-1], parts[:-1]
    may = np.flatnonzero(newest.may_move(len(older) // 2))
    targets = np.stack([closeness_map(part.points[part.may_move(0)][:, :2]) for part in older])
    weights = PER_SWEEP ** np.arange(len(older), dtype=np.float64)[::-1]
    weights /= weights.sum()
    velocities = _velocities(step=min(1.0, 0.3 / -times_s[-2]))
    found = []
    for members in _groups(newest.points, may):
        group = newest.points[members]
        if len(group) < LEAST_POINTS or np.ptp(group[:, :2], axis=0).max() > LONGEST_M:
            continue
        group = np.ascontiguousarray(group[:: -(-len(group) // MOST_POINTS)])
        search = _Search(group, targets, weights, times_s[:-1], maps[:-1])
        still = search.fit(np.zeros(2), everything[:-1])
        if still > STANDS:
            continue
        velocity = search.best(velocities)
        is_sure = len(members) >= SURE_POINTS
        fit = search.fit(velocity, targets)
        if fit > LEAST_FIT[is_sure] and fit > still + LEAST_GAIN[is_sure] and np.hypot(*velocity) > SLOWEST_M_S:
            found.append(MovingObject(members, velocity))
    return found


@dataclass(frozen=True)
class _Search:
    """The velocity of one group."""

    group: FloatArray  # (G, 3)
    targets: NDArray[np.float32]  # (S - 1, CELLS, CELLS) closeness to what may move in each older sweep
    weights: FloatArray  # (S - 1,)
    times_s: FloatArray  # (S - 1,)
    maps: Sequence[DepthMap]

    def best(self, velocities: FloatArray) -> FloatArray:
        """(2,) the velocity among (V, 2), and between them, that fits best."""
        fits = np.empty(len(velocities))
        self._closeness(velocities, fits)
        cost = PER_M_S * np.linalg.norm(velocities, axis=1)
        tried = np.argsort(-(fits - cost), kind="stable")[:TRIED]
        scores = [self.fit(velocities[i], self.targets) - cost[i] for i in tried]
        rough = velocities[tried[int(np.argmax(scores))]]
        step = float(np.abs(np.diff(velocities[:2, 1])[0])) if len(velocities) > 1 else 1.0
        around = np.linspace(-1, 1, 7) * step
        fine = rough + np.stack(np.meshgrid(around, around, indexing="ij"), axis=-1).reshape(-1, 2)
        fits = np.empty(len(fine))
        self._closeness(fine, fits)
        middle: FloatArray = fine[fits >= fits.max() - 0.02].mean(0)
        return middle

    def fit(self, velocity: FloatArray, targets: Sequence[Any] | NDArray[np.float32]) -> float:
        """How well the group, carried back, lies on the targets, less what lies where older beams have passed."""
        total = 0.0
        for k, weight in enumerate(self.weights):
            there = self.group.copy()
            there[:, :2] += velocity * self.times_s[k]
            close = _look(targets[k], there)
            passed = self.maps[k].passed(there) & (close < HIT / 2)
            total += weight * float((close - PASSED * passed).mean())
        return total

    def _closeness(self, velocities: FloatArray, fits: FloatArray) -> None:
        _closeness_of(self.group, self.targets, self.weights, self.times_s, velocities, fits)


@compiled
def _closeness_of(group: Any, targets: Any, weights: Any, times_s: Any, velocities: Any, fits: Any) -> None:
    """Write the mean closeness (V,) of a group carried back by each velocity (V, 2)."""
    cells = targets.shape[1]
    for v in range(len(velocities)):
        total = 0.0
        for k in range(len(weights)):
            dx, dy = velocities[v, 0] * times_s[k] + HALF_M, velocities[v, 1] * times_s[k] + HALF_M
            close = 0.0
            for g in range(len(group)):
                x, y = int(np.floor((group[g, 0] + dx) / CELL_M)), int(np.floor((group[g, 1] + dy) / CELL_M))
                if 0 <= x < cells and 0 <= y < cells:
                    close += targets[k, x, y]
            total += weights[k] * close / len(group)
        fits[v] = total


def closeness_map(places: FloatArray) -> NDArray[np.float32]:
    """Places (N, 2) -> (CELLS, CELLS): 1 in their cells, less beside them, 0 from three cells on."""
    cells = np.floor((places + HALF_M) / CELL_M).astype(np.int64)
    cells = cells[((cells >= 0) & (cells < CELLS)).all(axis=1)]
    near = np.zeros((CELLS, CELLS), dtype=np.float32)
    near[tuple(cells.T)] = CLOSENESS[0]
    around = near
    for closeness in CLOSENESS[1:]:
        around = ndimage.maximum_filter(around, 3)
        near = np.maximum(near, np.where(around > 0, np.float32(closeness), np.float32(0)))
    return near


def _look(closeness: NDArray[np.float32], points: FloatArray) -> NDArray[np.float32]:
    """(N,) the closeness at points (N, 2 or more); 0 outside."""
    cells = np.floor((points[:, :2] + HALF_M) / CELL_M).astype(np.int64)
    inside = ((cells >= 0) & (cells < CELLS)).all(axis=1)
    cells[~inside] = 0
    return np.where(inside, closeness[tuple(cells.T)], np.float32(0))


def _velocities(step: float) -> FloatArray:
    """(V, 2) a grid of them, none faster than FASTEST_M_S."""
    half = int(FASTEST_M_S / step)
    each = np.arange(-half, half + 1) * step
    grid = np.stack(np.meshgrid(each, each, indexing="ij"), axis=-1)
    grid = grid.reshape(-1, 2)
    return np.asarray(grid[np.linalg.norm(grid, axis=1) <= FASTEST_M_S])


def _groups(points: FloatArray, chosen: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Which of the chosen points lie together: their cells touch, or have one cell between them."""
    if not len(chosen):
        return []
    cells = np.floor((points[chosen, :2] + HALF_M) / CELL_M).astype(np.int64)
    there = np.zeros((CELLS, CELLS), dtype=bool)
    there[tuple(cells.T)] = True
    labels, count = ndimage.label(ndimage.binary_dilation(there), structure=np.ones((3, 3)))
    of_point = labels[tuple(cells.T)]
    order = np.argsort(of_point, kind="stable")
    bounds = np.searchsorted(of_point[order], np.arange(1, count + 2))
    return [chosen[order[first:last]] for first, last in pairwise(bounds.tolist())]


def _standing(points: FloatArray, ground_m: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]:
    """Which points stand on the ground, which thinned one stands for each, and the thinned ones (N, 3)."""
    places = np.clip(np.floor((points[:, :2] + HALF_M) / GROUND_CELL_M).astype(np.int64), 0, len(ground_m) - 1)
    height_m = points[:, 2] - ground_m[tuple(places.T)]
    low, high = ABOVE_GROUND_M
    inside = (np.abs(points[:, :2]) < HALF_M - 1).all(axis=1)
    above = np.flatnonzero(inside & (height_m > low) & (height_m < high))
    cubes = np.floor((points[above] + HALF_M) / THIN_M).astype(np.int64)
    keys = (cubes[:, 0] * 4096 + cubes[:, 1]) * 4096 + cubes[:, 2]
    _, first, cube_of = np.unique(keys, return_index=True, return_inverse=True)
    return above, cube_of.reshape(-1), points[above][first]


def _ground_m(points: FloatArray) -> FloatArray:
    """The lowest point in cells of GROUND_CELL_M and those around them."""
    count = round(2 * HALF_M / GROUND_CELL_M)
    cells = np.floor((points[:, :2] + HALF_M) / GROUND_CELL_M).astype(np.int64)
    inside = ((cells >= 0) & (cells < count)).all(axis=1)
    lowest = np.full((count, count), np.inf)
    np.minimum.at(lowest, tuple(cells[inside].T), points[inside, 2])
    lowest = ndimage.minimum_filter(lowest, 3)
    return np.where(np.isfinite(lowest), lowest, NO_GROUND_M)


def _origin(sweep: Sweep, world_from_newest: FloatArray) -> FloatArray:
    """(3,) where a sweep's beams start, in the frame of the newest sweep."""
    newest_from_lidar = se3.relative_motion(world_from_newest, sweep.world_from_lidar)
    place = np.zeros(3) if sweep.origins is None or not len(sweep) else np.median(sweep.origins, axis=0)
    return np.asarray(se3.transform_points(newest_from_lidar, place[None].astype(np.float64))[0])

"""`ExtrapolatedPast`: the past sweeps as one cloud whose moving objects go on with constant velocity.

N points of all sweeps, M points that move
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from copilot4d.geometry import Sweep, inside_box
from copilot4d.geometry.se3 import FloatArray
from copilot4d.motion.moving_objects import MovingObject, MovingObjects, find_moving_objects

REACH_M = 1.5  # how far from the points that were seen to move others may belong to their object
OBJECT_M = 0.5  # how far from an object's points an older sweep's point may lie, carried on, and be of it
SAME_M = 0.35  # two points that are the same place of an object


@dataclass(frozen=True)
class ExtrapolatedPast:
    """All past sweeps in the frame of the newest one. What moved is where it was when the newest sweep was made."""

    points: NDArray[np.float32]  # (N, 3) of all sweeps, oldest first, as they were measured
    ages: NDArray[np.float32]  # (N,) in sweeps
    is_still: NDArray[np.bool_]  # (N,) neither of something that moves nor left behind by it
    moving: NDArray[np.float32]  # (M, 3)
    moving_ages: NDArray[np.float32]  # (M,)
    velocities_m_s: NDArray[np.float32]  # (M, 2) along the ground

    def moving_at(self, ahead_s: float) -> NDArray[np.float32]:
        """(M, 3) so long after the newest sweep."""
        there = self.moving.copy()
        there[:, :2] += np.float32(ahead_s) * self.velocities_m_s
        return there

    def newest_at(self, ahead_s: float) -> NDArray[np.float32]:
        """Points (P, 3) so long after the newest sweep: what stands still in that sweep, and all that moves."""
        return np.concatenate([self.points[self.is_still & (self.ages == 0)], self.moving_at(ahead_s)])

    def sweep_at(self, ahead_s: float, newest: Sweep, box: FloatArray) -> Sweep:
        """What the newest lidar measured, and what moves where it will be: the points in a box (6,), in its frame."""
        points = self.newest_at(ahead_s)
        return replace(newest, points=points[inside_box(points, box)], intensity=None, origins=None)


def extrapolate(past: Sequence[Sweep]) -> ExtrapolatedPast:
    """Sweeps, oldest first; of a single one nothing moves."""
    found = find_moving_objects(past)
    newest = len(past) - 1
    gone = [_left_behind(found, k) for k in range(len(past))]
    moving: list[FloatArray] = []
    ages: list[FloatArray] = []
    velocities: list[FloatArray] = []
    for thing in found.objects:
        body = found.past[newest].points[_grown(found, thing)]
        tree = cKDTree(body)
        for k, part in enumerate(found.past):
            now = part.points.copy()
            now[:, :2] -= found.times_s[k] * thing.velocity_m_s
            near = np.isfinite(tree.query(now, distance_upper_bound=OBJECT_M if k < newest else 1e-6)[0])
            if k < newest:
                near &= part.may_move(0)
            chosen = part.above[near[part.cube_of]]
            gone[k][chosen] = True
            there = found.points[k][chosen].copy()
            there[:, :2] -= found.times_s[k] * thing.velocity_m_s
            moving.append(there)
            ages.append(np.full(len(there), newest - k))
            velocities.append(np.broadcast_to(thing.velocity_m_s, (len(there), 2)))
    return ExtrapolatedPast(
        points=np.concatenate(found.points).astype(np.float32),
        ages=np.repeat(np.arange(newest, -1, -1, dtype=np.float32), [len(points) for points in found.points]),
        is_still=~np.concatenate(gone),
        moving=np.concatenate([np.zeros((0, 3)), *moving]).astype(np.float32),
        moving_ages=np.concatenate([np.zeros(0), *ages]).astype(np.float32),
        velocities_m_s=np.concatenate([np.zeros((0, 2)), *velocities]).astype(np.float32),
    )


def _left_behind(found: MovingObjects, k: int) -> NDArray[np.bool_]:
    """(points of an older sweep k,) what is there no more: newer beams have passed the place, more than hit it."""
    part = found.past[k]
    is_gone = np.zeros(len(found.points[k]), dtype=bool)
    if k < len(found.past) - 1:
        left = part.is_left | (part.passed > part.hits)
        is_gone[part.above] = left[part.cube_of]
    return is_gone


def _grown(found: MovingObjects, thing: MovingObject) -> NDArray[np.int64]:
    """The object's points in the newest sweep, with those beside it that fit its motion as well as standing still."""
    newest = found.past[-1]
    distance_m, _ = cKDTree(newest.points[thing.members, :2]).query(newest.points[:, :2], distance_upper_bound=REACH_M)
    beside = np.setdiff1d(np.flatnonzero(np.isfinite(distance_m)), thing.members)
    if not len(beside):
        return thing.members
    moves, stands = np.zeros(len(beside)), np.zeros(len(beside))
    for part, time_s in zip(found.past[:-1], found.times_s[:-1], strict=True):
        if not len(part.points):
            continue
        tree, places = cKDTree(part.points), newest.points[beside]
        carried = places.copy()
        carried[:, :2] += time_s * thing.velocity_m_s
        moves += np.isfinite(tree.query(carried, distance_upper_bound=SAME_M)[0])
        stands += np.isfinite(tree.query(places, distance_upper_bound=SAME_M)[0])
    return np.concatenate([thing.members, beside[moves >= stands]])

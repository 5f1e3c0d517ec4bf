"""Does the imagined follower brake when the ego brakes? *Reaction*: where a car on a known lane is found in a cloud.

Positions are arc lengths along the path that the follower drives under `keep`, extended straight at both ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from copilot4d.errors import UsageError
from copilot4d.geometry.se3 import FloatArray

HELD_UP_M = 1.0  # a follower that ends this far behind where it would have been counts as braking
HALF_OF_TRUTH = 0.5
BEYOND_M = 6.0  # how far the path is extended at both ends
BESIDE_M = 0.3  # beside the car's body
ABOVE_GROUND_M = 0.3
FRONT_POINTS, FRONT_M = 4, 1.0  # a front has so many points within this length: fewer are strays


@dataclass(frozen=True)
class LanePath:
    """Where a car drives: places (P, 3) of its middle on the ground, in the world, and its size."""

    places: FloatArray
    width_m: float
    height_m: float

    @classmethod
    def of(cls, poses: FloatArray, width_m: float, height_m: float) -> LanePath:
        """From the car's poses (T, 4) x, y, z, yaw over time; standing still adds nothing to a path."""
        places = np.asarray(poses, dtype=np.float64)[:, :3]
        if len(places) == 0:
            raise UsageError("a path needs at least one pose")
        kept = [0]
        for i in range(1, len(places)):
            if np.linalg.norm(places[i, :2] - places[kept[-1], :2]) > 0.05:
                kept.append(i)
        path = places[kept]
        ahead = BEYOND_M * np.array([np.cos(poses[kept[-1], 3]), np.sin(poses[kept[-1], 3]), 0.0])
        behind = BEYOND_M * np.array([np.cos(poses[0, 3]), np.sin(poses[0, 3]), 0.0])
        return cls(np.concatenate([path[:1] - behind, path, path[-1:] + ahead]), width_m, height_m)

    def position_m(self, places: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(N, 3) -> (N,) arc length of the nearest place of the path, distance beside it, height over it."""
        points = np.asarray(places, dtype=np.float64)
        start, end = self.places[:-1], self.places[1:]
        step = end - start
        length = np.linalg.norm(step[:, :2], axis=1)
        before = np.concatenate([[0.0], np.cumsum(length)[:-1]])
        along = np.einsum("npc,pc->np", points[:, None, :2] - start[:, :2], step[:, :2]) / length**2
        along = np.clip(along, 0.0, 1.0)
        nearest = start + along[..., None] * step  # (N, P, 3)
        beside = np.linalg.norm(points[:, None, :2] - nearest[..., :2], axis=-1)
        which = beside.argmin(axis=1)
        rows = np.arange(len(points))
        position = before[which] + along[rows, which] * length[which]
        return position, beside[rows, which], points[:, 2] - nearest[rows, which, 2]


def front_m(points: FloatArray, path: LanePath) -> float:
    """(N, 3) points in the world -> the arc length of the foremost thing on the path; NaN where there is none.

    The follower is the first on its path: the ego's own returns are not in a sweep, and whoever comes behind the
    follower has its front behind. So its front is the furthest place at which enough points lie close together.
    """
    low, high = path.places.min(axis=0) - path.width_m, path.places.max(axis=0) + path.width_m
    near = points[((points[:, :2] >= low[:2]) & (points[:, :2] <= high[:2])).all(axis=1)]
    if len(near) == 0:
        return float("nan")
    position, beside, height = path.position_m(near)
    total_m = float(np.linalg.norm(np.diff(path.places[:, :2], axis=0), axis=1).sum())
    on_lane = (beside <= path.width_m / 2 + BESIDE_M) & (height >= ABOVE_GROUND_M) & (height <= path.height_m + 0.3)
    on_lane &= (position > 0) & (position < total_m)  # at the very ends the path goes on to nowhere
    found = np.sort(position[on_lane])[::-1]
    for i in range(len(found) - FRONT_POINTS + 1):
        if found[i] - found[i + FRONT_POINTS - 1] <= FRONT_M:
            return float(found[i])
    return float("nan")


def displacement_m(brake_points: FloatArray, keep_points: FloatArray, path: LanePath) -> float:
    """How much further along its path the follower is under `brake` than under `keep`: negative where it braked.

    Both clouds (N, 3) in the world, at the same time. NaN where it is not found in one of them.
    """
    return front_m(brake_points, path) - front_m(keep_points, path)


def reacts(imagined_m: float, true_m: float) -> bool:
    """Whether an imagined displacement has the truth's sign and at least half its size."""
    return bool(np.sign(imagined_m) == np.sign(true_m) and abs(imagined_m) >= HALF_OF_TRUTH * abs(true_m))

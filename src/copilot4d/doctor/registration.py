"""How well two sweeps fit on each other under a given motion, and which motion fits them best.

The misfit of a motion is how far moved points are from the other sweep's surfaces (70% of them are nearer). Only points
that stand above the ground count: the ground fits on itself under any horizontal motion. And only the distance across
a surface counts, not along it: the pattern of the rays moves with the sensor, so along a wall two sweeps of a driving
vehicle have their points at the same places. Working frame: z up, metres.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pykdtree.kdtree import KDTree

from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray

CAP_M = 1.0  # a neighbour farther than this is no neighbour
_ABOVE_GROUND_M = 0.6
_NEAREST_M, _FARTHEST_M = 3.0, 45.0  # nearer is the vehicle itself, farther is too sparse
_TARGET_CELL_M, _SOURCE_CELL_M = 0.15, 0.4
_MOST_SOURCE_POINTS = 1200
_FEWEST_POINTS = 100
_SHARE = 70  # percent of the points
_NEIGHBOURS = 12
_FLAT = 0.05  # a direction with less of the largest variance is across the surface


def structure(points_m: FloatArray, ground_z: float | None) -> FloatArray:
    """(N, 3) -> (M, 3) float64: what stands above the ground at a useful distance."""
    spread_2 = points_m[:, 0] ** 2 + points_m[:, 1] ** 2
    keep = (spread_2 > _NEAREST_M**2) & (spread_2 < _FARTHEST_M**2)  # False for NaN
    keep &= points_m[:, 2] > (-np.inf if ground_z is None else ground_z + _ABOVE_GROUND_M)
    return points_m[keep].astype(np.float64)


@dataclass(frozen=True)
class SweepPair:
    """Two sweeps that can be laid on each other: the later one's points are moved into the earlier one's frame."""

    target: FloatArray  # (N, 3) the earlier sweep
    along: FloatArray  # (N, 3, 3) at each of its points, projects on the directions along the surface there
    tree: KDTree
    source: FloatArray  # (M, 3) the later sweep, thinned

    @classmethod
    def of(cls, earlier: FloatArray, later: FloatArray) -> SweepPair | None:
        """From the structure of two sweeps; None where one has too little of it."""
        target, source = _thinned(earlier, _TARGET_CELL_M), _thinned(later, _SOURCE_CELL_M)
        source = source[:: max(1, len(source) // _MOST_SOURCE_POINTS)]
        if min(len(target), len(source)) < _FEWEST_POINTS:
            return None
        tree = KDTree(target)
        return cls(target, _along_surface(target, tree), tree, source)

    def misfits_m(self, earlier_from_later: FloatArray, every: int = 1) -> FloatArray:
        """(H, 4, 4) motions -> (H,) the distance to the surface that 70% of the moved points keep, at most CAP_M; NaN
        for a motion that is not known (NaN). `every` takes only each n-th point.
        """
        source = self.source[::every]
        misfits = np.full(len(earlier_from_later), np.nan)
        known = np.isfinite(earlier_from_later).all(axis=(1, 2))
        if known.any():
            # All motions in one query: the tree shares its work between threads once, not once a motion.
            moved = se3.transform_points(earlier_from_later[known], source).reshape(-1, 3)
            near, across = self._across(moved, CAP_M)
            distance = np.full(len(moved), CAP_M)
            distance[near] = np.linalg.norm(across, axis=1)
            misfits[known] = np.percentile(distance.reshape(-1, len(source)), _SHARE, axis=1)
        return misfits

    def registered(self, starts: FloatArray, iterations: int = 20) -> FloatArray:
        """The motion that fits best: iterated closest points from the best of several (H, 4, 4) starts."""
        motion: FloatArray = starts[int(np.nanargmin(self.misfits_m(starts, every=5)))]
        for i in range(iterations):
            moved = se3.transform_points(motion, self.source)
            reach = 2.0 if i < iterations // 2 else 0.6  # first from afar, then only what truly matches
            near, across = self._across(moved, reach)
            if near.sum() < _FEWEST_POINTS // 2:
                break
            step = _rigid_fit(moved[near], moved[near] - across)
            motion = se3.compose(step, motion)
            if np.abs(step - np.eye(4)).max() < 1e-4 and i > iterations // 2:
                break
        return motion

    def _across(self, moved: FloatArray, reach_m: float) -> tuple[NDArray[np.bool_], FloatArray]:
        """Which moved points have a neighbour, and for those the offset from its surface: (N,) and (K, 3)."""
        distance, index = self.tree.query(moved, distance_upper_bound=reach_m)
        near = np.isfinite(distance)
        offset = moved[near] - self.target[index[near]]
        return near, offset - np.einsum("nij,nj->ni", self.along[index[near]], offset)


def forward_starts(seconds: float) -> FloatArray:
    """(H, 4, 4) straight motions along the horizontal axes, as far as a vehicle gets: starts for `registered`."""
    distances = np.arange(0.0, min(30.0 * seconds, 25.0) + 0.5, 0.5)
    directions = np.array([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]])
    return se3.from_rotation_translation(np.eye(3), (distances[:, None, None] * directions).reshape(-1, 3))


def _along_surface(points: FloatArray, tree: KDTree) -> FloatArray:
    """(N, 3, 3) projections on the surface through each point: a plane, or a line where only one ring passes."""
    _, index = tree.query(points, k=_NEIGHBOURS)
    spread = points[index] - points[index].mean(axis=1, keepdims=True)
    variance, directions = np.linalg.eigh(np.einsum("nki,nkj->nij", spread, spread))
    along = directions * (variance > _FLAT * variance[:, 2:])[:, None, :]
    along[:, :, 0] = 0  # the direction of least spread is never along the surface
    return along @ np.swapaxes(along, 1, 2)  # type: ignore[no-any-return]


def _thinned(points: FloatArray, cell_m: float) -> FloatArray:
    """One point for each occupied cell, in a fixed order."""
    key = np.floor(points / cell_m).astype(np.int64)
    key -= key.min(axis=0, initial=0)
    flat = (key[:, 0] * (key[:, 1].max(initial=0) + 1) + key[:, 1]) * (key[:, 2].max(initial=0) + 1) + key[:, 2]
    _, first = np.unique(flat, return_index=True)
    kept: NDArray[np.int64] = np.sort(first)
    return points[kept]


def _rigid_fit(source: FloatArray, target: FloatArray) -> FloatArray:
    """The rigid motion that brings paired points together with the least squared distance (Kabsch)."""
    source_mean, target_mean = source.mean(axis=0), target.mean(axis=0)
    u, _, vt = np.linalg.svd((source - source_mean).T @ (target - target_mean))
    handed = np.diag([1.0, 1.0, np.sign(np.linalg.det(vt.T @ u.T))])
    rotation = vt.T @ handed @ u.T
    return se3.from_rotation_translation(rotation, target_mean - rotation @ source_mean)

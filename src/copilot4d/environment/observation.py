"""A sweep as an observation of fixed size, and how much the imagined futures disagree about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pykdtree.kdtree import KDTree

from copilot4d.errors import ForecastError, UsageError
from copilot4d.geometry.se3 import FloatArray

Observation: TypeAlias = dict[str, NDArray[Any]]  # points (max_points, 3) float32, count () int32

DISAGREEMENT_CAP_M = 5.0  # a lone ray that hits what lies far behind must not drown the rest
_SCRAMBLE = np.uint32(2654435769)  # 2^32 / golden ratio: consecutive numbers fall far apart, evenly


@dataclass(frozen=True)
class Packed:
    """An observation, and which points of the sweep it shows: `kept` are their indices, in the sweep's order."""

    observation: Observation
    kept: NDArray[np.intp]
    outside: int  # points beyond the observation's bounds
    subsampled: bool

    def padded(self, values: FloatArray) -> NDArray[np.float32]:
        """(max_points,): one value per point of the sweep -> one per point of the observation, then zeros."""
        padded = np.zeros(len(self.observation["points"]), dtype=np.float32)
        padded[: len(self.kept)] = values[self.kept]
        return padded


@dataclass(frozen=True)
class Packing:
    """The observations' fixed size: at most `max_points` points, no coordinate beyond `bound_m` metres."""

    max_points: int
    bound_m: float

    def __post_init__(self) -> None:
        if self.max_points < 1:
            raise UsageError(f"max_points must be at least 1, got {self.max_points}")
        if not 0 < self.bound_m < np.inf:
            raise UsageError(f"bound_m must be above 0 and finite, got {self.bound_m}")

    def space(self) -> spaces.Dict[NDArray[Any]]:
        """The space of all observations."""
        return spaces.Dict(
            points=spaces.Box(-self.bound_m, self.bound_m, (self.max_points, 3), np.float32),
            count=spaces.Box(0, self.max_points, (), np.int32),
        )

    def pack(self, points: NDArray[np.float32]) -> Packed:
        """(N, 3) -> the observation. Read-only: it is kept, and callers are given copies."""
        if not np.isfinite(points).all():
            wrong = int((~np.isfinite(points)).any(axis=1).sum())
            raise ForecastError(f"{wrong} of {len(points)} points of the sweep have a coordinate that is not finite")
        x, y, z = points.T
        inside = np.flatnonzero((np.abs(x) <= self.bound_m) & (np.abs(y) <= self.bound_m) & (np.abs(z) <= self.bound_m))
        kept = inside if len(inside) <= self.max_points else inside[even_choice(len(inside), self.max_points)]
        padded = np.zeros((self.max_points, 3), dtype=np.float32)
        padded[: len(kept)] = points[kept]
        count = np.array(len(kept), dtype=np.int32)
        padded.flags.writeable = count.flags.writeable = False
        return Packed(
            {"points": padded, "count": count}, kept, len(points) - len(inside), subsampled=len(kept) < len(inside)
        )


def even_choice(n: int, m: int) -> NDArray[np.intp]:
    """m of the numbers 0 ... n - 1, rising: always the same ones, evenly spread, in step with no pattern of beams."""
    keys = np.arange(n, dtype=np.uint32) * _SCRAMBLE
    return np.sort(np.argpartition(keys, m - 1)[:m])


def disagreement(
    points: NDArray[np.float32], others: Sequence[NDArray[np.float32]], cap_m: float = DISAGREEMENT_CAP_M
) -> NDArray[np.float32]:
    """(N,): how far each point of one future is from the nearest point of another, on average over the others.

    Each distance counts as at most cap_m, also where the other future has no points at all.
    """
    total = np.zeros(len(points), dtype=np.float32)
    if len(points) == 0:
        return total
    queries = np.ascontiguousarray(points, dtype=np.float32)
    for other in others:
        if len(other) == 0:
            total += cap_m
            continue
        distance, _ = KDTree(np.ascontiguousarray(other, dtype=np.float32)).query(queries, distance_upper_bound=cap_m)
        total += np.minimum(distance, cap_m)
    return total / np.float32(len(others))

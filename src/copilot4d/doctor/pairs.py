"""Which two sweeps of a drive tell most about its poses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry import Drive, se3
from copilot4d.geometry.se3 import FloatArray

LEVER_M = 15.0  # where a typical point is: a rotation by a radian moves it this far
_SPANS_S = (0.0, 0.5, 1.0)  # neighbours, and as far apart as streets still overlap well
_FARTHEST_M = 10.0
_ENOUGH_M = 0.3


class FramePair(NamedTuple):
    """Two frames of a drive, the earlier one first."""

    earlier: int
    later: int


def motion_size(motion: FloatArray) -> FloatArray:
    """(..., 4, 4) -> (...,) metres that a motion moves a typical point."""
    return np.linalg.norm(motion[..., :3, 3], axis=-1) + LEVER_M * se3.rotation_angle(motion)  # type: ignore[no-any-return]


def telling_pairs(drive: Drive, most: int = 8) -> list[FramePair]:
    """Neighbours in motion, spread over the drive, and pairs up to a second apart where the motion changes most: at an
    even speed the sweeps do not show that poses are off by one frame.
    """
    if len(drive) < 2:
        return []
    poses = drive.world_from_lidar
    interval_s = drive.interval_s
    spans = sorted({int(np.clip(round(s / interval_s), 1, len(drive) - 1)) for s in _SPANS_S})
    neighbours = _spread_in_time(poses, most - most // 2)
    changing: list[tuple[float, FramePair]] = []
    for span in spans:
        start = np.arange(len(drive) - span)
        motion = se3.relative_motion(poses[start], poses[start + span])
        change = _change_of_motion(motion)
        size = np.linalg.norm(motion[:, :3, 3], axis=-1)
        usable = np.flatnonzero(size < max(_FARTHEST_M, float(np.median(size))))
        inner = usable[(usable >= 1) & (usable + span <= len(drive) - 2)]  # a shift needs a frame on either side
        usable = inner if len(inner) else usable
        changing += [(float(change[i]), FramePair(int(i), int(i) + span)) for i in usable]
    changing.sort(reverse=True)
    apart = max(1, len(drive) // (2 * most))
    chosen = list(neighbours)
    for _, pair in changing:
        if len(chosen) >= most:
            break
        if all(abs(pair.earlier - other.earlier) >= apart or pair.later - pair.earlier != other.later - other.earlier
               for other in chosen) and pair not in chosen:  # fmt: skip
            chosen.append(pair)
    return chosen


def shift_sensitivity_m(poses: FloatArray, pairs: list[FramePair]) -> float:
    """How far, for the median pair, the motion would be wrong if the poses were off by one frame."""
    sizes = []
    for earlier, later in pairs:
        for shift in (-1, 1):
            if earlier + shift >= 0 and later + shift < len(poses):
                here = se3.relative_motion(poses[earlier], poses[later])
                there = se3.relative_motion(poses[earlier + shift], poses[later + shift])
                sizes.append(float(motion_size(se3.relative_motion(here, there))))
    return float(np.median(sizes)) if sizes else 0.0


def _change_of_motion(motion: FloatArray) -> NDArray[np.float64]:
    """(N, 4, 4) motions of pairs that start one frame apart -> how much each differs from the ones beside it."""
    change = np.zeros(len(motion))
    if len(motion) > 1:
        beside = motion_size(se3.relative_motion(motion[:-1], motion[1:]))
        change[:-1] += beside
        change[1:] += beside
        change[1:-1] /= 2
    return change


def _spread_in_time(poses: FloatArray, count: int) -> list[FramePair]:
    """Neighbours, one from each stretch of the drive: the one that moves most (or the first, where nothing moves)."""
    sizes = motion_size(se3.relative_motion(poses[:-1], poses[1:]))
    pairs = []
    for stretch in np.array_split(np.arange(len(sizes)), min(count, len(sizes))):
        best = int(stretch[np.argmax(sizes[stretch])])
        if sizes[best] >= _ENOUGH_M or sizes.max() < _ENOUGH_M:
            pairs.append(FramePair(best, best + 1))
    return pairs

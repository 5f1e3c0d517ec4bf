"""What a frame's ROI Chamfer consists of: on what it lies, and whether rays went too far or stopped too early."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pykdtree.kdtree import KDTree

from copilot4d.evaluation.true_rays import TrueFrame
from copilot4d.geometry import Clip, inside_box, se3
from copilot4d.geometry.se3 import FloatArray

SEEN_WITHIN_M = 1.0  # a place was seen before where a past point lies so near


@dataclass(frozen=True, kw_only=True)
class Causes:
    """Shares of the ROI Chamfer, each pair adding up to 1: by what the true ray ends on, and by the ray's error."""

    moving: float | None  # None: nobody knows what moves
    new: float  # places that no past sweep saw, moving things aside
    old: float
    too_far: float  # the ray passes what is there: something was missed
    too_near: float  # it stops before: something was invented

    def words(self) -> str:
        """A sentence or two."""
        moving = "" if self.moving is None else f"{self.moving:.0%} on things that move, "
        return (
            f"Of its error {moving}{self.new:.0%} on places that no past sweep saw, {self.old:.0%} on others; "
            f"{self.too_far:.0%} on rays that go too far (something is missed), {self.too_near:.0%} on rays that stop "
            "too early (something is invented)."
        )


def explain(
    predicted: FloatArray, true: FloatArray, roi: FloatArray, *, origin: FloatArray, seen: NDArray[np.bool_],
    moving: NDArray[np.bool_] | None = None,
) -> Causes:  # fmt: skip
    """predicted, true: (N, 3), row by row the same ray, in the frame of the ROI; origin: (3,) or (N, 3).

    Each ray has its predicted point's share of one half of the Chamfer distance, and its true point's of the other.
    """
    share = np.zeros(len(true))
    for one, other in ((predicted, true), (true, predicted)):
        inside, others = inside_box(one, roi), other[inside_box(other, roi)]
        if inside.any() and len(others):
            distances, _ = KDTree(np.ascontiguousarray(others)).query(np.ascontiguousarray(one[inside]), k=1)
            share[inside] += distances.astype(np.float64) ** 2 / inside.sum()
    total = share.sum()
    share = share / total if total > 0 else share
    moves = np.zeros(len(true), dtype=bool) if moving is None else moving
    further = np.linalg.norm(predicted - origin, axis=-1) > np.linalg.norm(true - origin, axis=-1)
    return Causes(
        moving=None if moving is None else float(share[moves].sum()),
        new=float(share[~moves & ~seen].sum()),
        old=float(share[~moves & seen].sum()),
        too_far=float(share[further].sum()),
        too_near=float(share[~further].sum()),
    )


def seen_before(clip: Clip, frame: TrueFrame) -> NDArray[np.bool_]:
    """(N,) whether a past sweep has a point near each true point of a future frame scored in the reference frame."""
    reference_from_world = se3.invert(clip.reference.world_from_lidar)
    past = np.concatenate([sweep.points_in(reference_from_world) for sweep in clip.past]).astype(np.float64)
    true = se3.transform_points(frame.scoring_from_future, frame.points.astype(np.float64))
    distances, _ = KDTree(past).query(true, k=1)
    near: NDArray[np.bool_] = distances <= SEEN_WITHIN_M
    return near

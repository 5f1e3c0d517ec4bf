"""Does a forecast under plan A look like the truth of plan A? *Obedience*, for all points and for what moves.

A moment has several true futures, one per plan of the ego. Clouds are compared where they are seen: each in its own
lidar frame. F future frames; boxes (K, 7) are x, y, z, yaw, length, width, height in the world, standing on z.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import UsageError
from copilot4d.evaluation.chamfer import chamfer
from copilot4d.geometry import inside_box, se3
from copilot4d.geometry.se3 import FloatArray

NEAR_M = 0.5  # a point this far outside a box still counts as on it
ABOVE_GROUND_M = 0.3  # lower points of a box are taken for the ground below it
SAME_M2 = 1e-3  # truths that are nearer to each other than this are one truth: they cannot be told apart


@dataclass(frozen=True, kw_only=True)
class Branch:
    """One plan's true future, frame by frame; points in each frame's own lidar frame."""

    points: Sequence[FloatArray]  # F times (N, 3)
    moving: Sequence[NDArray[np.bool_]]  # F times (N,)
    moving_boxes: Sequence[FloatArray]  # F times (K, 7) in the world, without the ego
    world_from_lidar: FloatArray  # (F, 4, 4)

    def moving_points(self) -> list[FloatArray]:
        """F times (M, 3): the points on things that move."""
        return [points[mask] for points, mask in zip(self.points, self.moving, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Obedience:
    """A forecast's Chamfer distance (m^2, mean over frames) to each plan's truth.

    obeys: whether its own plan's is the smallest. None: its own truth has nothing to compare, or equals all others.
    told_apart: the plans whose truths differ from its own.
    """

    chamfer: dict[str, float]
    told_apart: tuple[str, ...]
    obeys: bool | None


def obedience(
    plan: str, forecast: Sequence[FloatArray], truths: Mapping[str, Sequence[FloatArray]], roi: FloatArray
) -> Obedience:
    """Forecast clouds (F times (N, 3)) under `plan` against the true clouds of all plans, all cropped to `roi` (6,).

    Only frames count where every truth has points. A forecast without points in any of them does not obey.
    """
    if plan not in truths:
        raise UsageError(f"the truth of the forecast's own plan is needed: {plan!r} is not among {', '.join(truths)}")
    for name, clouds in truths.items():
        if len(clouds) != len(forecast):
            raise UsageError(f"{len(forecast)} frames were forecast, but the truth of {name} has {len(clouds)}")
    seen = [_cropped(cloud, roi) for cloud in forecast]
    true = {name: [_cropped(cloud, roi) for cloud in clouds] for name, clouds in truths.items()}
    counted = [i for i in range(len(seen)) if all(len(clouds[i]) for clouds in true.values())]
    to_own = {
        name: _mean_chamfer([true[plan][i] for i in counted], [c[i] for i in counted]) for name, c in true.items()
    }
    told_apart = tuple(name for name in true if name != plan and to_own[name] > SAME_M2)
    with_points = [i for i in counted if len(seen[i])]
    found = {
        name: _mean_chamfer([seen[i] for i in with_points], [clouds[i] for i in with_points])
        for name, clouds in true.items()
    }
    if not told_apart:
        return Obedience(chamfer=found, told_apart=(), obeys=None)
    obeys = bool(with_points) and all(found[plan] < found[name] for name in told_apart)
    return Obedience(chamfer=found, told_apart=told_apart, obeys=obeys)


def near_moving(
    forecast: Sequence[FloatArray], world_from_lidar: FloatArray, branches: Mapping[str, Branch]
) -> list[FloatArray]:
    """F times: the forecast's points (own lidar frame) at places where, in any branch, something moves at that time.

    Places are compared in the world: there nothing static stands where somebody drives, so all that is found above the
    ground is what the forecast believes to move. All branches count alike: none is favoured.
    """
    kept = []
    for i, cloud in enumerate(forecast):
        boxes = np.concatenate([branch.moving_boxes[i] for branch in branches.values()])
        in_world = se3.transform_points(world_from_lidar[i], np.asarray(cloud, dtype=np.float64))
        kept.append(cloud[inside_boxes(in_world, boxes)])
    return kept


def inside_boxes(
    points: FloatArray, boxes: FloatArray, *, near_m: float = NEAR_M, above_m: float = ABOVE_GROUND_M
) -> NDArray[np.bool_]:
    """(N, 3), (K, 7) -> (N,) whether a point lies in a box, or near_m around it, at least above_m over its bottom."""
    inside = np.zeros(len(points), dtype=bool)
    for x, y, z, yaw, length, width, height in boxes:
        reach = np.hypot(length, width) / 2 + near_m
        close = np.flatnonzero((np.abs(points[:, 0] - x) <= reach) & (np.abs(points[:, 1] - y) <= reach))
        local = se3.transform_points(se3.invert(se3.from_yaw(yaw, (x, y, z))), points[close])
        half = np.array([length / 2 + near_m, width / 2 + near_m])
        box = np.array([*-half, above_m, *half, height + near_m])
        inside[close] |= inside_box(local, box)
    return inside


def _cropped(cloud: FloatArray, roi: FloatArray) -> FloatArray:
    return cloud[inside_box(cloud, roi)]


def _mean_chamfer(a: Sequence[FloatArray], b: Sequence[FloatArray]) -> float:
    return float(np.mean([chamfer(x, y) for x, y in zip(a, b, strict=True)])) if a else float("nan")

"""Do upright boxes overlap? A footprint is (x, y, half_x, half_y, yaw); a solid adds (bottom, top)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry.se3 import FloatArray


def rectangles_overlap(one: FloatArray, others: FloatArray, margin_m: float = 0.0) -> NDArray[np.bool_]:
    """(..., 5) against (..., 5), broadcast -> (...,): whether two rectangles share area, by separating axes.

    With a margin they overlap already when they are nearer than that along every axis.
    """
    dx, dy = others[..., 0] - one[..., 0], others[..., 1] - one[..., 1]
    turn = others[..., 4] - one[..., 4]
    cos, sin = np.abs(np.cos(turn)), np.abs(np.sin(turn))
    separated = np.zeros(np.broadcast_shapes(one.shape[:-1], others.shape[:-1]), dtype=bool)
    for first, second in ((one, others), (others, one)):
        c, s = np.cos(first[..., 4]), np.sin(first[..., 4])
        along, across = np.abs(c * dx + s * dy), np.abs(-s * dx + c * dy)
        reach_x = first[..., 2] + cos * second[..., 2] + sin * second[..., 3] + margin_m
        reach_y = first[..., 3] + sin * second[..., 2] + cos * second[..., 3] + margin_m
        separated |= (along >= reach_x) | (across >= reach_y)
    return ~separated


def solids_overlap(one: FloatArray, others: FloatArray, margin_m: float = 0.0) -> NDArray[np.bool_]:
    """(..., 7) against (..., 7) -> (...,): rectangles with heights."""
    level = (one[..., 5] < others[..., 6]) & (others[..., 5] < one[..., 6])
    return np.asarray(level & rectangles_overlap(one[..., :5], others[..., :5], margin_m))


def overlapping_pairs(rectangles: FloatArray) -> NDArray[np.int64]:
    """(N, 5) -> (K, 2) indices i < j of all pairs that share area."""
    i, j = np.triu_indices(len(rectangles), k=1)
    reach = np.hypot(rectangles[:, 2], rectangles[:, 3])
    near = np.hypot(*(rectangles[i, :2] - rectangles[j, :2]).T) < reach[i] + reach[j]
    i, j = i[near], j[near]
    hit = rectangles_overlap(rectangles[i], rectangles[j])
    return np.stack([i[hit], j[hit]], axis=-1)

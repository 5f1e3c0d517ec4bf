"""The protocol's depth errors, one ray at a time in plain Python: docs/scoring.md, with its two small tolerances."""

from __future__ import annotations

import math

import numpy as np

INF = math.inf


def inside(point, box, margin=0.0):
    return all(box[i] - margin <= point[i] <= box[i + 3] + margin for i in range(3))


def first_hit(start, direction, box):
    """Distance to the first face whose hit lies in the box inflated by 2 cm."""
    hits = []
    for axis in range(3):
        if abs(direction[axis]) <= 1e-8:
            continue
        for face in (box[axis], box[axis + 3]):
            distance = (face - start[axis]) / direction[axis]
            if distance >= -1e-4 and inside(
                [s + distance * d for s, d in zip(start, direction, strict=True)], box, 0.02
            ):
                hits.append(distance)
    return min(hits, default=INF)


def clamp(origin, direction, depth, box):
    """(origin, end) after clamping, or None for a ray that never enters."""
    origin, direction = list(map(float, origin)), list(map(float, direction))
    end = [o + depth * d for o, d in zip(origin, direction, strict=True)]
    if inside(end, box):
        return origin, end
    if not inside(origin, box, 0.02):
        entry = first_hit(origin, direction, box)
        if entry == INF:
            return None
        origin_at_entry = [o + entry * d for o, d in zip(origin, direction, strict=True)]
        if entry > depth:
            end = origin_at_entry
        origin = origin_at_entry
    if not inside(end, box, 0.02):
        back = first_hit(end, [-d for d in direction], box)
        end = [e - back * d for e, d in zip(end, direction, strict=True)]
    return origin, end


def errors(true_points, origin, predicted_depths, box):
    """(list of L1, list of AbsRel, count) over the rays to the true points."""
    l1, absrel, count = [], [], 0
    for point, depth in zip(true_points.astype(np.float64), predicted_depths, strict=True):
        offset = point - origin
        true_depth = float(np.linalg.norm(offset))
        if true_depth <= 0.01:
            continue
        count += 1
        direction = offset / true_depth
        true, predicted = clamp(origin, direction, true_depth, box), clamp(origin, direction, float(depth), box)
        if true is None:
            continue
        left = math.dist(*true)
        if left <= 0.01:
            continue
        error = math.dist(true[1], predicted[1])
        l1.append(error)
        absrel.append(error / left)
    return l1, absrel, count

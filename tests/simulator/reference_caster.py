"""A slow caster in plain numpy, written apart from the fast one: every ray against every primitive, no grid.

Primitives are met by other formulas than in the package: boxes by their six faces, cylinders and ellipsoids by the
quadratic in its textbook form, the ground by its height at every line of its lattice that a ray crosses.
"""

from __future__ import annotations

import numpy as np


def reference_depths(scene, origins, directions, fractions, max_range_m: float) -> np.ndarray:
    """(N,) the depth of the first opaque thing, inf for none."""
    depth = np.full(len(origins), np.inf)
    for kind, p in zip(scene.static.kind, scene.static.params, strict=True):
        middle = np.array([p[0], p[1], (p[2] + p[3]) / 2])
        reach = np.linalg.norm([p[4], p[5], (p[3] - p[2]) / 2])
        away = np.linalg.norm(np.cross(middle - origins, directions), axis=1)  # of the ray's line from the middle
        near = np.flatnonzero(away <= reach + 1e-6)
        depth[near] = np.minimum(depth[near], _primitive(kind, p[None, :], origins[near], directions[near]))
    moving = scene.moving
    for kind, p, owner in zip(moving.kind, moving.params, moving.owner, strict=True):
        pose = scene.poses_start[owner] + fractions[:, None] * (scene.poses_end[owner] - scene.poses_start[owner])
        c, s = np.cos(pose[:, 3]), np.sin(pose[:, 3])
        x, y = pose[:, 0] + c * p[0] - s * p[1], pose[:, 1] + s * p[0] + c * p[1]
        size = np.broadcast_to(p[4:6], (len(c), 2)).T
        placed = np.stack([x, y, p[2] + pose[:, 2], p[3] + pose[:, 2], *size, c, s], axis=-1)
        depth = np.minimum(depth, _primitive(kind, placed, origins, directions))
    for i in range(len(origins)):
        depth[i] = min(depth[i], _ground(scene.ground, origins[i], directions[i], min(depth[i], max_range_m)))
    return np.where(depth <= max_range_m, depth, np.inf)


def _primitive(kind, p, origins, directions):
    c, s = p[:, 6], p[:, 7]
    shift = origins[:, :2] - p[:, :2]
    o = np.stack([c * shift[:, 0] + s * shift[:, 1], -s * shift[:, 0] + c * shift[:, 1], origins[:, 2]], axis=-1)
    d = np.stack(
        [c * directions[:, 0] + s * directions[:, 1], -s * directions[:, 0] + c * directions[:, 1], directions[:, 2]],
        axis=-1,
    )
    low = np.stack([-p[:, 4], -p[:, 5], p[:, 2]], axis=-1)
    high = np.stack([p[:, 4], p[:, 5], p[:, 3]], axis=-1)
    with np.errstate(all="ignore"):
        return {0: _box, 1: _cylinder, 2: _ellipsoid}[int(kind)](o, d, low, high)


def _box(o, d, low, high):
    best = np.full(len(o), np.inf)
    for axis in range(3):
        for face in (low, high):
            t = (face[:, axis] - o[:, axis]) / d[:, axis]
            q = o + t[:, None] * d
            others = [a for a in range(3) if a != axis]
            inside = ((q[:, others] >= low[:, others]) & (q[:, others] <= high[:, others])).all(axis=1)
            best = np.where(inside & (t >= 0) & (t < best), t, best)
    return best


def _cylinder(o, d, low, high):
    radius = high[:, 0]
    best = np.full(len(o), np.inf)
    for t in _roots((d[:, :2] ** 2).sum(1), 2 * (o[:, :2] * d[:, :2]).sum(1), (o[:, :2] ** 2).sum(1) - radius**2):
        z = o[:, 2] + t * d[:, 2]
        best = np.where((t >= 0) & (z >= low[:, 2]) & (z <= high[:, 2]) & (t < best), t, best)
    for face in (low, high):
        t = (face[:, 2] - o[:, 2]) / d[:, 2]
        q = o[:, :2] + t[:, None] * d[:, :2]
        best = np.where((t >= 0) & ((q**2).sum(1) <= radius**2) & (t < best), t, best)
    return best


def _ellipsoid(o, d, low, high):
    centre, radii = (low + high) / 2, (high - low) / 2
    u, v = (o - centre) / radii, d / radii
    best = np.full(len(o), np.inf)
    for t in _roots((v**2).sum(1), 2 * (u * v).sum(1), (u**2).sum(1) - 1):
        best = np.where((t >= 0) & (t < best), t, best)
    return best


def _roots(a, b, c):
    root = np.sqrt(b * b - 4 * a * c)
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def _ground(ground, origin, direction, limit):
    """Between two crossings of lattice lines or diagonals the ground is a plane: look for the first change of sign."""
    cell = 0.25
    start, rate = (origin[:2] - ground.origin) / cell, direction[:2] / cell
    breaks = [np.array([0.0, limit])]
    for position, speed in ((start[0], rate[0]), (start[1], rate[1]), (start[0] - start[1], rate[0] - rate[1])):
        if abs(speed) > 1e-12:
            ends = sorted((position, position + speed * limit))
            breaks.append((np.arange(np.ceil(ends[0]), np.floor(ends[1]) + 1) - position) / speed)
    t = np.unique(np.clip(np.concatenate(breaks), 0, limit))
    above = origin[2] + t * direction[2] - ground_height(ground, start[:, None] + t * rate[:, None])
    below = np.flatnonzero(above <= 0)
    if not len(below):
        return np.inf
    k = below[0]
    if k == 0:
        return 0.0
    return t[k - 1] + (t[k] - t[k - 1]) * above[k - 1] / (above[k - 1] - above[k])


def ground_height(ground, uv):
    """(2, M) lattice coordinates -> (M,) height on the triangles; outside the raster nothing is met."""
    h = ground.height_m
    i = np.clip(np.floor(uv).astype(int), 0, np.array(h.shape)[:, None] - 2)
    u, v = uv - i
    corners = (h[i[0], i[1]], h[i[0] + 1, i[1]], h[i[0], i[1] + 1], h[i[0] + 1, i[1] + 1])
    h00, h10, h01, h11 = (corner.astype(np.float64) for corner in corners)
    height = np.where(u >= v, h00 + u * (h10 - h00) + v * (h11 - h10), h00 + v * (h01 - h00) + u * (h11 - h01))
    outside = (uv < 0).any(axis=0) | (uv > np.array(h.shape)[:, None] - 1).any(axis=0)
    return np.where(outside, -np.inf, height)

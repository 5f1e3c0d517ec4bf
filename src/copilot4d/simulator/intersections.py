"""Where one ray meets one primitive, or the ground in one cell of the grid. Scalars only: these run inside the caster."""

from __future__ import annotations

from typing import Any

import numpy as np

from copilot4d.simulator.compiled import compiled

MISS = 1e30


@compiled
def meet_box(ox: Any, oy: Any, oz: Any, dx: Any, dy: Any, dz: Any, p: Any) -> Any:
    """Entry, exit and cosine of incidence at the entry; p: x, y, bottom, top, half_x, half_y, cos, sin."""
    px, py = ox - p[0], oy - p[1]
    lx, ly = p[6] * px + p[7] * py, p[6] * py - p[7] * px
    vx, vy = p[6] * dx + p[7] * dy, p[6] * dy - p[7] * dx
    near, far, cosine = -MISS, MISS, 0.0
    for axis in range(3):
        if axis == 0:
            o, d, low, high = lx, vx, -p[4], p[4]
        elif axis == 1:
            o, d, low, high = ly, vy, -p[5], p[5]
        else:
            o, d, low, high = oz, dz, p[2], p[3]
        if abs(d) < 1e-12:
            if o < low or o > high:
                return MISS, -MISS, 0.0
            continue
        a, b = (low - o) / d, (high - o) / d
        if a > b:
            a, b = b, a
        if a > near:
            near, cosine = a, abs(d)
        far = min(far, b)
    if near > far or far < 0.0:
        return MISS, -MISS, 0.0
    return near, far, cosine


@compiled
def meet_cylinder(ox: Any, oy: Any, oz: Any, dx: Any, dy: Any, dz: Any, p: Any) -> Any:
    """As `meet_box`, for an upright cylinder with flat ends."""
    px, py = ox - p[0], oy - p[1]
    near, far, cosine = -MISS, MISS, 0.0
    a = dx * dx + dy * dy
    if a < 1e-14:
        if px * px + py * py > p[4] * p[4]:
            return MISS, -MISS, 0.0
    else:
        b = px * dx + py * dy
        # The distance of the ray from the axis decides; the difference of squares would lose digits far away.
        miss = px * dy - py * dx
        inside = p[4] * p[4] * a - miss * miss
        if inside < 0.0:
            return MISS, -MISS, 0.0
        root = np.sqrt(inside)
        near, far = (-b - root) / a, (-b + root) / a
        cosine = root / p[4]
    if abs(dz) < 1e-12:
        if oz < p[2] or oz > p[3]:
            return MISS, -MISS, 0.0
    else:
        a, b = (p[2] - oz) / dz, (p[3] - oz) / dz
        if a > b:
            a, b = b, a
        if a > near:
            near, cosine = a, abs(dz)
        far = min(far, b)
    if near > far or far < 0.0:
        return MISS, -MISS, 0.0
    return near, far, cosine


@compiled
def meet_ellipsoid(ox: Any, oy: Any, oz: Any, dx: Any, dy: Any, dz: Any, p: Any) -> Any:
    """As `meet_box`, for an ellipsoid between bottom and top."""
    rz = 0.5 * (p[3] - p[2])
    px, py, pz = ox - p[0], oy - p[1], (oz - 0.5 * (p[2] + p[3])) / rz
    lx, ly = (p[6] * px + p[7] * py) / p[4], (p[6] * py - p[7] * px) / p[5]
    vx, vy, vz = (p[6] * dx + p[7] * dy) / p[4], (p[6] * dy - p[7] * dx) / p[5], dz / rz
    a = vx * vx + vy * vy + vz * vz
    b = lx * vx + ly * vy + pz * vz
    cx, cy, cz = ly * vz - pz * vy, pz * vx - lx * vz, lx * vy - ly * vx
    inside = a - (cx * cx + cy * cy + cz * cz)
    if inside < 0.0:
        return MISS, -MISS, 0.0
    root = np.sqrt(inside)
    near, far = (-b - root) / a, (-b + root) / a
    if far < 0.0:
        return MISS, -MISS, 0.0
    return near, far, root / np.sqrt(a)


@compiled
def meet_ground(
    ox: Any, oy: Any, oz: Any, dx: Any, dy: Any, dz: Any, start: Any, end: Any, height: Any, cell: Any
) -> Any:
    """The first depth in [start, end] at which the ray passes below the triangles of the ground, and the cosine of
    incidence. Origin relative to the ground's corner. Each cell is cut along its diagonal from (0, 0) to (1, 1).
    """
    nx, ny = height.shape[0] - 1, height.shape[1] - 1
    t = start
    i = int(np.floor((ox + t * dx) / cell + 1e-9 * dx))
    j = int(np.floor((oy + t * dy) / cell + 1e-9 * dy))
    for _ in range(4096):
        if i < 0 or j < 0 or i >= nx or j >= ny:
            return MISS, 0.0
        tx = MISS if dx == 0.0 else ((i + (1 if dx > 0 else 0)) * cell - ox) / dx
        ty = MISS if dy == 0.0 else ((j + (1 if dy > 0 else 0)) * cell - oy) / dy
        leave = max(min(tx, ty, end), t)
        h00, h10, h01, h11 = height[i, j], height[i + 1, j], height[i, j + 1], height[i + 1, j + 1]
        if min(oz + t * dz, oz + leave * dz) <= max(max(h00, h10), max(h01, h11)):
            u0, ud = (ox / cell - i), dx / cell
            v0, vd = (oy / cell - j), dy / cell
            cut = leave
            if ud != vd:
                diagonal = (v0 - u0) / (ud - vd)
                if t < diagonal < leave:
                    cut = diagonal
            a = t
            for part in range(2):
                b = cut if part == 0 else leave
                if b >= a:
                    m = 0.5 * (a + b)
                    if u0 + m * ud >= v0 + m * vd:
                        gu, gv = h10 - h00, h11 - h10
                    else:
                        gu, gv = h11 - h01, h01 - h00
                    above = oz - (h00 + u0 * gu + v0 * gv)
                    rate = dz - (ud * gu + vd * gv)
                    if above + b * rate <= 0.0 and rate < 0.0:
                        depth = max(a, min(b, -above / rate))
                        sx, sy = gu / cell, gv / cell
                        return depth, abs(dz - sx * dx - sy * dy) / np.sqrt(1.0 + sx * sx + sy * sy)
                a = b
        if leave >= end:
            return MISS, 0.0
        t = leave
        if tx <= ty:
            i += 1 if dx > 0 else -1
        if ty <= tx:
            j += 1 if dy > 0 else -1
    return MISS, 0.0

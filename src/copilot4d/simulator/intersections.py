"""Where one ray meets one primitive, or the ground in one cell of the grid. Scalars only: the caster's inner part."""

from __future__ import annotations

from typing import Any

import numpy as np

from copilot4d.compiled import compiled

MISS = 1e30


@compiled
def meet_box(ox: Any, oy: Any, oz: Any, dx: Any, dy: Any, dz: Any, params: Any, b: Any) -> Any:
    """Entry, exit, cosine of incidence at the entry; row b of params: x, y, bottom, top, half_x, half_y, cos, sin."""
    half_x, half_y, cos, sin = params[b, 4], params[b, 5], params[b, 6], params[b, 7]
    px, py = ox - params[b, 0], oy - params[b, 1]
    vx, vy = cos * dx + sin * dy, cos * dy - sin * dx
    near, far, cosine = -MISS, MISS, 0.0
    lx = cos * px + sin * py
    if abs(vx) > 1e-12:
        inverse = 1.0 / vx
        middle, half = -lx * inverse, half_x * abs(inverse)
        near, far, cosine = middle - half, middle + half, abs(vx)
    elif abs(lx) > half_x:
        return MISS, -MISS, 0.0
    ly = cos * py - sin * px
    if abs(vy) > 1e-12:
        inverse = 1.0 / vy
        middle, half = -ly * inverse, half_y * abs(inverse)
        if middle - half > near:
            near, cosine = middle - half, abs(vy)
        far = min(far, middle + half)
    elif abs(ly) > half_y:
        return MISS, -MISS, 0.0
    if near > far or far < 0.0:
        return MISS, -MISS, 0.0
    return _between(near, far, cosine, oz, dz, params[b, 2], params[b, 3])


@compiled
def _between(near: Any, far: Any, cosine: Any, oz: Any, dz: Any, bottom: Any, top: Any) -> Any:
    """Cut the stretch [near, far] of a ray down to the heights between bottom and top."""
    if abs(dz) > 1e-12:
        a, b = (bottom - oz) / dz, (top - oz) / dz
        if a > b:
            a, b = b, a
        if a > near:
            near, cosine = a, abs(dz)
        far = min(far, b)
    elif oz < bottom or oz > top:
        return MISS, -MISS, 0.0
    if near > far or far < 0.0:
        return MISS, -MISS, 0.0
    return near, far, cosine


@compiled
def meet_cylinder(ox: Any, oy: Any, oz: Any, dx: Any, dy: Any, dz: Any, params: Any, b: Any) -> Any:
    """As `meet_box`, for an upright cylinder with flat ends."""
    radius = params[b, 4]
    px, py = ox - params[b, 0], oy - params[b, 1]
    near, far, cosine = -MISS, MISS, 0.0
    level = dx * dx + dy * dy
    if level < 1e-14:
        if px * px + py * py > radius * radius:
            return MISS, -MISS, 0.0
    else:
        # The distance of the ray from the axis decides; the difference of squares would lose digits far away.
        miss = px * dy - py * dx
        inside = radius * radius * level - miss * miss
        if inside < 0.0:
            return MISS, -MISS, 0.0
        root, along = np.sqrt(inside), px * dx + py * dy
        near, far, cosine = (-along - root) / level, (-along + root) / level, root / radius
    return _between(near, far, cosine, oz, dz, params[b, 2], params[b, 3])


@compiled
def meet_ellipsoid(ox: Any, oy: Any, oz: Any, dx: Any, dy: Any, dz: Any, params: Any, b: Any) -> Any:
    """As `meet_box`, for an ellipsoid between bottom and top."""
    bottom, top, cos, sin = params[b, 2], params[b, 3], params[b, 6], params[b, 7]
    rx, ry, rz = 1.0 / params[b, 4], 1.0 / params[b, 5], 2.0 / (top - bottom)
    px, py, lz = ox - params[b, 0], oy - params[b, 1], (oz - 0.5 * (bottom + top)) * rz
    lx, ly = (cos * px + sin * py) * rx, (cos * py - sin * px) * ry
    vx, vy, vz = (cos * dx + sin * dy) * rx, (cos * dy - sin * dx) * ry, dz * rz
    speed = vx * vx + vy * vy + vz * vz
    cx, cy, cz = ly * vz - lz * vy, lz * vx - lx * vz, lx * vy - ly * vx
    inside = speed - (cx * cx + cy * cy + cz * cz)
    if inside < 0.0:
        return MISS, -MISS, 0.0
    root, along = np.sqrt(inside), lx * vx + ly * vy + lz * vz
    near, far = (-along - root) / speed, (-along + root) / speed
    if far < 0.0:
        return MISS, -MISS, 0.0
    return near, far, root / np.sqrt(speed)


@compiled
def meet_ground(
    ox: Any, oy: Any, oz: Any, dx: Any, dy: Any, dz: Any, start: Any, end: Any, height: Any, cell: Any
) -> Any:
    """The first depth in [start, end] at which the ray passes below the triangles of the ground, and the cosine of
    incidence. Origin relative to the ground's corner. Each cell is cut along its diagonal from (0, 0) to (1, 1).
    """
    nx, ny = height.shape[0] - 1, height.shape[1] - 1
    t = start
    u0, ud, v0, vd = ox / cell, dx / cell, oy / cell, dy / cell
    i, j = int(np.floor(u0 + t * ud + 1e-9 * dx)), int(np.floor(v0 + t * vd + 1e-9 * dy))
    step_i, step_j = 1 if dx > 0 else -1, 1 if dy > 0 else -1
    tx, span_x, ty, span_y = MISS, MISS, MISS, MISS
    if dx != 0.0:
        tx, span_x = (i + (1 if dx > 0 else 0) - u0) / ud, 1.0 / abs(ud)
    if dy != 0.0:
        ty, span_y = (j + (1 if dy > 0 else 0) - v0) / vd, 1.0 / abs(vd)
    for _ in range(4096):
        if i < 0 or j < 0 or i >= nx or j >= ny:
            return MISS, 0.0
        leave = max(min(tx, ty, end), t)
        h00, h10, h01, h11 = height[i, j], height[i + 1, j], height[i, j + 1], height[i + 1, j + 1]
        if min(oz + t * dz, oz + leave * dz) <= max(max(h00, h10), max(h01, h11)):
            a0, b0 = u0 - i, v0 - j
            cut = leave
            if ud != vd:
                diagonal = (b0 - a0) / (ud - vd)
                if t < diagonal < leave:
                    cut = diagonal
            a = t
            for part in range(2):
                b = cut if part == 0 else leave
                if b >= a:
                    m = 0.5 * (a + b)
                    if a0 + m * ud >= b0 + m * vd:
                        gu, gv = h10 - h00, h11 - h10
                    else:
                        gu, gv = h11 - h01, h01 - h00
                    above = oz - (h00 + a0 * gu + b0 * gv)
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
            i += step_i
            tx += span_x
        else:
            j += step_j
            ty += span_y
    return MISS, 0.0

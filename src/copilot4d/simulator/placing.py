"""Putting objects on the ground so that none overlaps another, a road, or a pavement where it does not belong."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from copilot4d.compiled import compiled
from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator.ground import CELL_M, GARDEN, Ground
from copilot4d.simulator.shapes import Shape


class PlacedObject(NamedTuple):
    """A static object: its shape, where it stands (z of the ground below it) and where it looks."""

    shape: Shape
    x: float
    y: float
    z: float
    yaw: float


def solids_of(item: PlacedObject) -> FloatArray:
    """(primitives, 7) the boxes around an object's primitives, in the world: x, y, half_x, half_y, yaw, bottom, top."""
    p = np.array([[q.x, q.y, q.half_x, q.half_y, q.bottom, q.top] for q in item.shape.primitives])
    cos, sin = np.cos(item.yaw), np.sin(item.yaw)
    x = item.x + cos * p[:, 0] - sin * p[:, 1]
    y = item.y + sin * p[:, 0] + cos * p[:, 1]
    yaw = np.full(len(p), item.yaw)
    return np.stack([x, y, p[:, 2], p[:, 3], yaw, p[:, 4] + item.z, p[:, 5] + item.z], axis=-1)


class Placer:
    """Accepts objects one by one and refuses those that do not fit."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.items: list[PlacedObject] = []
        self._solids = np.zeros((4096, 7))
        self._count = 0

    def place(
        self, shape: Shape, xy: FloatArray, yaw: float, *, uses: tuple[int, ...] = (GARDEN,), margin_m: float = 0.05
    ) -> bool:
        """Put an object there if its rectangle lies on land of these uses and it overlaps nothing."""
        x, y, yaw = float(xy[0]), float(xy[1]), float(yaw)
        allowed = sum(1 << use for use in uses)
        g = self.ground
        z = _land_height(g.use, g.height_m, g.origin, x, y, yaw, shape.length_m / 2, shape.width_m / 2, allowed)
        if not np.isfinite(z):
            return False
        item = PlacedObject(shape, x, y, float(z), yaw)
        solids = solids_of(item)
        if _touches(solids, self._solids, self._count, margin_m):
            return False
        if self._count + len(solids) > len(self._solids):
            self._solids = np.concatenate([self._solids, np.zeros_like(self._solids)])
        self._solids[self._count : self._count + len(solids)] = solids
        self._count += len(solids)
        self.items.append(item)
        return True


@compiled
def _land_height(
    use: Any, height: Any, origin: Any, x: Any, y: Any, yaw: Any, half_x: Any, half_y: Any, allowed: Any
) -> Any:
    """Height of the ground at (x, y), infinity where the rectangle leaves the allowed land; off the map lie gardens."""
    cos, sin = np.cos(yaw), np.sin(yaw)
    nu, nv = int(2 * half_x) + 2, int(2 * half_y) + 2  # a probe at least every metre, and at the corners
    for a in range(nu):
        for b in range(nv):
            u, v = half_x * (2 * a / (nu - 1) - 1), half_y * (2 * b / (nv - 1) - 1)
            i = int(np.floor((x + cos * u - sin * v - origin[0]) / CELL_M))
            j = int(np.floor((y + sin * u + cos * v - origin[1]) / CELL_M))
            inside = 0 <= i < use.shape[0] and 0 <= j < use.shape[1]
            found = use[i, j] if inside else GARDEN
            if not (allowed >> found) & 1:
                return np.inf
    i = min(max(int(np.rint((x - origin[0]) / CELL_M)), 0), height.shape[0] - 1)
    j = min(max(int(np.rint((y - origin[1]) / CELL_M)), 0), height.shape[1] - 1)
    return np.float64(height[i, j])


@compiled
def _touches(solids: Any, known: Any, count: Any, margin: Any) -> Any:
    """Whether any of some solids comes nearer than the margin to any of the first `count` known ones."""
    for a in range(len(solids)):
        p = solids[a]
        for b in range(count):
            q = known[b]
            if p[5] >= q[6] or q[5] >= p[6]:
                continue
            dx, dy = q[0] - p[0], q[1] - p[1]
            reach = p[2] + p[3] + q[2] + q[3] + margin
            if abs(dx) > reach or abs(dy) > reach:
                continue
            turn = q[4] - p[4]
            ct, st = abs(np.cos(turn)), abs(np.sin(turn))
            c, s = np.cos(p[4]), np.sin(p[4])
            if abs(c * dx + s * dy) >= p[2] + ct * q[2] + st * q[3] + margin:
                continue
            if abs(c * dy - s * dx) >= p[3] + st * q[2] + ct * q[3] + margin:
                continue
            c, s = np.cos(q[4]), np.sin(q[4])
            if abs(c * dx + s * dy) >= q[2] + ct * p[2] + st * p[3] + margin:
                continue
            if abs(c * dy - s * dx) >= q[3] + st * p[2] + ct * p[3] + margin:
                continue
            return True
    return False

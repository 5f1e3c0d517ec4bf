"""Putting objects on the ground so that none overlaps another, a road, or a pavement where it does not belong."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator.footprints import solids_overlap
from copilot4d.simulator.ground import GARDEN, Ground
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
        if not self._on_land(shape, xy, yaw, uses):
            return False
        item = PlacedObject(shape, float(xy[0]), float(xy[1]), float(self.ground.height_at(xy)), float(yaw))
        solids = solids_of(item)
        known = self._solids[: self._count]
        near = known[np.abs(known[:, :2] - xy).max(axis=1) < 40.0]
        if solids_overlap(solids[:, None], near[None], margin_m).any():
            return False
        if self._count + len(solids) > len(self._solids):
            self._solids = np.concatenate([self._solids, np.zeros_like(self._solids)])
        self._solids[self._count : self._count + len(solids)] = solids
        self._count += len(solids)
        self.items.append(item)
        return True

    def _on_land(self, shape: Shape, xy: FloatArray, yaw: float, uses: tuple[int, ...]) -> bool:
        half_x, half_y = shape.length_m / 2, shape.width_m / 2
        u = np.linspace(-half_x, half_x, max(2, int(shape.length_m) + 1))
        v = np.linspace(-half_y, half_y, max(2, int(shape.width_m) + 1))
        grid = np.stack(np.meshgrid(u, v), axis=-1).reshape(-1, 2)
        cos, sin = np.cos(yaw), np.sin(yaw)
        points = grid @ np.array([[cos, sin], [-sin, cos]]) + xy
        found: NDArray[np.uint8] = self.ground.use_at(points)
        return bool(np.isin(found, uses).all())

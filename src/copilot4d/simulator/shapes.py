"""Shapes: every object is a few primitives in its own frame (x forward, y left, z up from the ground below it)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from copilot4d.errors import UsageError
from copilot4d.simulator.materials import INDEX

BOX, CYLINDER, ELLIPSOID = range(3)


class Primitive(NamedTuple):
    """A box (upright, turned with its object), an upright cylinder (half_x is its radius) or an ellipsoid."""

    kind: int
    x: float
    y: float
    bottom: float
    top: float
    half_x: float
    half_y: float
    material: int


@dataclass(frozen=True)
class Shape:
    """What an object looks like, and the rectangle that it covers."""

    name: str
    length_m: float
    width_m: float
    primitives: tuple[Primitive, ...]

    @property
    def height_m(self) -> float:
        """The highest point."""
        return max(p.top for p in self.primitives)


def box(x: float, y: float, bottom: float, top: float, length: float, width: float, material: str) -> Primitive:
    """A box around (x, y)."""
    return Primitive(BOX, x, y, bottom, top, length / 2, width / 2, INDEX[material])


def cylinder(x: float, y: float, bottom: float, top: float, radius: float, material: str) -> Primitive:
    """An upright cylinder around (x, y)."""
    return Primitive(CYLINDER, x, y, bottom, top, radius, radius, INDEX[material])


def ellipsoid(x: float, y: float, bottom: float, top: float, rx: float, ry: float, material: str) -> Primitive:
    """An ellipsoid between two heights."""
    return Primitive(ELLIPSOID, x, y, bottom, top, rx, ry, INDEX[material])


def car(length: float = 4.3, width: float = 1.78, height: float = 1.48) -> Shape:
    """Body, bonnet and boot, glazed cabin with a roof, and two axles: light passes below the sills."""
    belt = 0.62 * height
    cabin = 0.56 * length
    return Shape("car", length, width, (
        box(0.0, 0.0, 0.28, belt - 0.12, length, width, "paint"),
        box(-0.03 * length, 0.0, belt - 0.12, belt, 0.86 * length, 0.96 * width, "paint"),
        box(-0.07 * length, 0.0, belt, height - 0.12, cabin, 0.88 * width, "glass"),
        box(-0.08 * length, 0.0, height - 0.12, height, 0.78 * cabin, 0.80 * width, "paint"),
        box(0.31 * length, 0.0, 0.0, 0.28, 0.62, 0.96 * width, "rubber"),
        box(-0.30 * length, 0.0, 0.0, 0.28, 0.62, 0.96 * width, "rubber"),
    ))  # fmt: skip


def ego_car() -> Shape:
    """The car that carries the lidar, as its own lidar sees it: roof and bonnet stay below the lowest beams, the posts
    of the roof rack do not.
    """
    return Shape("car", 4.75, 1.82, (
        box(0.0, 0.0, 0.2, 0.62, 4.75, 1.82, "paint"),
        box(-0.1, 0.0, 0.62, 1.15, 1.8, 1.5, "paint"),
        box(-0.65, 1.25, 0.9, 1.2, 0.04, 0.04, "metal"),
        box(-0.65, -1.25, 0.9, 1.2, 0.04, 0.04, "metal"),
    ))  # fmt: skip


def van(length: float = 5.4, width: float = 1.95, height: float = 2.3) -> Shape:
    """A box on wheels with a short bonnet and a glazed driver's cab."""
    return Shape("van", length, width, (
        box(0.0, 0.0, 0.32, 1.05, length, width, "paint"),
        box(-0.17 * length, 0.0, 1.05, height, 0.66 * length, width, "paint"),
        box(0.24 * length, 0.0, 1.05, height - 0.35, 0.24 * length, 0.92 * width, "glass"),
        box(0.30 * length, 0.0, 0.0, 0.32, 0.7, 0.96 * width, "rubber"),
        box(-0.30 * length, 0.0, 0.0, 0.32, 0.7, 0.96 * width, "rubber"),
    ))  # fmt: skip


def bus(length: float = 10.0, width: float = 2.5, height: float = 3.0) -> Shape:
    """Sills, a band of windows, a roof."""
    return Shape("bus", length, width, (
        box(0.0, 0.0, 0.3, 1.2, length, width, "paint"),
        box(0.0, 0.0, 1.2, 2.3, length - 0.1, width - 0.1, "glass"),
        box(0.0, 0.0, 2.3, height, length, width, "paint"),
        box(0.30 * length, 0.0, 0.0, 0.3, 1.0, 0.96 * width, "rubber"),
        box(-0.28 * length, 0.0, 0.0, 0.3, 1.0, 0.96 * width, "rubber"),
    ))  # fmt: skip


def cyclist(height: float = 1.75) -> Shape:
    """A rider leaning over a bicycle."""
    return Shape("cyclist", 1.75, 0.6, (
        box(0.0, 0.0, 0.0, 0.68, 1.7, 0.08, "metal"),
        box(0.05, 0.0, 0.45, 0.95, 0.45, 0.32, "cloth"),
        ellipsoid(-0.05, 0.0, 0.85, height - 0.22, 0.28, 0.25, "cloth"),
        ellipsoid(0.15, 0.0, height - 0.28, height, 0.12, 0.11, "cloth"),
    ))  # fmt: skip


def pedestrian(height: float = 1.72) -> Shape:
    """Legs, a trunk with arms, a head."""
    return Shape("pedestrian", 0.5, 0.55, (
        cylinder(0.09, 0.09, 0.0, 0.5 * height, 0.09, "cloth"),
        cylinder(-0.09, -0.09, 0.0, 0.5 * height, 0.09, "cloth"),
        ellipsoid(0.0, 0.0, 0.44 * height, 0.88 * height, 0.17, 0.26, "cloth"),
        ellipsoid(0.02, 0.0, 0.86 * height, height, 0.11, 0.10, "cloth"),
    ))  # fmt: skip


def tree(rng: np.random.Generator, height: float) -> Shape:
    """A trunk and a crown of two or three overlapping ellipsoids."""
    trunk = 0.05 + 0.018 * height
    base, width = max(1.9, 0.28 * height), 0.24 * height
    lobes = [ellipsoid(0.0, 0.0, base, height, width, width, "leaves")]
    for _ in range(rng.integers(1, 3)):
        x, y = rng.uniform(-0.45, 0.45, 2) * width
        low = base + rng.uniform(0.0, 0.3) * (height - base)
        lobes.append(ellipsoid(x, y, low, low + 0.6 * (height - base), 0.72 * width, 0.66 * width, "leaves"))
    return Shape("tree", 2 * trunk, 2 * trunk, (cylinder(0, 0, -0.3, base + 0.5, trunk, "bark"), *lobes))


def bush(rng: np.random.Generator) -> Shape:
    """A low ellipsoid of leaves."""
    rx, ry, top = rng.uniform(0.4, 1.1), rng.uniform(0.4, 1.1), rng.uniform(0.6, 1.9)
    return Shape("bush", 2 * rx, 2 * ry, (ellipsoid(0, 0, -0.35 * top, top, rx, ry, "hedge"),))


def pole(height: float = 6.5, radius: float = 0.09) -> Shape:
    """A lamp post; its arm reaches over the road."""
    arm = box(0.0, 0.7, height - 0.15, height, 0.25, 1.4, "metal")
    return Shape("pole", 2 * radius, 2 * radius, (cylinder(0, 0, -0.2, height, radius, "metal"), arm))


def sign(height: float = 2.5) -> Shape:
    """A traffic sign on a thin post."""
    plate = box(0.0, 0.0, height - 0.65, height, 0.04, 0.62, "paint")
    return Shape("sign", 0.1, 0.62, (cylinder(0, 0, -0.2, height - 0.6, 0.035, "metal"), plate))


def cabinet(rng: np.random.Generator) -> Shape:
    """A litter bin, a letter box or a switch cabinet."""
    length, width, top = rng.uniform(0.4, 1.1), rng.uniform(0.35, 0.5), rng.uniform(0.8, 1.4)
    return Shape("cabinet", length, width, (box(0, 0, -0.2, top, length, width, "paint"),))


def block(name: str, length: float, width: float, height: float, material: str) -> Shape:
    """One box: a building, a garden wall, a stretch of fence or hedge. It reaches into uneven ground."""
    return Shape(name, length, width, (box(0, 0, -1.2, height, length, width, material),))


def house(length: float, width: float, height: float, roof: float) -> Shape:
    """A building with an upper part that stands back: eaves, then a roof in two steps."""
    return Shape("building", length, width, (
        box(0, 0, -1.2, height, length, width, "facade"),
        box(0, 0, height, height + roof / 2, length, 0.70 * width, "masonry"),
        box(0, 0, height + roof / 2, height + roof, length, 0.35 * width, "masonry"),
    ))  # fmt: skip


@lru_cache(maxsize=256)
def vehicle(kind: str, size: float = 0.5) -> Shape:
    """A moving or parked thing by name; `size` in [0, 1] runs from the smallest of its kind to the largest."""
    if kind == "car":
        return car(3.7 + 1.2 * size, 1.66 + 0.22 * size, 1.42 + 0.2 * ((7 * size) % 1.0))
    if kind == "van":
        return van(4.9 + 1.0 * size, 1.88 + 0.12 * size, 1.95 + 0.6 * size)
    if kind == "bus":
        return bus(9.0 + 1.5 * size)
    if kind == "cyclist":
        return cyclist(1.65 + 0.2 * size)
    if kind == "pedestrian":
        return pedestrian(1.5 + 0.4 * size)
    raise UsageError(f"there is no vehicle {kind!r}; there are: car, van, bus, cyclist, pedestrian")

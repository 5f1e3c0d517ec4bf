"""What stands beside the roads: parked cars, trees, poles and signs; lots with fences, walls, hedges and buildings."""

from __future__ import annotations

import numpy as np

from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator import random_numbers, shapes
from copilot4d.simulator.ground import GARDEN, PAVEMENT, ROAD, Ground
from copilot4d.simulator.placing import PlacedObject, Placer
from copilot4d.simulator.roads import PARKING_WIDTH_M, PAVEMENT_WIDTH_M, Road, RoadMap, StreetOptions

FURNITURE_M = 0.5  # trees, poles and signs stand this far behind the kerb, clear of those who walk


class _Side:
    """One side of a road in its own coordinates: s along the centre line, depth behind the kerb."""

    def __init__(self, road: Road, side: int) -> None:
        self.road, self.side, self.length_m = road, side, len(road.centre) - 1.0

    def point(self, s: float, depth: float) -> FloatArray:
        return self._at(self.road.offset(self.side * (self.road.kerb_m(self.side) + depth)), s)

    def heading(self, s: float) -> float:
        tangent = self._at(self.road.normal, s)
        return float(np.arctan2(-tangent[0], tangent[1]))

    def facing(self, s: float) -> float:
        """The direction towards the road."""
        return self.heading(s) - self.side * np.pi / 2

    def _at(self, line: FloatArray, s: float) -> FloatArray:
        k = int(np.clip(s, 0, len(line) - 2))
        return np.asarray(line[k] + (s - k) * (line[k + 1] - line[k]))


def draw_objects(seed: int, road_map: RoadMap, ground: Ground, options: StreetOptions) -> tuple[PlacedObject, ...]:
    """Every static object of a street. Kerbside things come first: lots fill what is left."""
    placer = Placer(ground)
    sides = [_Side(road, side) for road in road_map.roads for side in (1, -1)]
    for i, side in enumerate(sides):
        rng = random_numbers.generator(seed, random_numbers.LAYOUT, 0, i)
        _line_kerb(placer, side, rng, options)
    for i, side in enumerate(sides):
        _fill_lots(placer, side, random_numbers.generator(seed, random_numbers.LAYOUT, 1, i))
    _fill_blocks(placer, road_map, random_numbers.generator(seed, random_numbers.LAYOUT, 2))
    return tuple(placer.items)


def _line_kerb(placer: Placer, side: _Side, rng: np.random.Generator, options: StreetOptions) -> None:
    end = side.length_m
    if side.road.has_parking(side.side):
        s = 9.0
        while s < end - 9.0:
            kind = "van" if rng.random() < 0.12 else "car"
            shape = shapes.vehicle(kind, round(float(rng.random()), 2))
            s += shape.length_m / 2 + rng.uniform(0.5, 1.4)
            wanted, lateral, turn = rng.random() < options.parked_share, rng.uniform(-0.1, 0.1), rng.normal(0.0, 0.02)
            if wanted and s < end - 9.0:
                yaw = side.heading(s) + (np.pi if side.side > 0 else 0.0) + turn
                placer.place(shape, side.point(s, -PARKING_WIDTH_M / 2 + lateral), yaw, uses=(ROAD,), margin_m=0.2)
            s += shape.length_m / 2
    for s in np.arange(rng.uniform(3, 9), end, rng.uniform(24, 36)):
        placer.place(
            shapes.pole(rng.uniform(5, 8)), side.point(s, FURNITURE_M), side.facing(s) - np.pi / 2, uses=(PAVEMENT,)
        )
    if rng.random() < 0.4:
        for s in np.arange(rng.uniform(4, 10), end, rng.uniform(8, 18)):
            tree = shapes.tree(rng, rng.uniform(5.0, 11.0))
            placer.place(tree, side.point(s + rng.uniform(-1, 1), FURNITURE_M), rng.uniform(0, 6.28), uses=(PAVEMENT,))
    for s in rng.uniform(2, end - 2, rng.poisson(end / 30)):
        placer.place(shapes.sign(rng.uniform(2.1, 2.8)), side.point(s, FURNITURE_M), side.heading(s), uses=(PAVEMENT,))
    for s in rng.uniform(2, end - 2, rng.poisson(end / 45)):
        placer.place(shapes.cabinet(rng), side.point(s, FURNITURE_M), side.heading(s), uses=(PAVEMENT,))


def _fill_lots(placer: Placer, side: _Side, rng: np.random.Generator) -> None:
    """Lot after lot along the road; a street keeps to one character: terraces at the pavement, or houses in gardens."""
    terraced = rng.random() < 0.3
    s = -8.0
    while s < side.length_m + 8.0:
        width = rng.uniform(9.0, 16.0) if terraced else rng.uniform(13.0, 24.0)
        middle = s + width / 2
        if rng.random() < 0.85:
            _build(placer, side, middle, width, terraced, rng)
        if not terraced or rng.random() < 0.3:
            _fence_in(placer, side, s, width, rng)
        _plant(placer, side, s, width, rng)
        if rng.random() < 0.35:
            car = shapes.vehicle("car", round(float(rng.random()), 2))
            yaw = side.facing(middle) + np.pi * rng.integers(2)
            spot = side.point(s + rng.uniform(0, 1) * width, PAVEMENT_WIDTH_M + rng.uniform(2.6, 5.0))
            placer.place(car, spot, yaw, margin_m=0.2)
        s += width


def _build(placer: Placer, side: _Side, s: float, lot: float, terraced: bool, rng: np.random.Generator) -> None:
    depth = rng.uniform(8.0, 13.0)
    length = lot - 0.2 if terraced else lot - rng.uniform(3.0, 7.0)
    set_back = rng.uniform(0.3, 2.5) if terraced else rng.uniform(3.5, 9.0)
    house = shapes.house(length, depth, rng.uniform(5.0, 9.0) if terraced else rng.uniform(3.2, 6.5), rng.uniform(2, 4))
    for extra in (0.0, 1.0, 2.5):  # where the road bends, stand a little further back
        spot = side.point(s, PAVEMENT_WIDTH_M + set_back + extra + depth / 2)
        if placer.place(house, spot, side.heading(s)):
            return


def _fence_in(placer: Placer, side: _Side, start: float, lot: float, rng: np.random.Generator) -> None:
    """A boundary along the pavement with a gap for the drive."""
    kind = rng.choice(["wall", "hedge", "fence", "none"], p=[0.2, 0.34, 0.26, 0.2])
    if kind == "none":
        return
    height = {"wall": rng.uniform(0.5, 1.7), "hedge": rng.uniform(0.9, 2.1), "fence": rng.uniform(0.8, 1.6)}[kind]
    thick = {"wall": 0.25, "hedge": rng.uniform(0.5, 0.9), "fence": 0.08}[kind]
    material = {"wall": "masonry", "hedge": "hedge", "fence": "fence"}[kind]
    gap, stretch = rng.uniform(0.0, lot - 4.0), 2.4
    for offset in np.arange(0.0, lot, stretch):
        if gap <= offset < gap + 3.6:
            continue
        s = start + offset + stretch / 2
        piece = shapes.block(str(kind), stretch - 0.12, float(thick), float(height * rng.uniform(0.95, 1.05)), material)
        placer.place(piece, side.point(s, PAVEMENT_WIDTH_M + 0.35 + thick / 2), side.heading(s), margin_m=0.02)


def _plant(placer: Placer, side: _Side, start: float, lot: float, rng: np.random.Generator) -> None:
    for _ in range(rng.poisson(1.1)):
        spot = side.point(start + rng.uniform(0, lot), PAVEMENT_WIDTH_M + rng.uniform(1.5, 9.0))
        placer.place(shapes.tree(rng, rng.uniform(3.5, 10.0)), spot, rng.uniform(0, 6.28))
    for _ in range(rng.poisson(2.2)):
        spot = side.point(start + rng.uniform(0, lot), PAVEMENT_WIDTH_M + rng.uniform(1.2, 7.0))
        placer.place(shapes.bush(rng), spot, rng.uniform(0, 6.28))


def _fill_blocks(placer: Placer, road_map: RoadMap, rng: np.random.Generator) -> None:
    """Behind the front row: trees and sheds, so that no line of sight runs over an empty plain."""
    low, high = road_map.junctions.min(axis=0) - 60.0, road_map.junctions.max(axis=0) + 60.0
    count = int(np.prod(high - low) / 450.0)
    for xy in rng.uniform(low, high, (count, 2)):
        if rng.random() < 0.75:
            placer.place(shapes.tree(rng, rng.uniform(4.0, 12.0)), xy, rng.uniform(0, 6.28), uses=(GARDEN,))
        else:
            shed = shapes.house(rng.uniform(4, 12), rng.uniform(4, 9), rng.uniform(2.3, 5.0), rng.uniform(1, 3))
            placer.place(shed, xy, rng.uniform(0, 6.28), uses=(GARDEN,))

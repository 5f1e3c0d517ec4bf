"""`Street`: everything about a place that does not move, made from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from copilot4d.errors import UsageError
from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator.casting import Bodies, CastScene, make_scene
from copilot4d.simulator.ground import Ground, draw_ground
from copilot4d.simulator.lanes import LaneTable, build_lanes
from copilot4d.simulator.layout import draw_objects
from copilot4d.simulator.placing import PlacedObject, solids_of
from copilot4d.simulator.roads import RoadMap, StreetOptions, draw_roads
from copilot4d.simulator.shapes import Primitive, Shape


@dataclass(frozen=True, kw_only=True)
class Street:
    """Roads, lanes, ground and static objects of one seed. Immutable: states and branches share it."""

    seed: int
    options: StreetOptions
    roads: RoadMap
    lanes: LaneTable
    ground: Ground
    objects: tuple[PlacedObject, ...]
    scene: CastScene

    @property
    def solids(self) -> FloatArray:
        """(primitives, 7) the boxes around all static primitives (x, y, half_x, half_y, yaw, bottom, top)."""
        return np.concatenate([solids_of(item) for item in self.objects])


@lru_cache(maxsize=4)
def draw_street(seed: int, options: StreetOptions | None = None) -> Street:
    """The street of a seed, the same on every machine and in every process."""
    if seed < 0:
        raise UsageError(f"a seed is a number from 0 up, got {seed}")
    options = options or StreetOptions()
    roads = draw_roads(seed, options)
    ground = draw_ground(seed, roads, options.relief_m)
    objects = draw_objects(seed, roads, ground, options)
    return Street(
        seed=seed,
        options=options,
        roads=roads,
        lanes=build_lanes(roads),
        ground=ground,
        objects=objects,
        scene=make_scene(ground, static_bodies(objects)),
    )


def static_bodies(objects: tuple[PlacedObject, ...]) -> Bodies:
    """The primitives of placed objects, in the world."""
    primitives = [(p, i) for i, item in enumerate(objects) for p in item.shape.primitives]
    owner = np.array([i for _, i in primitives], dtype=np.int64)
    params = np.array([_row(p) for p, _ in primitives]).reshape(-1, 8)
    place = np.array([[o.x, o.y, o.z, o.yaw] for o in objects]).reshape(-1, 4)[owner]
    cos, sin = np.cos(place[:, 3]), np.sin(place[:, 3])
    x, y = params[:, 0].copy(), params[:, 1].copy()
    params[:, 0], params[:, 1] = place[:, 0] + cos * x - sin * y, place[:, 1] + sin * x + cos * y
    params[:, 2:4] += place[:, 2:3]
    params[:, 6], params[:, 7] = cos, sin
    return Bodies(
        kind=np.array([p.kind for p, _ in primitives], dtype=np.int64),
        params=params,
        material=np.array([p.material for p, _ in primitives], dtype=np.int64),
        owner=owner,
    )


def moving_bodies(shapes: list[Shape]) -> Bodies:
    """The primitives of moving things, each in the frame of its owner: row i of the poses belongs to shapes[i]."""
    primitives = [(p, i) for i, shape in enumerate(shapes) for p in shape.primitives]
    return Bodies(
        kind=np.array([p.kind for p, _ in primitives], dtype=np.int64),
        params=np.array([_row(p) for p, _ in primitives], dtype=np.float64).reshape(-1, 8),
        material=np.array([p.material for p, _ in primitives], dtype=np.int64),
        owner=np.array([i for _, i in primitives], dtype=np.int64),
    )


def _row(p: Primitive) -> list[float]:
    return [p.x, p.y, p.bottom, p.top, p.half_x, p.half_y, 1.0, 0.0]

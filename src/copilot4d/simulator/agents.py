"""Who moves: the ego (agent 0), cars, vans, buses, cyclists and pedestrians, how they drive, and where they start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator import random_numbers, shapes
from copilot4d.simulator.lanes import DRIVE, WALK, LaneTable
from copilot4d.simulator.shapes import Shape
from copilot4d.simulator.street import Street

STEP_S = 0.05
EGO_SHAPE = shapes.ego_car()
SLOT_M = 14.0  # cars start in slots of this length, so that none overlaps another
WALK_SLOT_M = 4.0


@dataclass(frozen=True, kw_only=True)
class Population:
    """A agents: their bodies and tempers. These never change."""

    kinds: tuple[str, ...]
    shapes: tuple[Shape, ...]
    length_m: FloatArray  # (A,)
    width_m: FloatArray  # (A,)
    wheelbase_m: FloatArray  # (A,) between the two points of the body that follow the lane
    walks: NDArray[np.bool_]  # (A,)
    pace: FloatArray  # (A,) share of the speed limit, or for walkers and cyclists a speed in m/s
    headway_s: FloatArray  # (A,) time gap to the leader
    standstill_m: FloatArray  # (A,) gap at rest
    acceleration: FloatArray  # (A,) comfortable, m/s^2
    braking: FloatArray  # (A,) comfortable, m/s^2
    reaction_steps: NDArray[np.int64]  # (A,) what an agent decides now it does this many steps later
    keep_right_m: FloatArray  # (A,) how far right of its lane's middle it travels

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def reaction_s(self) -> FloatArray:
        """(A,) seconds."""
        return self.reaction_steps * STEP_S


@dataclass(frozen=True, kw_only=True)
class Start:
    """Where everybody is at first."""

    lane: NDArray[np.int64]
    s_m: FloatArray
    speed_m_s: FloatArray


def draw_population(street: Street) -> tuple[Population, Start]:
    """The agents of a street and their first places: slots on lanes, so that no two overlap."""
    rng = random_numbers.generator(street.seed, random_numbers.POPULATION)
    options, lanes = street.options, street.lanes
    kinds = ["car", *_vehicle_kinds(rng, options.cars), *["cyclist"] * options.cyclists]
    slots = _slots(lanes, DRIVE, SLOT_M, 1.2, rng)
    chosen = _vehicle_slots(slots, lanes, len(kinds), rng)
    kinds = kinds[: len(chosen)]
    walk_slots = _slots(lanes, WALK, WALK_SLOT_M, 0.8, rng)[: options.pedestrians]
    kinds += ["pedestrian"] * len(walk_slots)
    places = chosen + walk_slots
    n = len(kinds)
    sizes = np.round(rng.random(n), 2)
    bodies = (EGO_SHAPE, *(shapes.vehicle(k, float(z)) for k, z in zip(kinds[1:], sizes[1:], strict=True)))
    walks = np.array([k == "pedestrian" for k in kinds])
    bikes = np.array([k == "cyclist" for k in kinds])
    large = np.array([k in ("bus", "van") for k in kinds])
    length = np.array([b.length_m for b in bodies])
    pace = np.where(
        walks, rng.uniform(0.9, 1.7, n), np.where(bikes, rng.uniform(4.0, 6.5, n), rng.uniform(0.85, 1.1, n))
    )
    population = Population(
        kinds=tuple(kinds),
        shapes=bodies,
        length_m=length,
        width_m=np.array([b.width_m for b in bodies]),
        wheelbase_m=0.6 * length,
        walks=walks,
        pace=pace,
        headway_s=np.where(walks, 0.6, rng.uniform(1.0, 1.7, n)),
        standstill_m=np.where(walks, 0.4, rng.uniform(1.8, 2.8, n)),
        acceleration=np.where(walks, 1.0, np.where(large | bikes, 1.0, rng.uniform(1.2, 2.0, n))),
        braking=np.where(walks, 2.0, rng.uniform(1.6, 2.4, n)),
        reaction_steps=np.where(walks, 2, rng.integers(6, 15, n)),
        keep_right_m=np.where(walks, rng.uniform(-0.1, 0.1, n), np.where(bikes, 0.8, rng.uniform(-0.12, 0.12, n))),
    )
    lane = np.array([p[0] for p in places], dtype=np.int64)
    speed = np.where(walks | bikes, pace, 0.75 * lanes.limit_m_s[lane] * pace)
    return population, Start(lane=lane, s_m=np.array([p[1] for p in places]), speed_m_s=speed)


def _vehicle_kinds(rng: np.random.Generator, count: int) -> list[str]:
    return [str(k) for k in rng.choice(["car", "van", "bus"], size=count, p=[0.84, 0.12, 0.04])]


def _slots(
    lanes: LaneTable, kind: int, slot_m: float, play_m: float, rng: np.random.Generator
) -> list[tuple[int, float]]:
    """(lane, s) of every slot, in random order."""
    found: list[tuple[int, float]] = []
    for lane in np.flatnonzero(lanes.kind == kind):
        places = np.arange(0.8 * slot_m, lanes.length_m[lane] - 0.8 * slot_m, slot_m)
        found += [(int(lane), float(s)) for s in places + rng.uniform(-play_m, play_m, len(places))]
    return [found[i] for i in rng.permutation(len(found))]


def _vehicle_slots(
    slots: list[tuple[int, float]], lanes: LaneTable, count: int, rng: np.random.Generator
) -> list[tuple[int, float]]:
    """The ego's slot first: early on a long lane, mostly with somebody behind it and often with somebody ahead."""
    good = [p for p in slots if SLOT_M * 1.5 < p[1] < 0.4 * lanes.length_m[p[0]]] or slots
    ego = good[0]
    behind = [p for p in slots if p[0] == ego[0] and 0 < ego[1] - p[1] < 1.3 * SLOT_M]
    ahead = [p for p in slots if p[0] == ego[0] and 1.5 * SLOT_M < p[1] - ego[1] < 2.6 * SLOT_M]
    company = behind[:1] * int(rng.random() < 0.8) + ahead[:1] * int(rng.random() < 0.5)
    near = {(p[0], p[1]) for p in [ego, *behind, *ahead]}
    rest = [p for p in slots if p not in near]
    return [ego, *company, *rest][:count]

"""Roads: junctions joined by straight and curved roads, drawn from a seed. Everything here is seen from above.

World frame: x, y, z up, metres. A road runs from its first junction to its second; lateral offsets are positive to the
left of that direction. Traffic keeps right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from copilot4d.errors import UsageError
from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator import random_numbers

LANE_WIDTH_M = 3.3
PARKING_WIDTH_M = 2.2
PAVEMENT_WIDTH_M = 2.8
JUNCTION_RADIUS_M = 15.0  # roads begin this far from the middle of their junction (with one lane per direction)
SPEED_LIMITS_M_S = (30 / 3.6, 50 / 3.6)


@dataclass(frozen=True, kw_only=True)
class StreetOptions:
    """What kind of neighbourhood is drawn, and how busy it is."""

    columns: int = 3  # junctions along x
    rows: int = 3  # junctions along y
    max_lanes: int = 2  # lanes per direction: each road has between 1 and this many
    spacing_m: tuple[float, float] = (105.0, 170.0)  # between neighbouring junctions
    curve: float = 0.3  # radians by which a road may leave its junction off the straight line
    relief_m: float = 2.2  # height of the gentle hills
    cars: int = 30  # moving cars, vans and buses
    cyclists: int = 5
    pedestrians: int = 26
    parked_share: float = 0.55  # of the kerbside places that a road with parking has

    def __post_init__(self) -> None:
        if self.max_lanes < 1 or self.max_lanes > 3:
            raise UsageError(f"a street needs 1 to 3 lanes per direction, got max_lanes={self.max_lanes}")
        if self.columns < 2 or self.rows < 2 or self.columns * self.rows > 64:
            raise UsageError(f"a street has 2x2 to 64 junctions, got {self.columns} columns and {self.rows} rows")
        low, high = self.spacing_m
        if not 90.0 <= low <= high <= 400.0:
            raise UsageError(f"junctions lie 90 to 400 m apart (low before high), got spacing_m={self.spacing_m}")
        if not 0.0 <= self.curve <= 0.35:
            raise UsageError(f"curve must lie between 0 and 0.35 radians, got {self.curve}")
        if not 0.0 <= self.relief_m <= 3.0:
            raise UsageError(f"relief_m must lie between 0 and 3 metres (slopes stay gentle), got {self.relief_m}")
        if min(self.cars, self.cyclists, self.pedestrians) < 0:
            raise UsageError(
                f"counts must not be negative: cars={self.cars}, cyclists={self.cyclists}, "
                f"pedestrians={self.pedestrians}"
            )
        if not 0.0 <= self.parked_share <= 1.0:
            raise UsageError(f"parked_share is a share between 0 and 1, got {self.parked_share}")


@dataclass(frozen=True, kw_only=True)
class Road:
    """The carriageway between two junctions: its centre line (every metre or so), lanes and kerbs."""

    ends: tuple[int, int]  # junction indices
    centre: FloatArray  # (n, 2)
    normal: FloatArray  # (n, 2) to the left
    lanes: int  # per direction
    kerb_left_m: float  # lateral distance of the kerbs from the centre line
    kerb_right_m: float
    limit_m_s: float

    @property
    def length_m(self) -> float:
        """Along the centre line."""
        return float(np.linalg.norm(np.diff(self.centre, axis=0), axis=1).sum())

    def offset(self, lateral_m: float) -> FloatArray:
        """(n, 2) the line that runs beside the centre line."""
        return self.centre + lateral_m * self.normal

    def kerb_m(self, side: int) -> float:
        """The kerb's distance on the left (side = 1) or the right (side = -1)."""
        return self.kerb_left_m if side > 0 else self.kerb_right_m

    def has_parking(self, side: int) -> bool:
        """Whether there is room for parked cars on that side."""
        return self.kerb_m(side) > self.lanes * LANE_WIDTH_M + 1.0


@dataclass(frozen=True, kw_only=True)
class RoadMap:
    """Junctions and the roads between them; every junction has at least two roads."""

    junctions: FloatArray  # (J, 2)
    radius_m: float
    roads: tuple[Road, ...]

    def at(self, junction: int) -> list[tuple[int, int]]:
        """(road, end) of every road that meets the junction, counter-clockwise; end 0: the road begins here."""
        met = [(r, e) for r, road in enumerate(self.roads) for e in (0, 1) if road.ends[e] == junction]

        def bearing(pair: tuple[int, int]) -> float:
            road = self.roads[pair[0]]
            mouth = road.centre[0 if pair[1] == 0 else -1] - self.junctions[junction]
            return float(np.arctan2(mouth[1], mouth[0]))

        return sorted(met, key=bearing)


def draw_roads(seed: int, options: StreetOptions) -> RoadMap:
    """The road map of a seed: a lattice of junctions, pulled out of shape, with some of its roads left out."""
    rng = random_numbers.generator(seed, random_numbers.STREET)
    xs = np.cumsum(np.r_[0.0, rng.uniform(*options.spacing_m, options.columns - 1)])
    ys = np.cumsum(np.r_[0.0, rng.uniform(*options.spacing_m, options.rows - 1)])
    junctions = np.stack(np.meshgrid(xs, ys, indexing="ij"), axis=-1).reshape(-1, 2)
    junctions = junctions + rng.uniform(-8.0, 8.0, junctions.shape)
    pairs = _thinned(_lattice_pairs(options.columns, options.rows), len(junctions), rng)
    lanes = np.where(rng.random(len(pairs)) < 0.2, rng.integers(1, options.max_lanes + 1, len(pairs)), 1)
    radius = JUNCTION_RADIUS_M + LANE_WIDTH_M * (lanes.max() - 1)
    roads = tuple(
        _draw_road(junctions, pair, int(n), radius, options, rng) for pair, n in zip(pairs, lanes, strict=True)
    )
    return RoadMap(junctions=junctions, radius_m=float(radius), roads=roads)


def resample(line: FloatArray, spacing_m: float) -> FloatArray:
    """(n, 2) -> (m, 2): the same line in equal steps of about `spacing_m`, both ends kept."""
    distance = np.r_[0.0, np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))]
    stations = np.linspace(0.0, distance[-1], max(2, int(np.ceil(distance[-1] / spacing_m)) + 1))
    return np.stack([np.interp(stations, distance, line[:, axis]) for axis in (0, 1)], axis=-1)


def bezier(p0: FloatArray, p1: FloatArray, p2: FloatArray, p3: FloatArray, samples: int = 200) -> FloatArray:
    """(samples, 2) points of a cubic curve."""
    t = np.linspace(0.0, 1.0, samples)[:, None]
    return (1 - t) ** 3 * p0 + 3 * (1 - t) ** 2 * t * p1 + 3 * (1 - t) * t**2 * p2 + t**3 * p3


def _lattice_pairs(columns: int, rows: int) -> list[tuple[int, int]]:
    along_x = [(i * rows + j, (i + 1) * rows + j) for i in range(columns - 1) for j in range(rows)]
    along_y = [(i * rows + j, i * rows + j + 1) for i in range(columns) for j in range(rows - 1)]
    return along_x + along_y


def _thinned(pairs: list[tuple[int, int]], junctions: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Leave out up to a sixth of the roads, as long as every junction keeps two and all stay connected."""
    kept = list(pairs)
    for index in rng.permutation(len(pairs))[: rng.integers(0, len(pairs) // 6 + 1)]:
        trial = [p for p in kept if p != pairs[index]]
        degree = np.bincount(np.array(trial).ravel(), minlength=junctions)
        if degree.min() >= 2 and _connected(trial, junctions):
            kept = trial
    return kept


def _connected(pairs: list[tuple[int, int]], junctions: int) -> bool:
    reached, frontier = {0}, [0]
    while frontier:
        here = frontier.pop()
        for a, b in pairs:
            for start, end in ((a, b), (b, a)):
                if start == here and end not in reached:
                    reached.add(end)
                    frontier.append(end)
    return len(reached) == junctions


def _draw_road(
    junctions: FloatArray, pair: tuple[int, int], lanes: int, radius: float, options: StreetOptions,
    rng: np.random.Generator,
) -> Road:  # fmt: skip
    start, end = junctions[pair[0]], junctions[pair[1]]
    chord = end - start
    angles = rng.uniform(-options.curve, options.curve, 2) * (rng.random() < 0.65)  # a third of the roads is straight
    leave = _turned(chord, float(angles[0])) / 3
    arrive = _turned(chord, float(angles[1])) / 3
    line = bezier(start, start + leave, end - arrive, end, 400)
    clear = (np.linalg.norm(line - start, axis=1) >= radius) & (np.linalg.norm(line - end, axis=1) >= radius)
    centre = resample(line[clear], 1.0)
    tangent = np.gradient(centre, axis=0)
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    kerbs = lanes * LANE_WIDTH_M + 0.2 + PARKING_WIDTH_M * (rng.random(2) < 0.7)
    return Road(
        ends=pair,
        centre=centre,
        normal=np.stack([-tangent[:, 1], tangent[:, 0]], axis=-1),
        lanes=lanes,
        kerb_left_m=float(kerbs[0]),
        kerb_right_m=float(kerbs[1]),
        limit_m_s=SPEED_LIMITS_M_S[1] if lanes > 1 else SPEED_LIMITS_M_S[int(rng.random() < 0.4)],
    )


def _turned(vector: FloatArray, angle: float) -> FloatArray:
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([cos * vector[0] - sin * vector[1], sin * vector[0] + cos * vector[1]])

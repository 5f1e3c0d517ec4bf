"""Lanes: the lines that cars, cyclists and pedestrians follow, how they join at junctions, and which of them conflict.

One table holds all of them. Positions on a lane are (lane, s): metres from its start.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator.roads import LANE_WIDTH_M, RoadMap, bezier, resample

DRIVE, TURN, WALK, CORNER, CROSSING = range(5)  # kinds of lane; TURN and CROSSING lie in a junction and are reserved

STOP_LINE_M = 4.0  # driving lanes end this far before the road does, so that the crossing lies beyond the stop line
CONFLICT_M = 3.1  # two turns that come nearer than this are not driven at once: two lanes side by side are 3.3 m apart
BEND_CONFLICT_M = 4.4  # in a bend a bus needs more than its lane
LATERAL_ACCELERATION = 2.2  # m/s^2 that a driver accepts in a bend
WALK_OFFSETS_M = (2.15, 1.35)  # from the kerb: walking along the road's direction on its right, and against it


@dataclass(frozen=True, kw_only=True)
class LaneTable:
    """L lanes, sampled in equal steps into one array of points."""

    kind: NDArray[np.int64]  # (L,)
    length_m: FloatArray  # (L,)
    step_m: FloatArray  # (L,) between two samples of a lane
    first: NDArray[np.int64]  # (L,) row of the lane's first sample in `xy`
    count: NDArray[np.int64]  # (L,) samples of the lane
    xy: FloatArray  # (M, 2)
    limit_m_s: FloatArray  # (L,) speed limit, or what a bend allows
    origin: NDArray[np.int64]  # (L,) the lane that leads here, -1 where several do
    turn: FloatArray  # (L,) how much the lane turns in all, radians, left positive
    successors: tuple[tuple[int, ...], ...]
    conflicts: tuple[frozenset[int], ...]  # for TURN and CROSSING lanes

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def reserved(self) -> NDArray[np.bool_]:
        """(L,) whether a lane may be entered only with a reservation."""
        return np.asarray((self.kind == TURN) | (self.kind == CROSSING))

    def locate(self, lane: NDArray[np.int64], s_m: FloatArray) -> FloatArray:
        """(...,) lanes and positions -> (..., 2) points; positions are clamped to the lane."""
        steps = np.clip(s_m / self.step_m[lane], 0.0, self.count[lane] - 1.000001)
        lower = steps.astype(np.int64)
        fraction = (steps - lower)[..., None]
        row = self.first[lane] + lower
        return np.asarray((1 - fraction) * self.xy[row] + fraction * self.xy[row + 1])

    def line(self, lane: int) -> FloatArray:
        """(n, 2) the samples of one lane."""
        return self.xy[self.first[lane] : self.first[lane] + self.count[lane]]


class _Builder:
    def __init__(self) -> None:
        self.lines: list[FloatArray] = []
        self.kinds: list[int] = []
        self.limits: list[float] = []
        self.origins: list[int] = []
        self.successors: list[list[int]] = []

    def add(self, kind: int, line: FloatArray, limit_m_s: float, origin: int = -1, target: int = -1) -> int:
        sampled = resample(line, 0.5)
        self.lines.append(sampled)
        self.kinds.append(kind)
        self.limits.append(min(limit_m_s, _bend_limit(sampled)) if kind in (DRIVE, TURN) else limit_m_s)
        self.origins.append(origin)
        index = len(self.lines) - 1
        self.successors.append([] if target < 0 else [target])
        if origin >= 0:
            self.successors[origin].append(index)
        return index

    def table(self) -> LaneTable:
        lengths = np.array([np.linalg.norm(np.diff(line, axis=0), axis=1).sum() for line in self.lines])
        counts = np.array([len(line) for line in self.lines])
        return LaneTable(
            kind=np.array(self.kinds),
            length_m=lengths,
            step_m=lengths / (counts - 1),
            first=np.r_[0, np.cumsum(counts)[:-1]],
            count=counts,
            xy=np.concatenate(self.lines),
            limit_m_s=np.array(self.limits),
            origin=np.array(self.origins),
            turn=np.array([_total_turn(line) for line in self.lines]),
            successors=tuple(tuple(s) for s in self.successors),
            conflicts=_conflicts(self.lines, self.kinds, self.origins),
        )


@dataclass(frozen=True)
class _Mouth:
    """The lanes where one road meets one junction; left and right as seen from the junction, looking out."""

    cars_in: list[int]
    cars_out: list[int]
    walk_in: dict[str, int]  # "left" | "right"
    walk_out: dict[str, int]


def build_lanes(road_map: RoadMap) -> LaneTable:
    """Every lane of a road map. A turn's origin is its incoming lane; siblings of one origin are consecutive."""
    builder = _Builder()
    mouths = {}
    for r, road in enumerate(road_map.roads):
        along, against, walks = [], [], {}
        inner = slice(int(STOP_LINE_M), len(road.centre) - int(STOP_LINE_M))
        for k in range(road.lanes):  # k = 0 is next to the centre line
            lateral = (k + 0.5) * LANE_WIDTH_M
            along.append(builder.add(DRIVE, road.offset(-lateral)[inner], road.limit_m_s))
            against.append(builder.add(DRIVE, road.offset(lateral)[inner][::-1], road.limit_m_s))
        for side in (1, -1):
            for forward in (True, False):
                outer = forward == (side < 0)  # keep right on the pavement too
                line = road.offset(side * (road.kerb_m(side) + WALK_OFFSETS_M[0 if outer else 1]))[1:-1]
                walks[side, forward] = builder.add(WALK, line if forward else line[::-1], 2.0)
        # Looking out of its first junction, the road's left is the left; looking out of its second, it is the right.
        mouths[r, 0] = _Mouth(
            against, along, {"left": walks[1, False], "right": walks[-1, False]},
            {"left": walks[1, True], "right": walks[-1, True]},
        )  # fmt: skip
        mouths[r, 1] = _Mouth(
            along, against, {"left": walks[-1, True], "right": walks[1, True]},
            {"left": walks[-1, False], "right": walks[1, False]},
        )  # fmt: skip
    for junction in range(len(road_map.junctions)):
        _join(builder, [mouths[pair] for pair in road_map.at(junction)])
    return builder.table()


def _join(builder: _Builder, mouths: list[_Mouth]) -> None:
    n = len(mouths)
    for i, mouth in enumerate(mouths):
        for k, incoming in enumerate(mouth.cars_in):
            for step in range(1, n):  # counter-clockwise from the incoming road: first the right turn, last the left
                out = mouths[(i + step) % n].cars_out
                for target in _targets(k, len(mouth.cars_in), out, rightmost=step == 1, leftmost=step == n - 1):
                    line = _smooth_turn(builder.lines[incoming], builder.lines[target])
                    builder.add(TURN, line, builder.limits[target], incoming, target)
    for i, mouth in enumerate(mouths):
        following = mouths[(i + 1) % n]
        # The corner between a road and the next one counter-clockwise: its left side, and the other's right side.
        for start, end in (
            (mouth.walk_in["left"], following.walk_out["right"]),
            (following.walk_in["right"], mouth.walk_out["left"]),
        ):
            builder.add(CORNER, _smooth_turn(builder.lines[start], builder.lines[end]), 2.0, start, end)
        for start, end in (
            (mouth.walk_in["left"], mouth.walk_out["right"]),
            (mouth.walk_in["right"], mouth.walk_out["left"]),
        ):
            line = np.stack([builder.lines[start][-1], builder.lines[end][0]])
            builder.add(CROSSING, line, 2.0, start, end)


def _targets(k: int, lanes: int, out: list[int], *, rightmost: bool, leftmost: bool) -> list[int]:
    """Which lanes of a road the k-th incoming lane may turn into: outer lanes turn right, inner lanes turn left."""
    if rightmost and leftmost:  # a bend, not a choice
        return [out[min(k, len(out) - 1)]]
    if rightmost:
        return [out[-1]] if k == lanes - 1 else []
    if leftmost:
        return [out[0]] if k == 0 else []
    return [out[min(k, len(out) - 1)]]


def _smooth_turn(incoming: FloatArray, outgoing: FloatArray) -> FloatArray:
    start, end = incoming[-1], outgoing[0]
    leave, arrive = incoming[-1] - incoming[-2], outgoing[1] - outgoing[0]
    leave, arrive = leave / np.linalg.norm(leave), arrive / np.linalg.norm(arrive)
    reach = 0.38 * np.linalg.norm(end - start)
    return bezier(start, start + reach * leave, end - reach * arrive, end, 120)


def _headings(line: FloatArray) -> FloatArray:
    steps = np.diff(line, axis=0)
    return np.unwrap(np.arctan2(steps[:, 1], steps[:, 0]))


def _total_turn(line: FloatArray) -> float:
    headings = _headings(line)
    return float(headings[-1] - headings[0])


def _bend_limit(line: FloatArray) -> float:
    """The speed at which the sharpest bend of a line, over 4 m, is still comfortable."""
    headings = _headings(line)
    span = min(8, len(headings) - 1)
    if span < 1:
        return np.inf
    spacing = np.linalg.norm(line[1] - line[0])
    curvature = np.abs(headings[span:] - headings[:-span]).max() / (span * spacing)
    return float(np.sqrt(LATERAL_ACCELERATION / max(curvature, 1e-4)))


def _conflicts(lines: list[FloatArray], kinds: list[int], origins: list[int]) -> tuple[frozenset[int], ...]:
    shared: list[set[int]] = [set() for _ in lines]
    inside = [i for i, kind in enumerate(kinds) if kind in (TURN, CROSSING)]
    middle = {i: lines[i][len(lines[i]) // 2] for i in inside}
    for a, b in combinations(inside, 2):
        if kinds[a] == kinds[b] == CROSSING or np.abs(middle[a] - middle[b]).max() > 60.0:
            continue
        if origins[a] == origins[b] and kinds[a] == kinds[b] == TURN:
            continue  # they part: whoever comes behind follows until they have
        gap = np.linalg.norm(lines[a][:, None, :] - lines[b][None, :, :], axis=-1).min()
        bends = kinds[a] == kinds[b] == TURN and max(abs(_total_turn(lines[a])), abs(_total_turn(lines[b]))) > 0.5
        if gap < (BEND_CONFLICT_M if bends else CONFLICT_M):
            shared[a].add(b)
            shared[b].add(a)
    return tuple(frozenset(s) for s in shared)

"""Who may enter a junction. A turn or a crossing is reserved before it is entered; conflicting ones wait their turn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator.agents import STEP_S, Population
from copilot4d.simulator.lanes import CROSSING, LaneTable

PATIENCE_S = 3.0  # after this long at the line, later comers no longer slip through
GIVE_UP_S = 3.0  # a vehicle that stands before the line this long with a reservation gives it back


def release(
    held: NDArray[np.int64], lane: NDArray[np.int64], s_m: FloatArray, previous: NDArray[np.int64], people: Population
) -> NDArray[np.int64]:
    """Reservations end when the whole body has left the turn."""
    left = (held >= 0) & (previous == held) & (lane != held) & (s_m - people.length_m / 2 > 1.0)
    return np.where(left, -1, held)


def grant(
    candidates: NDArray[np.int64], *, held: NDArray[np.int64], wanted: NDArray[np.int64],
    requested_step: NDArray[np.int64], step: int, lanes: LaneTable, people: Population, room_m: FloatArray,
    occupied: frozenset[int],
) -> list[int]:  # fmt: skip
    """Which of the candidates get what they want, the longest waiting first.

    `wanted` (A,) is each agent's turn or crossing, `room_m` (L,) the free length at the start of every lane, and
    `occupied` are turns blocked by somebody who reserves nothing.
    """
    taken = set(held[held >= 0].tolist()) | occupied
    committed: dict[int, float] = {}
    for agent in np.flatnonzero(held >= 0).tolist():
        target = lanes.successors[int(held[agent])][0]
        committed[target] = committed.get(target, 0.0) + float(people.length_m[agent]) + 3.0
    barred: set[int] = set()
    granted = []
    for agent in sorted(candidates.tolist(), key=lambda a: (int(requested_step[a]), a)):
        turn = int(wanted[agent])
        target = lanes.successors[turn][0]
        if not lanes.conflicts[turn].isdisjoint(taken) or not lanes.conflicts[turn].isdisjoint(barred):
            if (step - requested_step[agent]) * STEP_S > PATIENCE_S:
                barred.add(turn)
            continue
        crossing = lanes.kind[turn] == CROSSING
        needed = float(people.length_m[agent]) + 3.0
        if not crossing and room_m[target] - committed.get(target, 0.0) < needed:
            continue
        granted.append(agent)
        taken.add(turn)
        committed[target] = committed.get(target, 0.0) + needed
    return granted

"""The moments of a street where a plan has consequences: found by trying the plans, not by guessing."""

from __future__ import annotations

from collections import deque

import numpy as np

from copilot4d.simulator.agents import STEP_S
from copilot4d.simulator.ego import EgoPlan
from copilot4d.simulator.lanes import DRIVE
from copilot4d.simulator.simulation import Simulation, branch

PAST_S, FUTURE_S = 3.0, 4.0
SEARCH_S = 120.0  # of a street
TURN_M = 2.0  # this far apart are the ends of `turn` and `keep` where the turn counts as another future
FOLLOWER_M = 1.0  # and this far the follower's ends under `brake` and `keep`, where it counts as held up
TURN_INTEREST, FOLLOWER_INTEREST = 4.0, 3.0
ENOUGH = TURN_INTEREST + FOLLOWER_INTEREST  # a moment that has both consequences
_EVERY_STEPS = 10


def best_moment(simulation: Simulation) -> tuple[float, int]:
    """Interest of a street's best moment, and its steps after time zero; the first with `ENOUGH` ends the search."""
    ahead = round(FUTURE_S / STEP_S) // _EVERY_STEPS
    first = round((PAST_S + 0.1) / STEP_S)
    steps, now = first, simulation.run(first * STEP_S).forgotten()
    passed: deque[Simulation] = deque()
    best = (0.0, first)
    while steps * STEP_S < SEARCH_S + FUTURE_S:
        passed.append(now)
        if len(passed) > ahead:
            moment = passed.popleft()
            hopeless = best[0] >= TURN_INTEREST and moment.follower() is None  # cannot be better than the best so far
            interest = 0.0 if hopeless else interest_of(moment, kept=now)
            if interest > best[0]:
                best = (interest, steps - ahead * _EVERY_STEPS)
            if interest >= ENOUGH:
                break
        now = now.run(_EVERY_STEPS * STEP_S).forgotten()
        steps += _EVERY_STEPS
    return best


def interest_of(moment: Simulation, kept: Simulation) -> float:
    """4 where `turn` ends elsewhere than `keep`, 3 where `brake` holds the follower up; less where it is less.

    `kept` is the moment 4 s later under `keep`.
    """
    if not _can_turn(moment, kept):
        return 0.0
    turned = branch(moment, EgoPlan.turn()).run(FUTURE_S)
    interest = TURN_INTEREST * min(1.0, _apart_m(turned, kept, 0) / TURN_M)
    follower = moment.follower()
    if follower is not None:
        braked = branch(moment, EgoPlan.brake()).run(FUTURE_S)
        interest += FOLLOWER_INTEREST * min(1.0, _apart_m(braked, kept, follower) / FOLLOWER_M)
    return interest


def _can_turn(moment: Simulation, kept: Simulation) -> bool:
    """Whether the ego drives towards a junction, can still choose where to go there, and enters it or could in time.

    Most egos do not: they stand in a queue, or the junction is far. No plan has to be tried to know that.
    """
    state, lanes = moment.state, moment.street.lanes
    lane, speed = int(state.lane[0]), float(state.speed_m_s[0])
    if speed < 1.0 or lanes.kind[lane] != DRIVE or len(lanes.successors[lane]) < 2:
        return False
    left_m = float(lanes.length_m[lane] - state.s_m[0]) - moment.people.length_m[0] / 2
    in_time = kept.state.lane[0] != lane or left_m < 0.9 * FUTURE_S * speed
    return bool(in_time and speed**2 / 7.0 + 4.0 < left_m)


def _apart_m(a: Simulation, b: Simulation, agent: int) -> float:
    return float(np.linalg.norm(a.state.pose[agent, :2] - b.state.pose[agent, :2]))

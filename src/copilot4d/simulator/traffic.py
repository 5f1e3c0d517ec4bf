"""One step of traffic: everybody looks at whoever is ahead, decides, and moves. The ego is agent 0.

Pure functions: `advance(world, state, plan)` gives the next state and leaves the given one as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator import random_numbers
from copilot4d.simulator.agents import STEP_S, Population, draw_population
from copilot4d.simulator.ego import EgoPlan, path_pose, swerve_offset
from copilot4d.simulator.following import HARDEST_BRAKING, command
from copilot4d.simulator.ground import RIDE_M
from copilot4d.simulator.lanes import CROSSING, DRIVE, TURN, LaneTable
from copilot4d.simulator.looking import Leaders, ego_in_the_way, leaders, place, room_at_start
from copilot4d.simulator.reservations import GIVE_UP_S, grant, release
from copilot4d.simulator.street import Street

MEMORY = 16  # steps of decisions that are still to be carried out; longer than any reaction


@dataclass(frozen=True, kw_only=True)
class World:
    """What does not change while time goes on."""

    street: Street
    people: Population


@dataclass(frozen=True, kw_only=True)
class TrafficState:
    """A moment. All arrays have one entry per agent."""

    step: int
    lane: NDArray[np.int64]  # -1: off the lanes, on a given path
    previous: NDArray[np.int64]
    following: NDArray[np.int64]
    s_m: FloatArray
    speed_m_s: FloatArray
    acceleration: FloatArray
    commands: FloatArray  # (A, MEMORY) decisions by step modulo MEMORY
    hops: NDArray[np.int64]  # how many lanes an agent has left behind
    held: NDArray[np.int64]  # its reserved turn or crossing, -1: none
    requested_step: NDArray[np.int64]  # since when it has asked for one, -1: it has not
    standing: NDArray[np.int64]  # steps since it last moved
    lateral_m: FloatArray  # left of its lane's middle
    pose: FloatArray  # (A, 4) x, y, z, yaw
    plan_step: int = 0  # when the ego's plan began
    turn_pending: bool = False
    seen: Leaders | None = None  # what everybody sees now, where it has been worked out already

    @property
    def time_s(self) -> float:
        """Since the beginning of the world."""
        return self.step * STEP_S


def begin(street: Street) -> tuple[World, TrafficState]:
    """The first moment of a street."""
    people, start = draw_population(street)
    world = World(street=street, people=people)
    n = len(people)
    none = np.full(n, -1, dtype=np.int64)
    following = np.array([_choose(world, a, int(start.lane[a]), 0) for a in range(n)], dtype=np.int64)
    state = TrafficState(
        step=0, lane=start.lane, previous=none, following=following, s_m=start.s_m, speed_m_s=start.speed_m_s,
        acceleration=np.zeros(n), commands=np.zeros((n, MEMORY)), hops=np.zeros(n, np.int64), held=none.copy(),
        requested_step=none.copy(), standing=np.zeros(n, np.int64), lateral_m=-people.keep_right_m,
        pose=np.zeros((n, 4)),
    )  # fmt: skip
    return world, replace(state, pose=_poses(world, state))


def advance(world: World, state: TrafficState, plan: EgoPlan) -> TrafficState:
    """The state one step later."""
    decided = _decide(world, state)
    moved = _move(world, state, decided, plan)
    return _reserve(world, moved, plan)


def reroute(world: World, state: TrafficState) -> TrafficState:
    """Let the ego take another turn than it would: at once if it still can, or at the next junction."""
    lanes, lane = world.street.lanes, int(state.lane[0])
    if lane < 0 or lanes.kind[lane] != DRIVE:
        return replace(state, turn_pending=True)
    left_m = lanes.length_m[lane] - state.s_m[0] - world.people.length_m[0] / 2
    others = [t for t in lanes.successors[lane] if t != state.following[0]]
    if not others or left_m < state.speed_m_s[0] ** 2 / 7.0 + 4.0:
        return replace(state, turn_pending=True)
    following, held, requested = state.following.copy(), state.held.copy(), state.requested_step.copy()
    following[0] = max(others, key=lambda t: abs(lanes.turn[t]))
    held[0] = requested[0] = -1
    return replace(state, following=following, held=held, requested_step=requested, turn_pending=False, seen=None)


def _decide(world: World, state: TrafficState) -> FloatArray:
    """(A,) the acceleration that each agent decides on now, and carries out after its reaction time."""
    lanes, people = world.street.lanes, world.people
    on_lane = np.maximum(state.lane, 0)
    seen = state.seen or _look(world, state)
    left_m = lanes.length_m[on_lane] - state.s_m
    # Without a reservation the stop line is a wall, from where one has to begin to brake for it.
    stop_gap = left_m - people.length_m / 2 - np.where(people.walks, 0.1, 0.6)
    barred = lanes.reserved[np.maximum(state.following, 0)] & (state.held != state.following) & (state.lane >= 0)
    barred &= stop_gap < _braking_distance(state.speed_m_s)
    limit = np.where(people.pace > 2.0, people.pace, np.inf)  # cyclists have a speed of their own
    factor = np.where(people.pace > 2.0, 1.0, people.pace)
    desired = np.where(people.walks, people.pace, np.minimum(lanes.limit_m_s[on_lane] * factor, limit))
    ahead = np.where(people.walks, np.inf, lanes.limit_m_s[np.maximum(state.following, 0)] * np.minimum(factor, 1.0))
    desired = np.minimum(desired, np.sqrt(ahead**2 + 2 * 1.4 * np.maximum(left_m, 0.0)))
    gap_ego, speed_ego = ego_in_the_way(
        lanes, people, state.lane, state.following, state.s_m, state.pose, state.speed_m_s
    )
    # Three obstacles, (3, A): the leader, the stop line, an ego in the way; the most careful decision counts.
    gaps = np.stack([seen.gap_m, np.where(barred, stop_gap, 1e6), gap_ego])
    speeds = np.stack([seen.speed_m_s, np.zeros(len(people)), speed_ego])
    decisions = command(
        state.speed_m_s, desired, gaps, speeds, acceleration=people.acceleration, braking=people.braking,
        headway_s=people.headway_s, standstill_m=people.standstill_m, reaction_s=people.reaction_s,
    )  # fmt: skip
    return np.asarray(decisions.min(axis=0))


def _move(world: World, state: TrafficState, decided: FloatArray, plan: EgoPlan) -> TrafficState:
    lanes, people = world.street.lanes, world.people
    n = len(people)
    commands = state.commands.copy()
    commands[:, state.step % MEMORY] = decided
    acceleration = commands[np.arange(n), (state.step - people.reaction_steps) % MEMORY].copy()
    elapsed_s = (state.step + 1 - state.plan_step) * STEP_S
    if plan.kind == "brake":
        acceleration[0] = min(-plan.braking_m_s2, acceleration[0])
    acceleration = np.maximum(np.maximum(acceleration, -HARDEST_BRAKING), -state.speed_m_s / STEP_S)
    speed = state.speed_m_s + acceleration * STEP_S
    travelled = 0.5 * (state.speed_m_s + speed) * STEP_S
    s = state.s_m + travelled
    lane, previous, following, hops = (a.copy() for a in (state.lane, state.previous, state.following, state.hops))
    pending = state.turn_pending
    for a in np.flatnonzero((lane >= 0) & (s >= lanes.length_m[np.maximum(lane, 0)])).tolist():
        s[a] -= lanes.length_m[lane[a]]
        previous[a], lane[a] = lane[a], following[a]
        hops[a] += 1
        following[a] = _choose(world, a, int(lane[a]), int(hops[a]))
        if a == 0 and pending and lanes.kind[lane[a]] == DRIVE and len(lanes.successors[lane[a]]) > 1:
            others = [t for t in lanes.successors[lane[a]] if t != following[a]]
            following[a], pending = max(others, key=lambda t: abs(lanes.turn[t])), False
    lateral = state.lateral_m.copy()
    if plan.kind == "swerve":
        lateral[0] = -people.keep_right_m[0] + swerve_offset(plan, elapsed_s)
    else:  # back to its lane from a swerve that another plan cut short
        lateral[0] += np.clip(-people.keep_right_m[0] - lateral[0], -0.8 * STEP_S, 0.8 * STEP_S)
    if plan.kind == "path":
        lane[0] = following[0] = previous[0] = -1
        speed[0] = path_pose(plan, elapsed_s)[3]
    moved = replace(
        state, step=state.step + 1, lane=lane, previous=previous, following=following, s_m=s, speed_m_s=speed,
        acceleration=acceleration, commands=commands, hops=hops, lateral_m=lateral, turn_pending=pending,
        standing=np.where(speed < 0.05, state.standing + 1, 0),
    )  # fmt: skip
    pose = _poses(world, moved, state)
    if plan.kind == "path":
        pose[0, 0], pose[0, 1], pose[0, 3] = path_pose(plan, elapsed_s)[:3]
        pose[0, 2] = world.street.ground.hills.at(pose[0, :2]) + RIDE_M
        pose[0, 3] = _unwrapped(pose[0, 3], state.pose[0, 3])
    return replace(moved, pose=pose)


def _reserve(world: World, state: TrafficState, plan: EgoPlan) -> TrafficState:
    """Give reservations back and hand out new ones."""
    lanes, people = world.street.lanes, world.people
    held = release(state.held, state.lane, state.s_m, state.previous, people)
    waits = state.held == state.following  # reserved, not yet entered
    stuck = waits & (state.standing * STEP_S > GIVE_UP_S) & (held >= 0)
    stops = np.zeros(len(people), dtype=bool)
    if plan.kind == "brake" and state.lane[0] >= 0:
        # An ego that will stop before the line lets the others pass.
        left_m = lanes.length_m[state.lane[0]] - state.s_m[0] - people.length_m[0] / 2
        stops[0] = state.speed_m_s[0] ** 2 / (2 * plan.braking_m_s2) < left_m
    if plan.kind == "path":
        held[0] = -1
    held = np.where(stuck | (stops & waits), -1, held)
    wants = (state.lane >= 0) & lanes.reserved[np.maximum(state.following, 0)] & (held != state.following) & (held < 0)
    on_lane = np.maximum(state.lane, 0)
    left_m = lanes.length_m[on_lane] - state.s_m - people.length_m / 2
    near = np.where(people.walks, left_m < 1.2, left_m < _braking_distance(state.speed_m_s) + 5.0)
    seen = _look(world, state)
    asks = wants & near & ~seen.same_lane & ~stops
    requested = np.where(asks, np.where(state.requested_step < 0, state.step, state.requested_step), -1)
    asking, standing = np.flatnonzero(asks), state.standing.copy()
    if len(asking):
        room = room_at_start(lanes, people.length_m, state.lane, state.s_m)
        got = grant(
            asking, held=held, wanted=state.following, requested_step=requested, step=state.step, lanes=lanes,
            people=people, room_m=room, occupied=_turns_blocked_by_ego(lanes, state),
        )  # fmt: skip
        held[got] = state.following[got]
        requested[got] = -1
        standing[got] = 0  # whoever has just got a reservation has not begun to waste it
    return replace(state, held=held, requested_step=requested, standing=standing, seen=seen)


def _look(world: World, state: TrafficState) -> Leaders:
    return leaders(world.street.lanes, world.people.length_m, state.lane, state.following, state.s_m, state.speed_m_s)


def _braking_distance(speed_m_s: FloatArray) -> FloatArray:
    """Where a comfortable stop begins."""
    return speed_m_s**2 / 3.6 + 1.2 * speed_m_s + 4.0


def _turns_blocked_by_ego(lanes: LaneTable, state: TrafficState) -> frozenset[int]:
    """An ego on a given path reserves nothing: turns that it stands on are taken."""
    if state.lane[0] >= 0:
        return frozenset()
    near = [
        t for t in np.flatnonzero(lanes.kind == TURN).tolist()
        if np.linalg.norm(lanes.line(t) - state.pose[0, :2], axis=1).min() < 3.0
    ]  # fmt: skip
    return frozenset(near)


def _choose(world: World, agent: int, lane: int, hops: int) -> int:
    """The next lane, by a number that belongs to (seed, agent, how many lanes it has left behind)."""
    lanes = world.street.lanes
    options = lanes.successors[lane]
    if world.people.kinds[agent] == "bus":
        return min(options, key=lambda t: abs(lanes.turn[t]))
    u = float(random_numbers.uniform(random_numbers.key(world.street.seed, random_numbers.ROUTE), agent, hops))
    if world.people.walks[agent] and len(options) > 1:  # most people go round the corner
        return next(t for t in options if (lanes.kind[t] == CROSSING) == (u < 0.3))
    return options[int(u * len(options))]


def _poses(world: World, state: TrafficState, before: TrafficState | None = None) -> FloatArray:
    """(A, 4): the body's two guide points lie on the lane; a swerve turns it into its path."""
    xy, yaw = place(world.street.lanes, world.people, state.lane, state.previous, state.following, state.s_m)
    left = np.stack([-np.sin(yaw), np.cos(yaw)], axis=-1)
    xy = xy + state.lateral_m[:, None] * left
    if before is not None:
        drift = (state.lateral_m - before.lateral_m) / STEP_S
        yaw = yaw + np.arctan2(drift, np.maximum(state.speed_m_s, 2.0))
        yaw = _unwrapped(yaw, before.pose[:, 3])
    z = np.where(world.people.walks, world.street.ground.height_at(xy), world.street.ground.hills.at(xy) + RIDE_M)
    return np.column_stack([xy, z, yaw])


def _unwrapped(yaw: FloatArray, before: FloatArray) -> FloatArray:
    """The same headings without jumps by a full turn, so that a heading between two steps lies between theirs."""
    return before + (yaw - before + np.pi) % (2 * np.pi) - np.pi

"""`Simulation`: a world with its past. Run it on, branch it, look at it with a lidar.

>>> simulation = start(seed=3)                                            # doctest: +SKIP
>>> moment = simulation.run(4.0)                                          # doctest: +SKIP
>>> braked = branch(moment, EgoPlan.brake()).run(3.0)                     # doctest: +SKIP
>>> kept = branch(moment, EgoPlan.keep()).run(3.0)                        # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import UsageError
from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator.agents import STEP_S, Population
from copilot4d.simulator.ego import EgoPlan
from copilot4d.simulator.footprints import rectangles_overlap
from copilot4d.simulator.roads import StreetOptions
from copilot4d.simulator.street import Street, draw_street
from copilot4d.simulator.traffic import TrafficState, World, advance, begin, reroute

WARM_UP_S = 3.0  # traffic sorts itself out before the time that a simulation calls zero
SWERVES_M = (2.4, -2.4, 1.7, -1.7, 1.1, -1.1, 0.6, -0.6)  # left first


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A moment of a street and everything that led to it. Immutable: `run` and `branch` give new ones."""

    world: World
    state: TrafficState
    plan: EgoPlan
    poses: tuple[FloatArray, ...]  # one (A, 4) per step since time zero: x, y, z, yaw
    speeds_m_s: tuple[FloatArray, ...]
    accelerations: tuple[FloatArray, ...]

    @property
    def time_s(self) -> float:
        """Seconds since time zero."""
        return (len(self.poses) - 1) * STEP_S

    @property
    def street(self) -> Street:
        """The place."""
        return self.world.street

    @property
    def people(self) -> Population:
        """Everybody; agent 0 is the ego."""
        return self.world.people

    def run(self, seconds: float) -> Simulation:
        """The simulation that many seconds later."""
        if not 0 <= seconds < np.inf:
            raise UsageError(f"time runs forward, for a finite time: got {seconds} seconds")
        state, poses, speeds, accelerations = self.state, [], [], []
        for _ in range(round(seconds / STEP_S)):
            state = advance(self.world, state, self.plan)
            poses.append(state.pose)
            speeds.append(state.speed_m_s)
            accelerations.append(state.acceleration)
        return replace(
            self, state=state, poses=self.poses + tuple(poses), speeds_m_s=self.speeds_m_s + tuple(speeds),
            accelerations=self.accelerations + tuple(accelerations),
        )  # fmt: skip

    def forgotten(self) -> Simulation:
        """The same moment without its past: its clock starts at zero again, and a long run needs no memory."""
        return replace(
            self, poses=self.poses[-1:], speeds_m_s=self.speeds_m_s[-1:], accelerations=self.accelerations[-1:]
        )

    def poses_at(self, time_s: float) -> FloatArray:
        """(A, 4) x, y, z, yaw of everybody at any time of the past, between steps on the straight line."""
        step = time_s / STEP_S
        last = len(self.poses) - 1
        if not -1.001 <= step <= last + 1.001:  # half a sweep beyond either end goes on straight
            raise UsageError(f"the simulation covers 0 to {self.time_s:.2f} s, asked for {time_s:.2f} s")
        nearest = round(step)
        if abs(step - nearest) < 1e-6 and 0 <= nearest <= last:
            return self.poses[nearest]  # exactly, so that branches share their last common moment to the bit
        if last == 0:
            return self.poses[0]
        lower = int(np.clip(np.floor(step), 0, last - 1))
        return self.poses[lower] + (step - lower) * (self.poses[lower + 1] - self.poses[lower])

    def follower(self) -> int | None:
        """The agent next behind the ego on its lane, if there is one within 40 m."""
        s, lane = self.state.s_m, self.state.lane
        behind = np.flatnonzero((lane == lane[0]) & (lane >= 0) & (s < s[0]) & (s > s[0] - 40.0))
        return int(behind[np.argmax(s[behind])]) if len(behind) else None

    def footprints(self) -> FloatArray:
        """(A, 5) everybody's rectangle now: x, y, half_x, half_y, yaw."""
        return _footprints(self.people, self.state.pose)


def start(seed: int, options: StreetOptions | None = None, plan: EgoPlan | None = None) -> Simulation:
    """Time zero of the street of a seed, with its traffic under way."""
    street = draw_street(seed, options)
    world, state = begin(street)
    for _ in range(round(WARM_UP_S / STEP_S)):
        state = advance(world, state, EgoPlan.keep())
    simulation = Simulation(
        world=world, state=state, plan=EgoPlan.keep(), poses=(state.pose,), speeds_m_s=(state.speed_m_s,),
        accelerations=(state.acceleration,),
    )  # fmt: skip
    return simulation if plan is None else branch(simulation, plan)


def branch(simulation: Simulation, ego_plan: EgoPlan) -> Simulation:
    """Continue from this moment under another ego plan. Everybody else draws the same random numbers, so two
    branches differ only by the consequences of the plans.
    """
    if simulation.state.lane[0] < 0 and ego_plan.kind != "path":
        raise UsageError(
            f"the ego has left the lanes on a given path: only another path can follow, not {ego_plan.kind!r}; branch "
            "from a moment before that path instead"
        )
    state = replace(simulation.state, plan_step=simulation.state.step)
    if ego_plan.kind == "turn":
        state = reroute(simulation.world, state)
    branched = replace(simulation, state=state, plan=ego_plan)
    if ego_plan.kind == "swerve" and ego_plan.offset_m is None:
        branched = replace(branched, plan=EgoPlan.swerve(_widest_swerve(branched)))
    return branched


def _widest_swerve(simulation: Simulation) -> float:
    """The first of SWERVES_M whose next seconds touch nothing; 0 where there is no room at all."""
    static = simulation.street.solids
    for offset in SWERVES_M:
        state, plan, clear = simulation.state, EgoPlan.swerve(offset), True
        for step in range(round(4.6 / STEP_S)):
            state = advance(simulation.world, state, plan)
            if step % 3 == 0 and not _ego_is_clear(simulation.people, state.pose, static):
                clear = False
                break
        if clear:
            return offset
    return 0.0


def _ego_is_clear(people: Population, pose: FloatArray, static: FloatArray) -> bool:
    rectangles = _footprints(people, pose)
    ego = rectangles[0]
    low = static[(static[:, 5] < pose[0, 2] + 1.8) & (np.abs(static[:, :2] - ego[:2]).max(axis=1) < 25.0)]
    hits: NDArray[np.bool_] = np.concatenate(
        [rectangles_overlap(ego, rectangles[1:], 0.35), rectangles_overlap(ego, low[:, :5], 0.25)]
    )
    return not hits.any()


def _footprints(people: Population, pose: FloatArray) -> FloatArray:
    return np.column_stack([pose[:, :2], people.length_m / 2, people.width_m / 2, pose[:, 3]])

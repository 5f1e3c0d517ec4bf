"""`street-v1`: named drives that everybody can make again, and `street-v1-whatif`: one moment, four plans.

A drive is reproducible from (SIMULATOR_VERSION, seed, sensor). Splits draw their seeds from ranges that do not meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from copilot4d.errors import UsageError
from copilot4d.simulator.agents import STEP_S
from copilot4d.simulator.drive import SimulatedDrive, drive_of, simulate_drive
from copilot4d.simulator.ego import EgoPlan
from copilot4d.simulator.lanes import DRIVE
from copilot4d.simulator.sensors import LidarSensor, sensor_named
from copilot4d.simulator.simulation import Simulation, branch, start

SIMULATOR_VERSION = 1  # raise it with every change that changes a drive
SECONDS = 12.0
RATE_HZ = 10.0
SENSOR = "mini32"
FIRST_SEED = {"train": 1_000_000_000_000, "val": 2_000_000_000_000, "test": 3_000_000_000_000}
SIZES = {"val": 20, "test": 20}  # train goes on as long as one likes

PLANS = ("keep", "brake", "swerve", "turn")
MOMENTS = 60
PAST_S, FUTURE_S = 3.0, 4.0
SEARCH_S = 30.0  # moments lie in the first half minute of a test street
_MOMENTS_PER_STREET = MOMENTS // SIZES["test"]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Where four futures part: a simulation at that time, driving with the traffic."""

    number: int
    simulation: Simulation

    @property
    def time_s(self) -> float:
        """On the clock of its drive."""
        return self.simulation.time_s


def split_seed(split: str, index: int) -> int:
    """The street of the index-th drive of a split."""
    if split not in FIRST_SEED:
        raise UsageError(f"street-v1 has no split {split!r}; its splits: {', '.join(FIRST_SEED)}")
    if not 0 <= index < SIZES.get(split, 1_000_000_000_000):
        raise UsageError(f"street-v1/{split} has drives 0 to {SIZES.get(split, 0) - 1}, asked for {index}")
    return FIRST_SEED[split] + index


def street_v1_drive(split: str, index: int, sensor: str | LidarSensor = SENSOR) -> SimulatedDrive:
    """One drive of street-v1; the same street with another sensor is the same drive seen otherwise."""
    rate = RATE_HZ if sensor == SENSOR else None
    width = 6 if split == "train" else 3
    return simulate_drive(
        seed=split_seed(split, index), sensor=sensor, seconds=SECONDS, rate_hz=rate, name=f"{split}_{index:0{width}d}"
    )


def whatif_drive(number: int, plan: str, sensor: str | LidarSensor = SENSOR) -> SimulatedDrive:
    """One future of a moment: 3 s of past, common to all plans, and 4 s under the plan.

    Sweep `moment_frame` is the last that all plans share: it ends when the plan begins.
    """
    if plan not in PLANS:
        raise UsageError(f"street-v1-whatif has no plan {plan!r}; its plans: {', '.join(PLANS)}")
    moment = whatif_moment(number)
    future = branch(moment.simulation, EgoPlan(kind=plan)).run(FUTURE_S + 0.1)
    device = sensor_named(sensor)
    rate = RATE_HZ if device.name == SENSOR else device.rate_hz
    last_common = moment.time_s - 0.5 / device.rate_hz
    return drive_of(
        future, device, name=f"whatif_{number:02d}_{plan}", rate_hz=rate, start_s=last_common - PAST_S,
        end_s=last_common + FUTURE_S + 1.0 / rate, moment_s=last_common, split="test",
        follower=moment.simulation.follower(),
    )  # fmt: skip


def whatif_moment(number: int) -> Moment:
    """The moment with this number: three moments a street of the test split, where a plan has consequences."""
    if not 0 <= number < MOMENTS:
        raise UsageError(f"street-v1-whatif has moments 0 to {MOMENTS - 1}, asked for {number}")
    street, rank = divmod(number, _MOMENTS_PER_STREET)
    return Moment(number=number, simulation=_moments_of(street)[rank])


@lru_cache(maxsize=8)
def _moments_of(index: int) -> tuple[Simulation, ...]:
    """The best moments of a test street in its first half minute, in the order of time, at least two seconds apart."""
    simulation = start(split_seed("test", index)).run(PAST_S + 0.1)
    passed = []
    while simulation.time_s < SEARCH_S + FUTURE_S:
        passed.append(simulation)
        simulation = simulation.run(10 * STEP_S)
    candidates = [(_interest(s, simulation), s) for s in passed if s.time_s < SEARCH_S]
    chosen: list[Simulation] = []
    for _, candidate in sorted(candidates, key=lambda pair: (-pair[0], pair[1].time_s)):
        if all(abs(candidate.time_s - other.time_s) > 1.99 for other in chosen):
            chosen.append(candidate)
        if len(chosen) == _MOMENTS_PER_STREET:
            break
    return tuple(sorted(chosen, key=lambda s: s.time_s))


def _interest(moment: Simulation, later: Simulation) -> float:
    """How much a plan changes: the ego would drive on rather than stop, somebody follows it, it can choose its turn."""
    state, lanes = moment.state, moment.street.lanes
    lane, speed = int(state.lane[0]), float(state.speed_m_s[0])
    after = later.poses[len(moment.poses) - 1 + round(FUTURE_S / STEP_S)]
    driven_m = float(np.linalg.norm(after[0, :2] - state.pose[0, :2]))
    braked_m = speed**2 / (2 * EgoPlan.brake().braking_m_s2)
    interest = 3.0 * min(1.0, max(0.0, driven_m - braked_m) / 10.0) + 3.0 * min(1.0, speed / 5.0)
    follower = moment.follower()
    if follower is not None:
        near = state.s_m[0] - state.s_m[follower] < 25.0
        interest += (2.0 if near else 1.0) * min(1.0, float(state.speed_m_s[follower]) / 4.0)
    if lanes.kind[lane] == DRIVE and len(lanes.successors[lane]) > 1:
        left_m = float(lanes.length_m[lane] - state.s_m[0]) - moment.people.length_m[0] / 2
        if speed**2 / 7.0 + 4.0 < left_m < 30.0:
            interest += 1.0
    return float(np.round(interest, 6))

"""`street-v1`: named drives that everybody can make again, and `street-v1-whatif`: one moment, four plans.

A drive is reproducible from (SIMULATOR_VERSION, seed, sensor). Splits draw their seeds from ranges that do not meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

from copilot4d.errors import UsageError
from copilot4d.simulator.agents import STEP_S
from copilot4d.simulator.drive import SimulatedDrive, drive_of, simulate_drive
from copilot4d.simulator.ego import EgoPlan
from copilot4d.simulator.moments import ENOUGH, FUTURE_S, PAST_S, best_moment
from copilot4d.simulator.sensors import LidarSensor, sensor_named
from copilot4d.simulator.simulation import Simulation, branch, start

SIMULATOR_VERSION = 2  # raise it with every change that changes a drive
SECONDS = 12.0
RATE_HZ = 10.0
SENSOR = "mini32"
FIRST_SEED = {"train": 1_000_000_000_000, "val": 2_000_000_000_000, "test": 3_000_000_000_000}
SIZES = {"val": 20, "test": 20}  # train goes on as long as one likes

PLANS = ("keep", "brake", "swerve", "turn")
MOMENTS = 60
_STREETS_PER_MOMENT = 5  # how many streets of the test range are searched for one moment at most


@dataclass(frozen=True, kw_only=True)
class WhatIfMoment:
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


@lru_cache(maxsize=8)
def whatif_moment(number: int) -> WhatIfMoment:
    """The moment with this number: the best of a street of the test range, chosen by what the plans lead to.

    The first call for a number searches up to five streets (some 20 s); later calls remember.
    """
    if not 0 <= number < MOMENTS:
        raise UsageError(f"street-v1-whatif has moments 0 to {MOMENTS - 1}, asked for {number}")
    seed, steps = _seed_and_steps(number)
    return WhatIfMoment(number=number, simulation=start(seed).run(steps * STEP_S))


@cache
def _seed_and_steps(number: int) -> tuple[int, int]:
    """Which street, and how many steps after its time zero.

    A street where no moment has every consequence hands over to the next; no street serves two moments. Streets from
    20 on are in no split, but in the range of test, which train and val never enter.
    """
    best_interest, best = -1.0, (0, 0)
    for attempt in range(_STREETS_PER_MOMENT):
        seed = FIRST_SEED["test"] + number + attempt * MOMENTS
        interest, steps = best_moment(start(seed))
        if interest > best_interest:
            best_interest, best = interest, (seed, steps)
        if interest >= ENOUGH:
            break
    return best

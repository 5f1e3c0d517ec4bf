"""The demo's street: one of street-v1/test, which no training sees, and a moment where the ego's plan matters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from copilot4d.errors import UsageError
from copilot4d.geometry import Drive
from copilot4d.progress import Track, silent
from copilot4d.simulator.benchmark import RATE_HZ, SECONDS, SENSOR, SIZES, split_seed
from copilot4d.simulator.drive import SimulatedDrive, drive_of
from copilot4d.simulator.ego import EgoPlan
from copilot4d.simulator.simulation import Simulation, branch, start

PLANS = ("keep", "brake", "swerve")
FIRST_FRAME, LAST_FRAME, EVERY = 24, 88, 8  # with 2.4 s before and 3 s after, in a drive of 120 frames
AHEAD_S = 3.2  # the longest forecast, and the last sweep's own half turn
SLOW_M_S = 2.0  # an ego below this has no plans worth comparing


@dataclass(frozen=True, kw_only=True)
class Street:
    """A drive through a street, one of its sweeps, and the same drive under each plan from there on."""

    drive: SimulatedDrive
    frame: int
    plan_drives: dict[str, Drive]


def open_street(number: int, frame: int | None = None, track: Track = silent) -> Street:
    """Street `number` of street-v1/test, from the drive's first sweep on; a frame of None takes the best moment."""
    if not 0 <= number < SIZES["test"]:
        raise UsageError(f"--street is one of the {SIZES['test']} test streets, 0 to {SIZES['test'] - 1}, got {number}")
    if frame is not None and not FIRST_FRAME <= frame < SECONDS * RATE_HZ - 30:
        last = int(SECONDS * RATE_HZ) - 31
        raise UsageError(f"--frame must leave room for past and future: {FIRST_FRAME} to {last}, got {frame}")
    beginning = start(split_seed("test", number))
    moments = _moments(beginning, range(FIRST_FRAME, LAST_FRAME + 1, EVERY) if frame is None else [frame])
    best, best_interest = moments[0], -1.0
    for candidate in track(moments, "trying what the ego could do") if len(moments) > 1 else moments:
        interest = interest_of(candidate[1])
        if interest > best_interest:
            best, best_interest = candidate, interest
    chosen, moment = best
    plan_drives = {plan: _drive(branch(moment, EgoPlan(kind=plan)).run(AHEAD_S), number, plan) for plan in PLANS}
    whole = drive_of(
        beginning.run(SECONDS + 0.05), SENSOR, name=f"test_{number:03d}", rate_hz=RATE_HZ, end_s=SECONDS, split="test"
    )
    return Street(drive=whole, frame=chosen, plan_drives=dict(plan_drives))


def interest_of(moment: Simulation) -> float:
    """How much depends on the plan: the ego's way, the follower's, room to swerve, and how many things move."""
    if moment.state.speed_m_s[0] < SLOW_M_S:
        return 0.0
    kept, slowed = (branch(moment, EgoPlan(kind=plan)).run(3.0) for plan in ("keep", "brake"))
    apart = np.linalg.norm(kept.state.pose[:, :2] - slowed.state.pose[:, :2], axis=1)
    follower = moment.follower()
    away = np.linalg.norm(moment.state.pose[:, :2] - moment.state.pose[0, :2], axis=1)
    moving = int(((away < 30.0) & (moment.state.speed_m_s > 1.0))[1:].sum())
    offset = abs(branch(moment, EgoPlan.swerve()).plan.offset_m or 0.0)
    held_up = 0.0 if follower is None else float(apart[follower])
    return min(1.0, float(apart[0]) / 12.0) + min(1.0, held_up / 4.0) + offset / 2.4 + min(1.0, moving / 4)


def _moments(beginning: Simulation, frames: range | list[int]) -> list[tuple[int, Simulation]]:
    """The simulation as each sweep ends: what follows may then differ without changing that sweep."""
    moments, now = [], beginning
    for frame in frames:
        now = now.run(frame / RATE_HZ + 0.5 / RATE_HZ - now.time_s)
        moments.append((frame, now))
    return moments


def _drive(simulation: Simulation, number: int, plan: str) -> SimulatedDrive:
    return drive_of(simulation, SENSOR, name=f"test_{number:03d}_{plan}", rate_hz=RATE_HZ, split="test")

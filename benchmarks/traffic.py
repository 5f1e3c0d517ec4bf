"""Does anybody drive through anybody? Many streets, traffic only, every pair of bodies looked at five times a second.

    python benchmarks/traffic.py [--minutes 1000] [--workers 2]

Each street runs for ten minutes. The ego alternates between driving with the traffic and a plan (brake, swerve, turn).
Prints simulated minutes, collisions (a vehicle and anybody else), hard braking, mean speed, and how much faster than
real time it ran.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from copilot4d.simulator import EgoPlan, branch, start
from copilot4d.simulator.agents import STEP_S
from copilot4d.simulator.footprints import overlapping_pairs

MINUTES_PER_STREET = 10
PLANS = ("keep", "brake", "keep", "swerve", "keep", "turn")


@dataclass(frozen=True)
class Outcome:
    seed: int
    collisions: int
    first: str
    mean_speed_m_s: float
    hard_braking_share: float


def run_street(seed: int) -> Outcome:
    simulation = start(seed)
    people = simulation.people
    half = np.column_stack([people.length_m / 2, people.width_m / 2])
    touching: set[tuple[int, int]] = set()
    first, speeds, hard = "", [], []
    for part in range(round(MINUTES_PER_STREET * 60 / 10)):
        kind = PLANS[part % len(PLANS)]
        part_run = branch(simulation, EgoPlan(kind=kind)).run(10.0)
        begin = len(simulation.poses)
        for step in range(begin, len(part_run.poses), 4):
            pose = part_run.poses[step]
            for i, j in overlapping_pairs(np.column_stack([pose[:, :2], half, pose[:, 3]])).tolist():
                if not (people.walks[i] and people.walks[j]) and (i, j) not in touching:
                    touching.add((i, j))
                    seconds = (part * 200 + step - begin) * STEP_S
                    who = f"{people.kinds[i]} {i} and {people.kinds[j]} {j}"
                    first = first or f"{who} at {seconds:.1f} s (plan {kind})"
        vehicles = ~people.walks
        speeds.append(np.stack(part_run.speeds_m_s[begin:])[:, vehicles].mean())
        hard.append((np.stack(part_run.accelerations[begin:])[:, vehicles] < -4.0).mean())
        # Forget the past: only the state goes on.
        simulation = branch(part_run, EgoPlan.keep()).forgotten()
    return Outcome(seed, len(touching), first, float(np.mean(speeds)), float(np.mean(hard)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    streets = max(1, options.minutes // MINUTES_PER_STREET)
    begin = time.perf_counter()
    outcomes = []
    with ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for outcome in pool.map(run_street, range(options.first_seed, options.first_seed + streets)):
            outcomes.append(outcome)
            if outcome.collisions:
                print(f"street {outcome.seed}: {outcome.collisions} collisions, first: {outcome.first}", flush=True)
            print(f"{len(outcomes)} of {streets} streets", file=sys.stderr, flush=True)
    elapsed = time.perf_counter() - begin
    minutes = streets * MINUTES_PER_STREET
    print(f"{minutes} simulated minutes in {streets} streets: {sum(o.collisions for o in outcomes)} collisions")
    hard = np.mean([o.hard_braking_share for o in outcomes])
    speed = np.mean([o.mean_speed_m_s for o in outcomes])
    print(f"mean speed {speed:.1f} m/s, "
          f"braking harder than 4 m/s^2 {hard:.2%} of the time")  # fmt: skip
    print(f"{minutes * 60 / elapsed:.0f} times faster than real time with {options.workers} workers")


if __name__ == "__main__":
    main()

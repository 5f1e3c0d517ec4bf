"""`copilot4d simulate`: write drives through streets that are drawn from a seed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot4d.cli.console import console, next_step, track
from copilot4d.datasets.simulated_generation import Generation, generate, unfinished


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write simulated drives: streets, traffic that reacts, and what a spinning lidar sees of them.

    Example: copilot4d simulate --out streets --count 20 --sensor mini32 --seed 1 --workers 2

    The same options give the same bytes, with any number of workers. Interrupted, the same command goes on where it
    stopped. Beside each drive, truth.npz says what every point lies on and where everybody was.
    """

    out: Path
    """The folder to write into: a data set for every other verb."""
    count: int = 10
    """How many drives; each has a street of its own. Asking for more later adds to the folder."""
    sensor: str = "mini32"
    """hdl64 (KITTI-like), hdl32 (nuScenes-like, 20 Hz), vls_pair (Argoverse-2-like), mini32 (light)."""
    seed: int = 0
    """Another seed gives other streets; no two seeds share one."""
    workers: int = 1
    """Processes."""
    format: Literal["folder", "kitti"] = "folder"
    """folder keeps everything; kitti is a KITTI Odometry tree."""
    seconds: float = 12.0
    """The length of a drive."""
    rate_hz: float | None = None
    """Sweeps a second; by default all that the sensor gives."""


def run(options: Options) -> int:
    """Simulate what is missing and say what is there."""
    generation = Generation(
        count=options.count, sensor=options.sensor, seed=options.seed, seconds=options.seconds,
        rate_hz=options.rate_hz, format=options.format,
    )  # fmt: skip
    there = generation.count - len(unfinished(generation, options.out))
    if there:
        console.print(f"{there} of {generation.count} drives are there already", highlight=False)
    folders = generate(generation, options.out, workers=options.workers, track=track)
    console.print(
        f"{len(folders)} drives of {options.seconds:g} s with {options.sensor} in {options.out}", markup=False,
        highlight=False,
    )  # fmt: skip
    next_step(f"copilot4d doctor {shlex.quote(str(options.out))}")
    return 0

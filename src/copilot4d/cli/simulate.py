"""`copilot4d simulate`: write drives through streets that are drawn from a seed."""

from __future__ import annotations

import shlex

from copilot4d.cli.console import console, next_step, track
from copilot4d.cli.options.simulate import Options
from copilot4d.datasets.simulated_generation import Generation, generate, unfinished


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
        f"{len(folders)} drive{'s' * (len(folders) != 1)} of {options.seconds:g} s "
        f"with {options.sensor} in {options.out}", markup=False, highlight=False,
    )  # fmt: skip
    next_step(f"copilot4d doctor {shlex.quote(str(options.out))}")
    return 0

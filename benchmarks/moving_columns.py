"""How well moving columns are found without labels: against the truth of simulated drives.

    python benchmarks/moving_columns.py --drives 2

Prints, for each drive, the share of named columns that truly hold something moving (precision), the share of such
columns that are named (recall), and the time for a sweep.
"""

from __future__ import annotations

import argparse
import functools
import time

from copilot4d.geometry import Drive, Sweep
from copilot4d.presets import mini
from copilot4d.simulator.benchmark import street_v1_drive
from copilot4d.tokens.columns import MOVING, MovingPoints, classify_columns
from copilot4d.tokens.yardstick import KnownSweep, column_classes


def main() -> None:
    """Print one row per drive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drives", type=int, default=2, help="the first drives of street-v1 train")
    parser.add_argument("--every", type=int, default=9, help="frames from one sweep to the next")
    options = parser.parse_args()
    config = mini().tokenizer
    for index in range(options.drives):
        drive = street_v1_drive("train", index)
        reader = MovingPoints(drive, functools.partial(read, drive))
        right = named = true = 0
        started, frames = time.process_time(), range(15, len(drive) - 15, options.every)
        for frame in frames:
            known = KnownSweep.of(drive, frame)
            moving = reader.of(frame, known.sweep)
            found = classify_columns(known.sweep.points, moving, config.grid, config.tokens) == MOVING
            truth = column_classes(known, config.grid, config.tokens) == MOVING
            right, named, true = right + int((found & truth).sum()), named + int(found.sum()), true + int(truth.sum())
        spent_ms = 1000 * (time.process_time() - started) / len(frames)
        print(
            f"{drive.name}: precision {right / max(named, 1):.2f}, recall {right / max(true, 1):.2f}, {true} moving "
            f"columns in {len(frames)} sweeps; {spent_ms:.0f} ms of one core a sweep, reading included"
        )


def read(drive: Drive, frame: int) -> Sweep:
    """A sweep without the ego's own returns."""
    sweep: Sweep = drive[frame]
    return sweep.without_box(drive.ego_box)


if __name__ == "__main__":
    main()

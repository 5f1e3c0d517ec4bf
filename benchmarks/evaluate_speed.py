"""How many reference frames a minute `evaluate` scores, and where the time goes, measured in one run.

    python benchmarks/evaluate_speed.py --model mini --data path/to/kitti --drive 08 --references 4
    python benchmarks/evaluate_speed.py --model ray_tracing --workers 2

Without --workers, CPU seconds of one thread a reference, of which forecasting and scoring; references a minute are then
those of one core that has nothing else to do. With --workers N, the wall clock of N processes, start-up apart: that
number is one of a machine without other work.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Mapping

from copilot4d import load_forecaster, open_dataset
from copilot4d.evaluation import Protocol, evaluate_dataset, window_score
from copilot4d.evaluation.workers import Workers
from copilot4d.forecaster import Forecaster
from copilot4d.geometry import Drive


def make(model: str, data: str, drive: str) -> tuple[Forecaster, Mapping[str, Drive]]:
    return load_forecaster(model), open_dataset(data).select([drive])


def main() -> None:
    options = parse()
    made = functools.partial(make, options.model, options.data, options.drive)
    forecaster, dataset = made()
    protocol = Protocol(roi_half_m=options.roi_half, every=options.every)
    run = functools.partial(evaluate_dataset, dataset=dataset, setting=options.setting)
    run(forecaster, protocol=protocol.with_changes(limit=1, thin=8))  # compiles and warms up
    if options.workers > 1:
        seconds = []
        for references in (options.workers, options.workers + options.references):  # the first is the start-up's price
            before = time.perf_counter()
            run(forecaster, protocol=protocol.with_changes(limit=references), workers=Workers(options.workers, made))
            seconds.append(time.perf_counter() - before)
        rate = 60 * options.references / max(seconds[1] - seconds[0], 1e-9)
        print(f"{options.model}, {options.workers} processes: {rate:.1f} references a minute by the wall clock")
        return
    forecasting = 0.0
    forecast = window_score._forecast

    def timed(*arguments: object) -> object:
        nonlocal forecasting
        before = time.process_time()
        try:
            return forecast(*arguments)  # type: ignore[arg-type]
        finally:
            forecasting += time.process_time() - before

    window_score._forecast = timed  # type: ignore[assignment]
    before = time.process_time()
    scores = run(forecaster, protocol=protocol.with_changes(limit=options.references))
    each = (time.process_time() - before) / scores.references
    share = forecasting / scores.references
    print(
        f"{options.model}, {scores.references} references, one thread: {each:.2f} CPU s each (forecasting {share:.2f}, "
        f"reading and scoring {each - share:.2f}), {60 / each:.1f} a minute and free core"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="ray_tracing")
    parser.add_argument("--data", default="street-v1/val")
    parser.add_argument("--drive", default="val_000")
    parser.add_argument("--setting", default="1s", choices=["1s", "3s"])
    parser.add_argument("--roi-half", type=float, default=32.0)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--references", type=int, default=4)
    parser.add_argument("--workers", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()

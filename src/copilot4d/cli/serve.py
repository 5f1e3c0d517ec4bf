"""`copilot4d serve`: play a log in real time and forecast from its newest sweep, as often as the machine can."""

from __future__ import annotations

import shlex
from itertools import islice

from copilot4d.cli.console import console, next_step
from copilot4d.cli.data_options import open_data
from copilot4d.cli.model_options import load, sampling, tell_limits
from copilot4d.cli.options.serve import Options
from copilot4d.cli.outputs import check_output_folder
from copilot4d.datasets.point_files import write_points
from copilot4d.errors import UsageError, check_range
from copilot4d.forecasting.live import LiveForecast, live_forecasts, played


def run(options: Options) -> int:
    """Run the verb."""
    check_range("--spacing", options.spacing, 0.01, 10.0)
    check_range("--future", options.future, 1, 100)
    if not options.speed > 0:
        raise UsageError(f"--speed must be positive, got {options.speed}")
    if options.limit is not None and options.limit < 1:
        raise UsageError(f"--limit must be at least 1, got {options.limit}")
    if options.out is not None:
        check_output_folder("--out", options.out)
    dataset = open_data(options.data, options)
    drive = dataset[options.drive or dataset.names[0]]
    forecaster = load(options)
    used = sampling(options, forecaster)
    tell_limits(forecaster)
    live = live_forecasts(
        played(drive, speed=options.speed), forecaster, spacing_s=options.spacing, future=options.future,
        guidance=used.guidance, steps=used.steps, seed=options.seed,
    )  # fmt: skip
    made, spent, last = 0, 0.0, None
    for one in islice(live, options.limit):
        made, spent, last = made + 1, spent + one.seconds, one
        _say(
            f"{one.reference.timestamp_ns * 1e-9:.2f} s: {len(one.forecast.sweeps)} sweeps ahead from {one.past} in "
            f"{one.seconds:.2f} s; {one.received} received, {one.skipped} skipped, {one.dropped} dropped"
        )
        _keep(options, made, one)
    if last is None:
        raise UsageError(
            f"drive {drive.name} has no two sweeps {options.spacing:g} s apart: choose another --spacing or drive"
        )
    _say(f"{made} forecasts, {made / max(spent, 1e-9):.2f} a second; {last.received} sweeps received")
    words = ["copilot4d", "forecast", "--model", options.model, "--data", str(options.data)]
    next_step(shlex.join([*words, "--out", "forecast", "--pictures"]))
    return 0


def _keep(options: Options, number: int, one: LiveForecast) -> None:
    if options.out is None:
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for k, sweep in enumerate(one.forecast.sweeps):
        write_points(options.out / f"{number:04d}_future_{k + 1:02d}.ply", sweep.points, None, sweep.origins)


def _say(words: str) -> None:
    console.print(words, markup=False, highlight=False)

"""`copilot4d forecast`: predict the sweeps that follow a moment of a drive, and write them."""

from __future__ import annotations

import math
import shlex

from copilot4d.cli.console import console, next_step, track, working
from copilot4d.cli.data_options import given_flags, how_read, open_data
from copilot4d.cli.forecast_files import check_format, prepare_folder, write_description, write_sweeps
from copilot4d.cli.forecast_moment import ForecastMoment, Route, choose_moment, plan_route
from copilot4d.cli.model_options import load, sampling, tell_limits
from copilot4d.cli.options.forecast import Options
from copilot4d.cli.outputs import check_output_file, check_output_folder
from copilot4d.cli.own_returns import tell_own_returns
from copilot4d.datasets.windows import frame_rule, protocol_windows
from copilot4d.errors import UsageError
from copilot4d.forecaster import Forecaster


def run(options: Options) -> int:
    """Forecast, write, and say what was written."""
    _check_out(options)
    if options.futures < 1:
        raise UsageError(f"--futures must be at least 1, got {options.futures}")
    # The data first: what is wrong there is told before weights are loaded.
    dataset = open_data(options.data, options)
    moment = choose_moment(dataset, options.drive, options.frame, options.setting, options.on_bad_sweep)
    route = plan_route(moment, options.setting, options.future_poses)
    forecaster = load(options)
    used = sampling(options, forecaster)
    tell_own_returns([moment.drive])
    _say_what_is_forecast(options, moment, route)
    tell_limits(forecaster)
    with working(f"{forecaster.name} forecasts"):
        forecast = forecaster.forecast(
            moment.past, route.world_from_lidar, guidance=used.guidance, steps=used.steps,
            seed=options.seed, futures=options.futures,
        )  # fmt: skip
    if options.rerun is not None:
        from copilot4d.cli.forecast_pictures import write_rrd

        _say(f"  {write_rrd(options.rerun, moment, route, forecast)}  past, truth, forecast and difference, for Rerun")
    if options.out.suffix == ".mcap":
        from copilot4d.cli.forecast_pictures import write_mcap

        _say(f"  {write_mcap(options.out, moment, route, forecast)}  past, truth, forecast and difference")
        next_step(shlex.join(["copilot4d", *_next_command(options, moment, forecaster)]))
        return 0
    check_format(forecast, options.format)
    prepare_folder(options.out)
    paths = write_sweeps(options.out, forecast, options.format, track)
    pictures = []
    if options.pictures:
        from copilot4d.cli.forecast_pictures import write_pictures  # here: drawing is slow to load

        region_half_m = forecaster.region_half_m
        pictures = write_pictures(options.out, moment, route, forecast, forecaster.name, track, region_half_m)
    description = write_description(
        options.out, moment, route, forecast, paths,
        model=forecaster.name, data=str(options.data), setting=options.setting,
        options={
            "guidance": used.guidance, "steps": used.steps, "seed": options.seed,
            "futures": options.futures, **forecaster.settings, "format": options.format,
            **how_read(options.data, options, dataset.select([moment.drive.name])),
        },
    )  # fmt: skip
    for path, sweep, timestamp_ns in zip(paths[0], forecast.sweeps, route.timestamps_ns, strict=True):
        after_s = (int(timestamp_ns) - moment.past[-1].timestamp_ns) * 1e-9
        _say(f"  {path}  {after_s:+.1f} s, {len(sweep)} points")
    if len(paths) > 1:
        _say(f"  {paths[1][0]} ... {paths[-1][-1].name}  {len(paths) - 1} other futures")
    for other in (description, *pictures):
        _say(f"  {other}")
    for reason in moment.skipped:
        _say(f"skipped: {reason}")
    next_step(shlex.join(["copilot4d", *_next_command(options, moment, forecaster)]))
    return 0


def _check_out(options: Options) -> None:
    """Before any work: a folder, or an .mcap file where that can be written; and an .rrd file where one is wanted."""
    if options.rerun is not None:
        from copilot4d.pictures.rerun_file import check_rerun

        check_output_file("--rerun", options.rerun, "forecast.rrd")
        if options.rerun.suffix != ".rrd":
            raise UsageError(f"--rerun writes a file that ends in .rrd, got {options.rerun}")
        check_rerun()
    if options.out.suffix != ".mcap":
        return check_output_folder("--out", options.out)
    from copilot4d.pictures.foxglove_file import check_foxglove

    check_foxglove()
    if options.pictures:
        raise UsageError(f"--pictures go into a folder, and --out {options.out} is a file: leave one of the two out")
    return check_output_file("--out", options.out, "forecast.mcap")


def _next_command(options: Options, moment: ForecastMoment, forecaster: Forecaster) -> list[str]:
    """Score the whole drive; where nothing of it can be scored, look at the data."""
    windows = protocol_windows({moment.drive.name: moment.drive}, options.setting)
    if not any(window.complete for window in windows):
        return ["doctor", str(options.data)]
    # A trained model is scored where it sees, and takes its time for every moment.
    half_m = forecaster.region_half_m
    fewer = ["--roi-half", f"{half_m:g}", "--every", "10"] if math.isfinite(half_m) else []
    return [
        "evaluate", "--model", options.model, "--data", str(options.data), "--drives", moment.drive.name,
        "--setting", options.setting, *given_flags(options), *fewer, "--out", "scores.json",
    ]  # fmt: skip


def _say_what_is_forecast(options: Options, moment: ForecastMoment, route: Route) -> None:
    seen, wanted = len(moment.past), frame_rule(moment.drive, options.setting).n_in
    _say(
        f"{options.model} forecasts {len(route.sources)} sweeps of drive {moment.drive.name} after frame "
        f"{moment.past_frames[-1]}, from {seen} past sweep{'' if seen == 1 else 's'}"
        + ("" if seen == wanted else f" (the {options.setting} setting has {wanted})")
    )
    if (onwards := route.frames.count(None)) > 0 and "file" not in route.sources:
        how = "goes on at constant velocity"
        if "standing still" in route.sources:
            how = "stands still, because one sweep does not tell its velocity"
        _say(f"The log has no sweep for the last {onwards} of these (it ends, or sweeps are missing): the ego {how}.")
    if "file" in route.sources:
        _say(f"The ego's future poses come from {options.future_poses}; the log's own future is no truth for them.")


def _say(words: str) -> None:
    console.print(words, markup=False, highlight=False)

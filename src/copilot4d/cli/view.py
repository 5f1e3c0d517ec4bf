"""`copilot4d view`: the what-if studio in the browser."""

from __future__ import annotations

import shlex
from dataclasses import replace
from time import sleep as _sleep

from copilot4d.baselines import BASELINES
from copilot4d.cli.console import console, errors_console, next_step
from copilot4d.cli.model_options import load, sampling, tell_limits
from copilot4d.cli.options.view import AUTO, Options
from copilot4d.cli.outputs import check_output_folder
from copilot4d.datasets import open_dataset
from copilot4d.errors import UsageError
from copilot4d.forecasting.load import SHIPPED_MODELS


def run(options: Options) -> int:
    """Serve until Ctrl-C."""
    check_output_folder("--out", options.out)
    if not 0 <= options.port < 65536:
        raise UsageError(f"--port must lie in 0..65535, got {options.port}")
    if options.frame is not None and options.drive is None:
        raise UsageError(f"--frame {options.frame} of which drive? Add --drive NAME")
    dataset = open_dataset(options.data)
    if options.drive is not None:
        dataset.select([options.drive])
    # Looked for and imported late: torch and viser take seconds, and wrong options are told before them.
    shipped = [name for name in SHIPPED_MODELS if _is_there(name)]
    model = (shipped or ["ray_tracing"])[0] if options.model == AUTO else options.model
    from copilot4d.studio.library import Library
    from copilot4d.studio.run import Sampling
    from copilot4d.studio.server import is_loopback, serving
    from copilot4d.studio.view import Start

    asked = Sampling(seed=options.seed, futures=options.futures).changed(options.guidance, options.sampling_steps)
    asked.checked()
    library = Library(
        models=(model, *shipped, *BASELINES), load=lambda name: load(replace(options, model=name))
    )  # fmt: skip
    forecaster = library.forecaster(model)
    used = sampling(options, forecaster)
    start = Start(
        data=str(options.data), model=model, out=options.out, drive=options.drive, frame=options.frame,
        sampling=asked.changed(used.guidance, used.steps).checked(), may_open=is_loopback(options.host),
    )  # fmt: skip
    tell_limits(forecaster)
    if not start.may_open:
        _warn(options)
    with serving(start, library, host=options.host, port=options.port) as studio:
        console.print(f"The studio is open at {studio.url} (Ctrl-C ends it)", markup=False, highlight=False)
        console.print(f"What you save goes to {options.out}", markup=False, highlight=False)
        _wait()
    next_step(f"copilot4d {next_command(model, str(options.data))}")
    return 0


def next_command(model: str, data: str) -> str:
    """Score the model on the same data."""
    return shlex.join(["evaluate", "--model", model, "--data", data, "--setting", "1s", "--out", "scores.json"])


def _is_there(name: str) -> bool:
    from copilot4d.checkpoints.model_folder import shipped_model

    try:
        shipped_model(name)
    except UsageError:
        return False
    return True


def _warn(options: Options) -> None:
    errors_console.print(
        f"copilot4d: --host {options.host} lets everyone who can reach this machine see this data and use its "
        "processor: there is no password. The page cannot open other data then. An SSH tunnel is safer: "
        f"ssh -L {options.port}:127.0.0.1:{options.port} THIS-MACHINE",
        style="yellow", markup=False, highlight=False,
    )  # fmt: skip


def _wait() -> None:
    """Until Ctrl-C, which here is the way to end and no accident."""
    try:
        while True:
            _sleep(3600)
    except KeyboardInterrupt:
        return

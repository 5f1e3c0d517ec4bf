"""`copilot4d evaluate`: score a model or a baseline on a data set by the field's protocol."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from copilot4d.cli.console import console, next_step, track
from copilot4d.cli.data_options import given_flags, how_read, open_data
from copilot4d.cli.held_output import held, terminated_as_interrupted
from copilot4d.cli.model_options import hub_revision, load, sampling, tell_limits
from copilot4d.cli.options.evaluate import Options
from copilot4d.cli.outputs import check_output_file
from copilot4d.cli.own_returns import tell_own_returns
from copilot4d.cli.score_table import COLUMNS, cell, drive_list, notes
from copilot4d.cli.submission import check_submission, submit
from copilot4d.datasets import Dataset
from copilot4d.errors import DataError, UsageError
from copilot4d.evaluation import Protocol, ScoreFile, evaluate_dataset
from copilot4d.evaluation.runner import protocol_references
from copilot4d.evaluation.workers import Workers
from copilot4d.forecaster import Forecaster


def run(options: Options) -> int:
    """Run the verb."""
    protocol = Protocol(
        convention=options.protocol,
        roi_half_m=options.roi_half,
        every=options.every,
        limit=options.limit,
        thin=options.thin,
        parity=options.parity,
    )
    check_submission(options.submission, options.queries, options.out)
    if options.submission is None:
        check_writable(options.out)
    if options.futures < 1:
        raise UsageError(f"--futures must be at least 1, got {options.futures}")
    # The data first: what is wrong there is told before weights are loaded.
    dataset = choose_drives(open_data(options.data, options), options.drives, options.split)
    dataset.prepare(track)
    if options.queries is not None:
        forecaster = load(options)
        used = sampling(options, forecaster)
        return submit(
            forecaster, dataset, options.queries, options.out, guidance=used.guidance, steps=used.steps,
            seed=options.seed,
        )  # fmt: skip
    protocol_references(dataset, options.setting, protocol)
    forecaster = load(options)
    used = sampling(options, forecaster)
    tell_limits(forecaster, protocol.half_m)
    tell_own_returns(dataset.values())
    unfinished = options.out.with_name(f"{options.out.name}.partial")
    with held(options.out), terminated_as_interrupted():
        scores = evaluate_dataset(
            forecaster,
            dataset,
            setting=options.setting,
            protocol=protocol,
            on_bad_sweep=options.on_bad_sweep,
            seed=options.seed,
            guidance=used.guidance,
            steps=used.steps,
            futures=options.futures,
            data=f"{dataset.format}: {options.data}",
            resume=unfinished,
            workers=Workers(options.workers, partial(_made_again, options)) if options.workers != 1 else None,
            about=how_read(options.data, options, dataset) | hub_revision(options.model),
            track=track,
        )
        scores.write(options.out)
        unfinished.unlink(missing_ok=True)
    show(scores)
    console.print(f"\nWrote {options.out}", markup=False, highlight=False)
    next_step(next_command(options))
    return 0


def _made_again(options: Options) -> tuple[Forecaster, Dataset]:
    """In a worker process: the model and the data."""
    return load(options), choose_drives(open_data(options.data, options), options.drives, options.split)


def next_command(options: Options) -> str:
    """Compare with the other baseline's scores where they lie beside, or make them by the same rules."""
    other = "copy_last" if options.model != "copy_last" else "ray_tracing"
    beside = options.out.with_name(f"{other}.json")
    if beside.exists() and beside != options.out:
        return f"copilot4d compare {options.out} {beside}"
    words = ["copilot4d evaluate --model", other, "--data", options.data, "--setting", options.setting]
    words += ["--drives", *options.drives] if options.drives else []
    given: dict[str, object] = {"split": options.split, "roi-half": options.roi_half, "limit": options.limit}
    given["every"] = options.every if options.every != 1 else None
    given["protocol"] = options.protocol if options.protocol != "4docc" else None
    words += [word for name, value in given.items() if value is not None for word in (f"--{name}", _number(value))]
    words += ["--parity"] if options.parity else []
    words += given_flags(options)
    return " ".join(map(str, [*words, "--out", beside]))


def _number(value: object) -> object:
    """32.0 as a user would type it: 32."""
    return f"{value:g}" if isinstance(value, float) else value


def check_writable(out: Path) -> None:
    """Hours of work must not end at a file that cannot be written, or replace one that is not ours: look first."""
    check_output_file("--out", out, "scores.json")
    if out.exists():
        try:
            ScoreFile.read(out)
        except DataError as error:  # an older score file may be replaced; anything else is not ours to overwrite
            raise UsageError(
                f"--out {out} exists and is no score file; name another file, or move it ({error})"
            ) from error


def choose_drives(dataset: Dataset, drives: tuple[str, ...], split: str | None) -> Dataset:
    """The drives that the options name."""
    if split is not None:
        dataset = dataset.split(split)
    return dataset.select(drives) if drives else dataset


def show(scores: ScoreFile) -> None:
    """Print the scores as tables: over all frames, and per horizon."""
    title = f"{scores.model}, {scores.setting}, {scores.protocol} ({scores.protocol_hash})"
    table = Table(title=escape(title), title_justify="left")
    table.add_column("ahead")
    table.add_column("frames", justify="right")
    for column in COLUMNS:
        table.add_column(f"{column.title}\n{column.unit}", justify="right")
    for row in scores.per_horizon:
        values = [cell(row.metrics, column) for column in COLUMNS]
        table.add_row(f"{row.seconds_ahead:.1f} s", str(row.frames_scored), *values)
    table.add_section()
    table.add_row("all", str(scores.frames_scored), *(cell(scores.metrics, column) for column in COLUMNS), style="bold")
    console.print(table)
    for line in notes([scores]):
        console.print(line, markup=False, highlight=False)
    console.print(
        f"{scores.references} reference frames, drives {drive_list(scores.drives)}, in {scores.seconds:.0f} s "
        f"({scores.seconds_forecasting:.0f} s forecasting). Medians over all rays inside the ROI: "
        f"L1 {scores.pooled['roi_l1_median']:.3f} m, AbsRel {100 * scores.pooled['roi_absrel_median']:.2f} %",
        markup=False, highlight=False,
    )  # fmt: skip
    if (thin := scores.protocol_rules.get("thin")) is not None:
        console.print(
            f"A quick look: each {thin}th ray alone was forecast and scored. These are not the protocol's scores.",
            style="yellow", markup=False, highlight=False,
        )  # fmt: skip
    if scores.moving:
        ahead = ", ".join(f"{100 * row['within_1m']:.0f}" for row in scores.moving["per_horizon"])
        console.print(
            f"Rays that meet something moving: {100 * scores.moving['within_1m']:.0f} % within 1 m of the truth "
            f"(by frame: {ahead}), median error {scores.moving['median_m']:.2f} m, {scores.moving['rays']} rays",
            markup=False, highlight=False,
        )  # fmt: skip
    if scores.several:
        best, mean = scores.several["best"]["chamfer_roi"], scores.several["mean"]["chamfer_roi"]
        console.print(
            f"{scores.several['futures']} futures, Chamfer inside the ROI: best {best:.3f} m², mean {mean:.3f} m², "
            f"from each other {scores.several['spread_chamfer_roi']:.3f} m²",
            markup=False, highlight=False,
        )  # fmt: skip
    for reason, count in scores.not_scored_because.items():
        frames = "frame" if count == 1 else "frames"
        console.print(f"not scored: {count} {frames}: {reason}", markup=False, highlight=False)
    for sweep in scores.skipped:
        console.print(
            f"skipped: drive {sweep.drive}, frame {sweep.frame} ({len(sweep.references)} windows): {sweep.message}",
            markup=False, highlight=False,
        )  # fmt: skip

"""`copilot4d demo`: a street from nothing, forecast under three plans, scored and drawn; one page to open."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from copilot4d.baselines import BASELINES
from copilot4d.cli.console import console, track
from copilot4d.cli.demo_answers import PROTOCOL, Answer, Sampling, answer_all, mean_metrics
from copilot4d.cli.demo_files import write_films, write_panels, write_scores
from copilot4d.cli.demo_page import Subject, demo_page, next_commands
from copilot4d.cli.demo_questions import Question, log_questions, street_questions, usable_settings
from copilot4d.cli.demo_words import COLUMNS
from copilot4d.cli.model_options import tell_limits
from copilot4d.cli.options.demo import Options
from copilot4d.cli.outputs import check_output_folder
from copilot4d.cli.score_table import cell
from copilot4d.datasets import Dataset, open_dataset
from copilot4d.datasets.folder_writer import write_folder
from copilot4d.datasets.windows import SETTINGS, explain_missing
from copilot4d.errors import ProtocolError, UsageError
from copilot4d.forecaster import Forecaster, sampling_of
from copilot4d.forecasting.load import load_forecaster

SHIPPED = "mini"
BEST_BASELINE = "ray_tracing_recent"
COMPARED = ("copy_last", "ray_tracing")
MARKER = ".copilot4d-demo"  # a folder that has it was made here, and may be made again


def run(options: Options) -> int:
    """Ask, answer, score, draw, and say what to open."""
    dataset = _own_log(options)  # looked at before weights are loaded, and before anything is removed
    check_output_folder("--out", options.out)
    _refuse_foreign(options.out)
    forecasters, missing = _forecasters(options.model)
    _say(_what_forecasts(forecasters[0].name, missing))
    tell_limits(forecasters[0])
    if dataset is None:
        questions, source = _street(options)
    else:
        questions, source = log_questions(dataset, options.frame), str(options.data)
        _fresh_folder(options.out)
    used = sampling_of(forecasters[0], guidance=options.guidance, steps=options.sampling_steps)
    sampling = Sampling(seed=options.seed, guidance=used.guidance, steps=used.steps)
    answers: list[Answer] = []
    for forecaster in forecasters:
        answers += answer_all(questions, [forecaster], sampling, track)
    subject = Subject(
        model=forecasters[0].name, model_option=options.model or forecasters[0].name,
        trained=forecasters[0].name not in BASELINES, limits=forecasters[0].limits,
        missing_weights=missing, simulated=dataset is None, data=source,
    )  # fmt: skip
    _write(options.out, subject, questions, answers, sampling)
    return 0


def _write(
    out: Path, subject: Subject, questions: Sequence[Question], answers: Sequence[Answer], sampling: Sampling
) -> None:
    model = subject.model
    scores = write_scores(out, questions, answers, model, sampling, data=subject.data)
    films = write_films(out, questions[-1], answers, model, track)
    panels = write_panels(out, questions, answers, model, track)
    files = [
        (films[0], "the film: truth above, forecast below, the plans side by side"),
        (films[1], "the same film as a GIF"),
        *((path, "panel seen from above") for path in panels),
        (scores, "every score, frame by frame, with the rules"),
    ]
    for _ in track([None], "writing the page"):
        page = demo_page(subject, questions, answers, files).write(out / "index.html")
    for question in questions:
        console.print(_table(question, answers))
    _say(
        f"\nOpen {page} in a browser ({page.stat().st_size / 1e6:.1f} MB, works offline): orbit the clouds, drag the "
        "time."
    )
    _say(f"Film, panels and scores.json lie beside it in {out}.")
    _say("\nTry next:")
    for command in next_commands(subject):
        _say(f"  {command}")


def _forecasters(wanted: str | None) -> tuple[list[Forecaster], bool]:
    """The model and the baselines beside it; and whether the shipped weights were wanted but are not there."""
    missing = wanted is None and not _has_weights(SHIPPED)
    first = load_forecaster(wanted or (BEST_BASELINE if missing else SHIPPED))
    others = [load_forecaster(name) for name in COMPARED if name != first.name]
    return [first, *others], missing


def _has_weights(name: str) -> bool:
    """Whether this installation brings a model; weights that are there but damaged are an error, not a no."""
    from copilot4d.checkpoints.model_folder import shipped_model  # here: it imports torch, and --help should not

    try:
        shipped_model(name)
    except UsageError:
        return False
    return True


def _what_forecasts(model: str, missing: bool) -> str:
    if missing:
        return (
            f"This installation has no trained weights ({SHIPPED}): the demo shows the best baseline, {model}. It "
            "knows geometry, but not how traffic moves."
        )
    return f"The baseline {model} forecasts." if model in BASELINES else f"The trained model {model} forecasts."


def _own_log(options: Options) -> Dataset | None:
    if options.data is None:
        if options.drive is not None:
            raise UsageError("--drive names a drive of your own log: add --data PATH (or choose a --street)")
        return None
    _outside(options.data, options.out)
    return _one_drive(open_dataset(options.data), options.drive)


def _street(options: Options) -> tuple[list[Question], str]:
    from copilot4d.cli.demo_street import open_street  # here, so that demos of own logs do not pay for its compiler

    street = open_street(options.street, options.frame, track)
    _fresh_folder(options.out)
    folder = write_folder(street.drive, options.out / "drive", track=track)
    for _ in track([None], "what the lidar sees under each plan"):
        questions = street_questions(street.drive, street.plan_drives, street.frame)
    return questions, str(folder)


def _outside(data: Path, out: Path) -> None:
    """The output folder is emptied first: data inside it would be lost."""
    if out.resolve() in (data.resolve(), *data.resolve().parents):
        raise UsageError(f"--data {data} lies in --out {out}, which the demo makes anew; name another --out")


def _refuse_foreign(out: Path) -> None:
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).exists():
        raise UsageError(f"--out {out} holds other files and was not made by a demo; name a new or an empty folder")


def _fresh_folder(out: Path) -> None:
    if out.is_dir():
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).write_text("made by copilot4d demo, which may replace this folder\n", encoding="utf-8")


def _one_drive(dataset: Dataset, name: str | None) -> Dataset:
    """The asked drive, or the first that has a complete window."""
    candidates = dataset if name is None else dataset.select([name])
    for candidate in candidates:
        one = dataset.select([candidate])
        if usable_settings(one):
            return one
    why = "; ".join(
        explain_missing(drive, SETTINGS[0]) for _, drive in zip(range(8), candidates.values(), strict=False)
    )
    raise ProtocolError(f"no drive has a complete window to forecast: {why}")


def _table(question: Question, answers: Sequence[Answer]) -> Table:
    title = f"{question.setting}: mean over the plans with a truth, {PROTOCOL.name}, one moment"
    table = Table(title=title, title_justify="left")
    table.add_column("model", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column.title, justify="right")
    for model in dict.fromkeys(one.model for one in answers):
        metrics = mean_metrics([a for a in answers if a.setting == question.setting and a.model == model])
        table.add_row(model, *(cell(metrics, column) for column in COLUMNS))
    return table


def _say(words: str) -> None:
    console.print(words, markup=False, highlight=False)

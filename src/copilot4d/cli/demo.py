"""`copilot4d demo`: a drive from nothing, forecast, scored and drawn; one page to open at the end."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from copilot4d.cli.console import console, track
from copilot4d.cli.forecast_files import write_pictures
from copilot4d.cli.forecast_moment import choose_moment, plan_route
from copilot4d.cli.outputs import check_output_folder
from copilot4d.datasets import Dataset, open_dataset
from copilot4d.datasets.folder_writer import write_folder
from copilot4d.datasets.windows import SETTINGS, explain_missing, protocol_windows
from copilot4d.errors import ProtocolError, UsageError
from copilot4d.evaluation.protocol import Protocol
from copilot4d.evaluation.runner import evaluate_dataset
from copilot4d.evaluation.scores import ScoreFile
from copilot4d.forecast import load_forecaster
from copilot4d.pictures import Page

MODELS = ("copy_last", "ray_tracing")
SCORED_REFERENCES = 8  # per setting: enough for a table, few enough for a minute
MARKER = ".copilot4d-demo"  # a folder that has it was made here, and may be made again
COLUMNS = (
    ("chamfer_roi", "ROI Chamfer (m²)", 1),
    ("roi_l1_median", "L1 median (m)", 1),
    ("l1_mean", "L1 mean (m)", 1),
    ("absrel_mean", "AbsRel (%)", 100),
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Make a drive, forecast it with the baselines, score and draw the forecasts, and write one page to open.

    Example: copilot4d demo --out demo
    Example, on your own log: copilot4d demo --data path/to/log --out demo

    Without --data a street is simulated, and its drive is kept in OUT/drive for the other verbs.
    """

    out: Path = Path("demo")
    """The folder to write into. A folder that an earlier demo made is made again."""
    data: Path | None = None
    """A log of your own, in any format that copilot4d opens."""
    drive: str | None = None
    """Which drive of --data; by default the first with a complete window."""
    seed: int = 1
    """Of the simulated street: another seed is another street."""


def run(options: Options) -> int:
    """Make the drive, the forecasts, the scores and the page."""
    if options.data is not None:  # looked at before anything is removed
        _outside(options.data, options.out)
        _one_drive(open_dataset(options.data), options.drive)
    out = _fresh_folder(options.out)
    source = options.data if options.data is not None else _simulate(out / "drive", options.seed)
    dataset = _one_drive(open_dataset(source), options.drive)
    settings = [setting for setting in SETTINGS if _complete(dataset, setting)]
    scores = {setting: _score(dataset, setting, str(source), out) for setting in settings}
    pictures = {model: _draw(dataset, settings[-1], model, out / model) for model in MODELS}
    page = _page(dataset, scores, pictures, settings[-1], simulated=options.data is None).write(out / "index.html")
    for setting, files in scores.items():
        console.print(_table(setting, files))
    _say(f"\nOpen {page} in a browser: the forecasts as films, the scores, what they mean.")
    _say(f"Pictures, films and score files lie beside it in {out}.")
    _say("\nTry next:")
    for command in _commands(source, out):
        _say(f"  {command}")
    return 0


def _outside(data: Path, out: Path) -> None:
    """The output folder is emptied first: data inside it would be lost."""
    if out.resolve() in (data.resolve(), *data.resolve().parents):
        raise UsageError(f"--data {data} lies in --out {out}, which the demo makes anew; name another --out")


def _fresh_folder(out: Path) -> Path:
    check_output_folder("--out", out)
    if out.is_dir() and any(out.iterdir()):
        if not (out / MARKER).exists():
            raise UsageError(f"--out {out} holds other files and was not made by a demo; name a new or an empty folder")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).write_text("made by copilot4d demo, which may replace this folder\n", encoding="utf-8")
    return out


def _simulate(folder: Path, seed: int) -> Path:
    from copilot4d.simulator import simulate_drive  # here, so that demos of own logs do not pay for its compiler

    for _ in track([None], "simulating a street and its traffic"):
        drive = simulate_drive(seed=seed, sensor="mini32", seconds=12.0, name=f"street-{seed}")
    return write_folder(drive, folder, track=track)


def _one_drive(dataset: Dataset, name: str | None) -> Dataset:
    """The asked drive, or the first that has a complete window."""
    candidates = dataset if name is None else dataset.select([name])
    for candidate in candidates:
        one = dataset.select([candidate])
        if any(_complete(one, setting) for setting in SETTINGS):
            return one
    why = "; ".join(
        explain_missing(drive, SETTINGS[0]) for _, drive in zip(range(8), candidates.values(), strict=False)
    )
    raise ProtocolError(f"no drive has a complete window to forecast: {why}")


def _complete(dataset: Dataset, setting: str) -> int:
    """How many complete windows a setting has in the data; 0 where its rate does not fit the setting."""
    try:
        return sum(window.complete for window in protocol_windows(dataset, setting))
    except ProtocolError:
        return 0


def _score(dataset: Dataset, setting: str, data: str, out: Path) -> list[ScoreFile]:
    every = max(1, len(protocol_windows(dataset, setting)) // SCORED_REFERENCES)
    files = []
    for model in MODELS:
        scores = evaluate_dataset(
            load_forecaster(model), dataset, setting=setting, protocol=Protocol(every=every), data=data, track=track
        )
        scores.write(out / f"{model}_{setting}.json")
        files.append(scores)
    return files


def _draw(dataset: Dataset, setting: str, model: str, out: Path) -> Sequence[Path]:
    """A strip, a GIF and an MP4 of one moment in the middle of the drive."""
    out.mkdir(exist_ok=True)
    whole = [window for window in protocol_windows(dataset, setting) if window.complete]
    middle = whole[len(whole) // 2]
    moment = choose_moment(dataset, middle.drive, middle.reference, setting, "raise")
    route = plan_route(moment, setting, None)
    forecast = load_forecaster(model).forecast(moment.past, route.world_from_lidar)
    return write_pictures(out, moment, route, forecast, model, track)


def _rows(files: Sequence[ScoreFile]) -> list[list[str]]:
    return [[f.model, *(f"{f.metrics[key] * scale:.3f}" for key, _, scale in COLUMNS)] for f in files]


def _table(setting: str, files: Sequence[ScoreFile]) -> Table:
    table = Table(title=f"{setting}, {files[0].protocol}, {files[0].references} reference frames", title_justify="left")
    table.add_column("model", no_wrap=True)
    for _, words, _ in COLUMNS:
        table.add_column(words, justify="right")
    for row in _rows(files):
        table.add_row(*row)
    return table


def _page(
    dataset: Dataset, scores: dict[str, list[ScoreFile]], pictures: dict[str, Sequence[Path]], drawn: str, *,
    simulated: bool,
) -> Page:  # fmt: skip
    (name,) = dataset.names
    drive = dataset[name]
    page = Page("What comes next on this street?")
    made = (
        "a simulated street: its buildings, cars and people come from a seed, and a light 32-beam lidar drives through"
        if simulated
        else f"your log ({dataset.format})"
    )
    page.text(
        f"The drive {name} is {made}. It has {len(drive)} sweeps, {drive.interval_s:.2f} s apart. A forecast sees the "
        "past sweeps and where the ego vehicle will go, never the future sweeps; it predicts the point clouds that the "
        "lidar will measure. These are the two baselines that every model has to beat."
    )
    for model, files in pictures.items():
        strip, gif = files[0], files[1]
        page.heading(model)
        page.text(
            {
                "copy_last": "The newest sweep, carried along by the ego's motion. The world stands still: parked cars "
                "and walls are right, whatever moves is left behind, and nothing new comes into view.",
                "ray_tracing": "All past sweeps gathered into one cloud, and each ray of the lidar takes the range of "
                "the point that it passes nearest. Walls and parked cars stay sharp, moving things leave ghosts.",
            }[model]
        )
        page.image(gif, f"Past, truth and forecast of {model} in the {drawn} setting, seen from above, forward is up.")
        page.image(strip, "The same moment as a strip: past, truth and forecast, time runs to the right.")
    page.heading("Scores")
    page.text(
        "Smaller is better in every column. Chamfer is the mean squared distance between the predicted and the true "
        "cloud, within 70 m; L1 is how far off the range of a ray is, AbsRel the same as a share of the true range. "
        "The rules are those of the field's protocol (4D-Occ), which the Copilot4D paper follows."
    )
    for setting, both in scores.items():
        caption = f"{setting} setting: {both[0].frames_scored} predicted sweeps scored, protocol {both[0].protocol}."
        page.table(["model", *(words for _, words, _ in COLUMNS)], _rows(both), caption)
    return page


def _commands(source: Path, out: Path) -> list[str]:
    data = str(source)
    return [
        shlex.join(["copilot4d", "doctor", data]),
        shlex.join(["copilot4d", "forecast", "--model", "ray_tracing", "--data", data, "--out", f"{out}/forecast"]),
        "copilot4d demo --data PATH/TO/YOUR/LOG",
    ]


def _say(words: str) -> None:
    console.print(words, markup=False, highlight=False)

"""`copilot4d train depth-selector`: train which depth each ray of a model's forecasts takes, rendered or measured."""

from __future__ import annotations

import platform
import shlex
import shutil
import sys
import time
from pathlib import Path

import numpy as np

from copilot4d.baselines.occupancy_4d import Occupancy4d
from copilot4d.checkpoints.depth_parts import (
    DEPTH_SELECTOR,
    FORMER,
    OCCUPANCY,
    depth_selector_in,
    occupancy_in,
    save_depth_selector,
    save_occupancy,
)
from copilot4d.checkpoints.load_occupancy_4d import KIND as OCCUPANCY_4D
from copilot4d.checkpoints.load_occupancy_4d import load_occupancy_4d_network
from copilot4d.checkpoints.model_folder import DESCRIPTION, run_of, shipped_model, shipped_occupancy_4d
from copilot4d.checkpoints.pretrained import ModelCard, Score
from copilot4d.cli.card_words import SELECTOR_SUMMARY, occupancy_summary
from copilot4d.cli.console import console, next_step, track
from copilot4d.cli.options.train_depth_selector import Options
from copilot4d.cli.outputs import check_output_folder
from copilot4d.cli.training_drives import choose_drives
from copilot4d.datasets.windows import Window
from copilot4d.depth_selection import CANDIDATES, DepthSelector
from copilot4d.errors import UsageError
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.forecasting.load import SHIPPED_MODELS, load_forecaster
from copilot4d.training.distributed import choose_device
from copilot4d.training.malloc import keep_freed_memory
from copilot4d.training.tasks.depth_selector import Examples, costs_of, fit
from copilot4d.training.tasks.depth_selector_examples import forecast_examples, moments

HELD_OUT_EVERY = 10  # each tenth forecast is for the score
DEPTH_PART_NAMES = (DEPTH_SELECTOR, OCCUPANCY, *FORMER.values())


def run(options: Options) -> int:
    """Run the verb."""
    home, target = _home(options.model), target_of(options)
    out = target / DEPTH_SELECTOR
    check_output_folder("--out", out)
    if options.rays_per_frame < 1:
        raise UsageError(f"--rays-per-frame must be at least 1, got {options.rays_per_frame}")
    counts(options)
    device = choose_device(options.device)
    if device.type == "cpu":
        keep_freed_memory()
    forecaster = load_forecaster(options.model, tokenizer=options.tokenizer, device=str(device), depth_selection=False)
    if not isinstance(forecaster, Copilot4D):
        raise UsageError(f"{options.model} is no tokenizer with a world model: there are no rendered depths to choose")
    if options.top_k is not None:
        forecaster = forecaster.with_sampler(top_k=options.top_k or None)
    occupancy = occupancy_of(options)
    if occupancy is not None:
        forecaster = forecaster.with_occupancy(occupancy.to(device))
    began = time.monotonic()
    learned, held_out = collect(options, forecaster)
    start = None if options.from_scratch else start_of(home, occupancy)
    selector = fit(learned, steps=options.updates, seed=options.seed, start=start)
    by_selector = float(costs_of(selector, held_out).mean())
    if start is not None:
        before = float(costs_of(start, held_out).mean())
        is_better = by_selector < before
        console.print(
            f"held-out cost of a ray: {before:.3f} m2 with the selector that the model had, {by_selector:.3f} m2 "
            f"fine-tuned: {'BETTER than' if is_better else 'NOT BETTER than'} where it started"
            f"{'' if is_better else '. The former selector is kept; try more --forecasts or other drives'}",
            highlight=False,
        )
        selector, by_selector = (selector, by_selector) if is_better else (start, before)
    costs = np.concatenate([frame.costs for frame in held_out])
    rendered, measured = (float(costs[:, CANDIDATES.index(name)].mean()) for name in ("rendered", "recent"))
    console.print(
        f"mean cost of {len(costs)} held-out rays: {by_selector:.3f} m2 with the selector, {rendered:.3f} with "
        f"rendered depths alone, {measured:.3f} with measured depths alone",
        highlight=False,
    )
    if target.resolve() != home.resolve():
        copy_model(home, target)
    is_at_home = options.occupancy is None and target.resolve() == home.resolve()
    if occupancy is not None and not is_at_home:
        save_occupancy(out.parent / OCCUPANCY, occupancy.cpu(), occupancy_card(options, occupancy))
    save_depth_selector(
        out, selector, card(options, selector, sum(map(len, learned)), time.monotonic() - began, by_selector)
    )
    console.print(f"Wrote {out}", markup=False, highlight=False)
    shown = str(target) if "/" in str(target) else f"./{target}"  # a bare word could be the name of a shipped model
    words = [
        "copilot4d", "evaluate", "--model", shown, "--data", options.data[0], "--setting", options.settings[0],
        "--roi-half", f"{forecaster.region_half_m:g}", "--every", 12, "--out", "scores.json",
    ]  # fmt: skip
    next_step(shlex.join(map(str, words)))
    return 0


def target_of(options: Options) -> Path:
    """The run or model folder that gets the selector."""
    home = _home(options.model)
    is_shipped = str(options.model) in SHIPPED_MODELS
    if options.out is None:
        target = Path(f"{options.model}_tuned") if is_shipped else home
    else:
        target = options.out.parent if options.out.name == DEPTH_SELECTOR else options.out
    if target.resolve() == home.resolve():
        return target
    if not (home / DESCRIPTION).is_file():
        raise UsageError(
            f"--out: {home} is a run, which keeps its selector itself; leave --out away, and `copilot4d export` the run"
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists and is not empty; name another model folder with --out")
    return target


def copy_model(home: Path, target: Path) -> None:
    """The tokenizer, the world model and the description of a model folder, without what selects depths."""
    shutil.copytree(
        home, target, dirs_exist_ok=True,
        ignore=shutil.ignore_patterns(*DEPTH_PART_NAMES),
    )  # fmt: skip


def start_of(home: Path, occupancy: Occupancy4d | None) -> DepthSelector | None:
    """The selector that the model has, if it chooses among the same candidates."""
    start = depth_selector_in(home)
    if start is None or start.config.needs_occupancy_depths != (occupancy is not None) or not start.config.needs_motion:
        return None
    return start


def occupancy_of(options: Options) -> Occupancy4d | None:
    """The network that --occupancy names, else the model's own, else none."""
    if options.occupancy is None:
        return occupancy_in(_home(options.model))
    shipped = options.occupancy == OCCUPANCY_4D
    place = shipped_occupancy_4d() if shipped else Path(options.occupancy)
    if not shipped and not place.is_dir():
        raise UsageError(
            f"--occupancy {place}: there is no such folder; name a run of `copilot4d train occupancy-4d`, a "
            f"folder of `copilot4d export --occupancy-4d`, or {OCCUPANCY_4D} for the one that comes with the package"
        )
    return load_occupancy_4d_network(place).model


def collect(options: Options, forecaster: Copilot4D) -> tuple[list[Examples], list[Examples]]:
    """Rays to learn from, and rays for the score; no forecast gives both."""
    chosen, _ = choose_drives(options.data, drives=options.drives, split=options.split)
    drives = {drive.name: drive for drive in chosen}
    if len(drives) < len(chosen):
        raise UsageError("two data sets have drives of the same name; learn from one of them, or choose by --drives")
    learn: list[Window] = []
    score: list[Window] = []
    for setting, count in zip(options.settings, counts(options), strict=True):
        found = moments(drives, setting, count)
        if len(found) < 2:
            raise UsageError(
                f"one forecast of the {setting} setting is not enough to learn from and to score: raise --forecasts, "
                "or give more or longer drives"
            )
        last = len(found) - 1
        for i, window in enumerate(found):
            is_kept = i % HELD_OUT_EVERY == min(HELD_OUT_EVERY - 1, last)
            (score if is_kept else learn).append(window)
    learned, held_out = (
        forecast_examples(
            forecaster, drives, windows, rays_per_frame=options.rays_per_frame, steps=options.sampling_steps,
            seed=options.seed, track=track,
        )
        for windows in (learn, score)
    )  # fmt: skip
    return learned, held_out


def counts(options: Options) -> tuple[int, ...]:
    """How many forecasts of each setting."""
    given, settings = options.forecasts, options.settings
    if len(given) not in (1, len(settings)):
        raise UsageError(
            f"--forecasts takes one number for all settings or one for each of {', '.join(settings)}; got {len(given)}"
        )
    return given * len(settings) if len(given) == 1 else given


def card(options: Options, selector: DepthSelector, rays: int, seconds: float, score: float) -> ModelCard:
    """What is known about the selector."""
    return ModelCard(
        title=f"{options.model.resolve().name}: depth selector",
        summary=SELECTOR_SUMMARY,
        trained_on=[str(path) for path in options.data],
        steps=options.updates,
        samples=rays,
        training_s=seconds,
        hardware=f"{platform.machine()}, {sys.platform}",
        scores=[
            Score(
                metric="cost of a ray (m²)", value=score, dataset="held-out forecasts", protocol="the run's own score"
            )
        ],
        command=shlex.join(["copilot4d", *sys.argv[1:]]),
    )


def occupancy_card(options: Options, network: Occupancy4d) -> ModelCard:
    """What is known about the occupancy network: where it came from."""
    origin = f"It was copied from {options.occupancy or options.model}; see there for its training."
    return ModelCard(
        title=f"{options.model.resolve().name}: occupancy network",
        summary=f"An occupancy network. {occupancy_summary(network.config)} {origin}",
        trained_on=[f"see {options.occupancy or options.model}"], steps=0, samples=0, training_s=0.0, hardware="",
    )  # fmt: skip


def _home(model: Path) -> Path:
    """The folder in which a model's selector lives: the model folder, or the run, also of one of its checkpoints."""
    if str(model) in SHIPPED_MODELS:
        return shipped_model(str(model))
    return run_of(model) if (model / "checkpoints").is_dir() or (model / "manifest.json").is_file() else model

"""Plots of the results pages, made from the score files in docs/scores: once for light pages, once for dark ones.

    python benchmarks/results/plots.py

horizon: error against the time ahead, with a 95% interval over drives where a file tells the error of single frames.
ratios: error of each model divided by that of ray tracing, with its 95% interval.
compute: error against the core hours of training; classes: loss of a world model by class of columns. Both are made
from docs/results/data/training.csv, which training_curves.py writes, and left out where it has no such rows.
Each file ends with a hash of the scores that it shows, so that a test notices plots that are out of date.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from headline import BASE, DOCS, FOLDERS, MEDIAN, ROWS, Model, Scores, read_scores
from matplotlib.figure import Figure
from ratios import RESAMPLES, ratio
from training_curves import FILE as TRAINING
from training_curves import read_rows
from training_plots import draw_classes, draw_compute, fingerprint_of_rows

from copilot4d.errors import Copilot4dError
from copilot4d.evaluation import ScoreFile

OUT = DOCS / "images" / "plots"
MODELS = (*ROWS[:3], MEDIAN, *ROWS[3:])
COLOURS = ("#9e9e9e", "#e08a00", "#2a9d5c", "#7bbf5a", "#c44fa0", "#4f7fd9", "#d62f2f")  # legible on both grounds
INK = {"light": "#222222", "dark": "#dddddd"}
TITLES = {"1s": "1 s setting", "3s": "3 s setting"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=Path, default=DOCS / "scores")
    parser.add_argument("--training", type=Path, default=TRAINING)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    try:
        scores, rows = read_scores(options.scores, MODELS), read_rows(options.training)
    except Copilot4dError as error:
        print(f"plots.py: {error}", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    shown, trained = fingerprint(scores), fingerprint_of_rows(rows)
    drawings: dict[str, tuple[Callable[[], Figure | None], str]] = {
        "horizon": (lambda: draw_horizon(scores), shown),
        "ratios": (lambda: draw_ratios(scores), shown),
        "compute": (lambda: draw_compute(rows), trained),
        "classes": (lambda: draw_classes(rows), trained),
    }
    for name, (draw, of_what) in drawings.items():
        for ground, ink in INK.items():
            with mpl.rc_context(_style(name, ink)):
                figure = draw()
                if figure is not None:
                    _write(figure, options.out / f"{name}_{ground}.svg", of_what)
    return 0


def _write(figure: Figure, path: Path, of_what: str) -> None:
    figure.savefig(path, transparent=True, metadata={"Date": None})
    with path.open("a", encoding="utf-8") as file:
        file.write(f"<!-- scores {of_what} -->\n")
    print(path)


def fingerprint(scores: Scores) -> str:
    """A hash of all numbers that the plots show."""
    shown = [
        (setting, file, s.metrics["chamfer_roi"], [h.metrics["chamfer_roi"] for h in s.per_horizon], has_frames(s))
        for setting, files in scores.items()
        for file, s in sorted(files.items())
    ]
    return hashlib.sha256(repr(shown).encode()).hexdigest()[:16]


def has_frames(scores: ScoreFile) -> bool:
    """Whether the file tells the error of single frames (not in files of version 0.1)."""
    return bool(scores.by_reference) and all(r.chamfer_roi_ahead for r in scores.by_reference)


def interval_ahead(scores: ScoreFile, horizon: int) -> tuple[float, float]:
    """The 95% interval of the mean error of one future frame, by drawing drives with replacement."""
    sums: dict[str, list[float]] = {}
    for reference in scores.by_reference:
        if len(reference.chamfer_roi_ahead) >= horizon:
            value = reference.chamfer_roi_ahead[horizon - 1]
            if np.isfinite(value):
                total = sums.setdefault(reference.drive, [0.0, 0.0])
                total[0], total[1] = total[0] + value, total[1] + 1
    table = np.array(list(sums.values()))  # drives x (sum, frames)
    drawn = np.random.default_rng(0).integers(0, len(table), (RESAMPLES, len(table)))
    totals = table[drawn].sum(axis=1)
    low, high = np.percentile(totals[:, 0] / totals[:, 1], [2.5, 97.5])
    return float(low), float(high)


def draw_horizon(scores: Scores) -> Figure:
    """One panel per setting; a line per model, a band where single frames are known."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subplots(1, len(FOLDERS))
    for axes, setting in zip(panels, FOLDERS, strict=True):
        for model, colour in zip(MODELS, COLOURS, strict=True):
            found = scores[setting].get(model.file)
            if found is None:
                continue
            seconds = [h.seconds_ahead for h in found.per_horizon]
            errors = [h.metrics["chamfer_roi"] for h in found.per_horizon]
            width = 2.2 if model.ours else 1.4
            axes.plot(seconds, errors, "o-", ms=3.5, color=colour, lw=width, label=plain(model))
            if has_frames(found):
                bands = [interval_ahead(found, h.horizon) for h in found.per_horizon]
                axes.fill_between(seconds, *zip(*bands, strict=True), color=colour, alpha=0.18, lw=0)
        axes.set(xlabel="seconds ahead", title=TITLES[setting], ylim=(0, None))
        _bare(axes)
    panels[0].set_ylabel("ROI Chamfer distance (m²), smaller is better")
    panels[-1].legend(frameon=False, loc="upper left", fontsize=8.5)
    return figure


def draw_ratios(scores: Scores) -> Figure:
    """Dots with bars: each model's error divided by that of ray tracing."""
    figure = Figure(figsize=(10, 3.0), layout="constrained")
    panels = figure.subplots(1, len(FOLDERS), sharey=True)
    shown = [m for m in MODELS if m.file != BASE and all(m.file in scores[setting] for setting in FOLDERS)]
    colours = dict(zip((m.file for m in MODELS), COLOURS, strict=True))
    for axes, setting in zip(panels, FOLDERS, strict=True):
        for row, model in enumerate(reversed(shown)):
            found = ratio(scores[setting][model.file], scores[setting][BASE])
            axes.plot([found.low, found.high], [row, row], color=colours[model.file], lw=2)
            axes.plot([found.value], [row], "o", color=colours[model.file])
        axes.axvline(1.0, color=mpl.rcParams["axes.labelcolor"], lw=0.8, ls=":")
        axes.set(title=TITLES[setting], xlabel="error / error of ray tracing", xlim=(0, None))
        axes.set_yticks(range(len(shown)), [plain(model) for model in reversed(shown)])
        _bare(axes)
    return figure


def plain(model: Model) -> str:
    """A model's name without Markdown."""
    return model.name.replace("`", "")


def _style(name: str, ink: str) -> Any:
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    return {"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 10, **dict.fromkeys(inked, ink)}


def _bare(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="both", alpha=0.2, lw=0.6)


if __name__ == "__main__":
    sys.exit(main())

"""Two plots of docs/results/data/training.csv: error against compute, and the loss of a world model by class."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from training_curves import SETTINGS, Row

COLOURS = ("#d62f2f", "#4f7fd9", "#2a9d5c", "#e08a00", "#c44fa0", "#9e9e9e")  # legible on both grounds
CLASS_COLOURS = {"moving": "#d62f2f", "structure": "#4f7fd9", "ground": "#e08a00", "empty": "#9e9e9e"}
FRAMES = {"next": "first future frame", "last": "last future frame"}
STYLES = ("-", "--", ":", "-.")  # one per model
CHAMFER = "ROI Chamfer (m²), smaller is better"


def fingerprint_of_rows(rows: Sequence[Row]) -> str:
    """A hash of all numbers that the plots show."""
    return hashlib.sha256(repr([tuple(row) for row in rows]).encode()).hexdigest()[:16]


def draw_compute(rows: Sequence[Row]) -> Figure | None:
    """Left: held-out ROI Chamfer during training. Right: that on test after it, for each setting. None: no data."""
    names = list(dict.fromkeys(row.model for row in rows))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    curves = {name: _curve(rows, name, "chamfer_roi") for name in names}
    curves = {name: curve for name, curve in curves.items() if len(curve) > 1}
    tests = {s: [row for row in rows if row.score == f"test_{s}"] for s in SETTINGS}
    tests = {setting: found for setting, found in tests.items() if found}
    if not curves and not tests:
        return None
    panels = int(bool(curves)) + len(tests)
    figure = Figure(figsize=(1 + 4.2 * panels, 3.8), layout="constrained")
    axes = list(figure.subplots(1, panels, squeeze=False)[0])
    if curves:
        during = axes.pop(0)
        for name, curve in curves.items():
            during.plot(
                [row.core_hours for row in curve], [row.value for row in curve], "o-", ms=3.5, lw=1.8,
                color=colours[name], label=name,
            )  # fmt: skip
        during.set(title="during training, held-out clips", xlabel="core hours of training")
        during.set_ylim(0, None)
        _bare(during)
    for panel, (setting, found) in zip(axes, tests.items(), strict=True):
        for row in found:
            panel.plot([row.core_hours], [row.value], "o", ms=7, color=colours[row.model], label=row.model)
        panel.set(title=f"test, {setting[:-1]} s setting", xlabel="core hours of training")
        panel.set_ylim(0, 1.1 * max(row.value for row in found))
        panel.set_xlim(0, 1.1 * max(row.core_hours for row in found) or 1.0)
        _bare(panel)
    figure.axes[0].set_ylabel(CHAMFER)
    shown = {label: mark for a in figure.axes for mark, label in zip(*a.get_legend_handles_labels(), strict=True)}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    return figure


def draw_classes(rows: Sequence[Row]) -> Figure | None:
    """The loss of each class of columns against samples, for the first and the last future frame. None: no data."""
    names = [name for name in dict.fromkeys(row.model for row in rows) if _curve(rows, name, "nll_next_moving")]
    if not names:
        return None
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    panels = figure.subplots(1, len(FRAMES), sharey=True)
    for axes, (frame, title) in zip(panels, FRAMES.items(), strict=True):
        for number, name in enumerate(names):
            for kind, colour in CLASS_COLOURS.items():
                curve = _curve(rows, name, f"nll_{frame}_{kind}")
                if curve:
                    label = kind if len(names) == 1 else f"{kind}, {name}"
                    axes.plot(
                        [row.samples for row in curve], [row.value for row in curve], STYLES[number % len(STYLES)],
                        marker="o", ms=3, lw=1.8, color=colour, label=label,
                    )  # fmt: skip
        axes.set(title=title, xlabel="training samples")
        _bare(axes)
    panels[0].set_ylabel("loss (nats per token), smaller is better")
    panels[0].set_ylim(0, None)  # after both are drawn: they share the axis
    panels[-1].legend(frameon=False, fontsize=8.5, ncols=len(names))
    return figure


def _curve(rows: Sequence[Row], model: str, score: str) -> list[Row]:
    return sorted((row for row in rows if row.model == model and row.score == score), key=lambda row: row.update)


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="both", alpha=0.2, lw=0.6)

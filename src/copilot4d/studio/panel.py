"""The widgets of one browser window. They hold values; what these mean is the view's business."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import viser

from copilot4d.datasets.windows import SETTINGS
from copilot4d.studio.clouds import COLOUR_BY
from copilot4d.studio.paths import MAX_BRAKE_M_S2, MAX_SPEED_M_S, MAX_STEER_DEG, Controls
from copilot4d.studio.plan import PRESETS
from copilot4d.studio.run import MOST_FUTURES, MOST_GUIDANCE, MOST_SEED, MOST_STEPS, Sampling

ALL_FUTURES = "all"
LAYOUTS = ("overlay", "side by side")
Mood = Literal["plain", "bad", "good"]
_MOODS = {"plain": "inherit", "bad": "#ff8a80", "good": "#7ddc8c"}


class Panel:
    """All widgets, by name. `silently()` sets them without their callbacks taking it for the user's hand."""

    def __init__(
        self, gui: viser.GuiApi, *, data: str, models: Sequence[str], sampling: Sampling, may_open: bool
    ) -> None:
        self.is_silent = False
        self.status = gui.add_html("")
        self.progress = gui.add_progress_bar(0.0, visible=False, animated=True)
        self.imagine = gui.add_button("Imagine", hint="Sample the forecast of this plan", color="pink")
        self.cancel = gui.add_button("Cancel", disabled=True, hint="Stop sampling; finished frames stay")
        self.time = gui.add_slider(
            "time s", 0.0, 0.1, 0.1, 0.0, hint="0 is now; below it the past, above it the future"
        )
        self.clock = gui.add_html("")
        self.play = gui.add_checkbox("play", False)
        with gui.add_folder("Moment"):
            self.drive = gui.add_dropdown("drive", [""], hint="The drive of the data set")
            self.frame = gui.add_slider("frame", 0, 1, 1, 0, hint="The newest past sweep")
            self.setting = gui.add_dropdown(
                "horizon", list(SETTINGS), hint="How far ahead: five frames up to 1 s or 3 s"
            )
            self.model = gui.add_dropdown("model", list(models), hint="The model or baseline that forecasts")
            self.about_model = gui.add_html("")
        with gui.add_folder("What if the ego ..."):
            self.preset = gui.add_button_group("plan", PRESETS, hint="log: the recorded path of the ego")
            self.speed = gui.add_slider("speed m/s", 0.0, MAX_SPEED_M_S, 0.1, 0.0)
            self.steer = gui.add_slider("steer deg", -MAX_STEER_DEG, MAX_STEER_DEG, 0.1, 0.0, hint="Left is positive")
            self.brake = gui.add_slider("brake m/s²", 0.0, MAX_BRAKE_M_S2, 0.1, 0.0)
            self.handles = gui.add_checkbox("handles to drag", True, hint="Four positions along the path; drag them")
            self.keep = gui.add_button("Keep to compare", hint="Keep this forecast visible while you try another plan")
            self.drop = gui.add_button("Drop kept forecasts", disabled=True)
        with gui.add_folder("Look"):
            self.colour = gui.add_dropdown("colour", list(COLOUR_BY))
            self.legend = gui.add_html("")
            self.past = gui.add_checkbox("past", True)
            self.truth = gui.add_checkbox("truth", True, hint="The recorded sweeps; they belong to the recorded path")
            self.show_futures = gui.add_checkbox("futures", True, hint="The forecasts")
            self.only = gui.add_dropdown("which", [ALL_FUTURES], hint="All futures of a plan, or one of them")
            self.all_times = gui.add_checkbox("all times at once", False)
            self.layout = gui.add_dropdown(
                "layout", LAYOUTS, hint="Truth and forecast in one place (overlay) or side by side"
            )
            self.point_size = gui.add_slider("point size m", 0.01, 0.3, 0.01, 0.04)
        with gui.add_folder("Sampling", expand_by_default=False):
            self.futures = gui.add_slider(
                "futures", 1, MOST_FUTURES, 1, sampling.futures, hint="Futures to sample per plan"
            )
            self.seed = gui.add_number(
                "seed", sampling.seed, min=0, max=MOST_SEED, step=1, hint="The same for every plan"
            )
            self.steps = gui.add_slider(
                "steps", 1, MOST_STEPS, 1, sampling.steps, hint="Sampling steps per frame; fewer are faster"
            )
            self.guidance = gui.add_slider(
                "guidance",
                0.0,
                MOST_GUIDANCE,
                0.1,
                sampling.guidance,
                hint="Strength of classifier-free guidance; 0: off",
            )
            self.live = gui.add_checkbox("on every change", True, hint="Forecast again after every change")
            self.simulate = gui.add_checkbox(
                "simulated truth",
                False,
                disabled=True,
                hint="On simulated streets: simulate this plan and show the result",
            )
        with gui.add_folder("Save what is seen", expand_by_default=False):
            self.save = gui.add_button_group("as", ("HTML", "MP4", "PLY"))
            self.saved = gui.add_html("")
        with gui.add_folder("Open", expand_by_default=False, visible=may_open):
            self.data = gui.add_text("data", data, hint="A folder, or a simulated data set such as street-v1/val")
            self.other_model = gui.add_text(
                "model", "", hint="The folder of a trained model, to be added to the models"
            )
            self.open = gui.add_button("Open", disabled=not may_open)

    @contextmanager
    def silently(self) -> Iterator[None]:
        """Set values inside without callbacks acting on them; the view's lock keeps the user's own changes out."""
        before, self.is_silent = self.is_silent, True
        try:
            yield
        finally:
            self.is_silent = before

    def controls(self) -> Controls:
        """What the sliders say."""
        return Controls(speed_m_s=self.speed.value, steer_deg=self.steer.value, brake_m_s2=self.brake.value)

    def show_controls(self, controls: Controls) -> None:
        """Put the sliders to what a plan means."""
        set_value(self.speed, round(controls.speed_m_s, 1))
        set_value(self.steer, round(controls.steer_deg, 1))
        set_value(self.brake, round(controls.brake_m_s2, 1))


def connect(handles: Sequence[Any], action: Callable[[], None]) -> None:
    """Call `action` when the user changes any of the widgets or presses a button."""
    for handle in handles:
        attach = handle.on_click if hasattr(handle, "on_click") else handle.on_update
        attach(lambda _: action())


def set_value(widget: Any, value: object) -> None:
    """Put a widget to a value; the browser is told only where it is another one."""
    widget.value = value


def set_range(slider: Any, low: float, high: float, value: float) -> None:
    """Give a slider other ends and a value between them, without ever being outside."""
    slider.min, slider.max = min(slider.min, low), max(slider.max, high)
    slider.value = min(max(value, low), high)
    slider.min, slider.max = low, high


def set_options(dropdown: Any, options: Sequence[str], value: str) -> None:
    """Give a dropdown other options, and choose one."""
    if tuple(dropdown.options) != tuple(options):
        dropdown.options = tuple(options)
    if value in options:
        dropdown.value = value


def lines(*entries: tuple[str, Mood]) -> str:
    """Text for an HTML widget, a line each. All of it is escaped."""
    shown = [f'<div style="color:{_MOODS[mood]}">{html.escape(words)}</div>' for words, mood in entries if words]
    return (
        f'<div style="font-size:0.85em;line-height:1.4;overflow-wrap:anywhere;padding:2px 12px">{"".join(shown)}</div>'
    )

"""What the widgets show of a session. A widget is written only when the session changed behind the user's back.

A hand that moves a slider is always ahead of what the session knows: writing the known value back would take the
slider out of the hand. So what came from a widget is never written to it, unless it was refused.
"""

from __future__ import annotations

from typing import Any

from copilot4d.datasets import Dataset
from copilot4d.progress import duration
from copilot4d.studio.clouds import Look, clock, legend
from copilot4d.studio.moment import StudioMoment
from copilot4d.studio.panel import ALL_FUTURES, Mood, Panel, lines, set_options, set_range, set_value
from copilot4d.studio.plan import PlannedWay
from copilot4d.studio.run import Run, State
from copilot4d.studio.session import Session
from copilot4d.studio.simulated_truth import can_simulate

_MOODS: dict[State, Mood] = {"failed": "bad", "done": "good"}


class PanelSync:
    """Remembers what was last shown, to see what is new."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._dataset: Dataset | None = None
        self._drive = self._model = ""
        self._moment: StudioMoment | None = None
        self._way: PlannedWay | None = None
        self._time = 0
        self._sampling = (panel.guidance.value, panel.steps.value)

    def frame_on_slider(self, moment: StudioMoment | None) -> int:
        """The frame that the time slider, which counts in seconds, stands at: 0 is the newest past sweep."""
        if moment is None:
            return 0
        frame = round(self._panel.time.value / seconds_a_frame(moment))
        return min(max(frame, 1 - len(moment.past)), len(moment.times_s))

    def time_was_set(self, time: int) -> None:
        """The user moved the time slider: it need not be told."""
        self._time = time

    def show(self, session: Session, look: Look, *, trouble: str, saved: list[str], undo: bool) -> None:
        """Bring all widgets up to date; with `undo`, also those whose change was refused."""
        with self._panel.silently():
            self._show_choices(session, undo)
            if session.moment is not None:
                self._show_moment(session, session.moment, look, undo)
                self._panel.clock.content = lines((clock(session.moment, look.time), "plain"))
            self._show_results(session, trouble, saved)

    def _show_choices(self, session: Session, undo: bool) -> None:
        panel = self._panel
        if session.dataset is not None and session.dataset is not self._dataset:
            self._dataset, self._drive = session.dataset, ""  # a drive of the same name is another drive
            set_options(panel.drive, session.dataset.names, panel.drive.value)
        if undo or session.model != self._model or len(panel.model.options) != len(session.library.models):
            chosen = panel.model.value
            is_ahead = not undo and chosen not in (self._model, session.model)
            self._model = session.model
            set_options(panel.model, session.library.models, chosen if is_ahead else session.model)

        self._show_sampling((session.sampling.guidance, session.sampling.steps))

    def _show_sampling(self, known: tuple[float, int]) -> None:
        """Guidance and steps: another model brings its own."""
        widgets: tuple[Any, Any] = (self._panel.guidance, self._panel.steps)
        for widget, value, shown in zip(widgets, known, self._sampling, strict=True):
            if value != shown and widget.value == shown:  # no hand has moved it since
                set_value(widget, value)
        self._sampling = known

    def _show_moment(self, session: Session, moment: StudioMoment, look: Look, undo: bool) -> None:
        panel, way = self._panel, session.way
        if undo or moment.drive.name != self._drive:
            self._drive = moment.drive.name
            set_value(panel.drive, moment.drive.name)
            set_value(panel.setting, moment.setting)
            set_range(panel.frame, 0, max(len(moment.drive) - 1, 1), moment.frame)
        # The hand may have moved the slider since the view last heard of it: then its callback is still to come.
        time = self._time if moment is not self._moment else self.frame_on_slider(moment)
        time = look.time if time == self._time else time
        step_s = seconds_a_frame(moment)
        if moment is not self._moment:
            self._moment = moment
            panel.time.step = step_s
            first, last, now = (round(k * step_s, 2) for k in (1 - len(moment.past), len(moment.times_s), time))
            set_range(panel.time, first, last, now)
            panel.simulate.disabled = session.dataset is None or not can_simulate(session.dataset, moment.drive)
        if look.time != self._time:
            self._time = look.time
            set_value(panel.time, round(time * step_s, 2))
        if way is not None and (way is not self._way or undo):
            self._way = way
            if session.plan.kind != "sliders" or undo:
                panel.show_controls(way.controls)

    def _show_results(self, session: Session, trouble: str, saved: list[str]) -> None:
        panel, run, runs = self._panel, session.run, session.runs()
        futures = max((len(other.frames[0]) for other in runs if other.frames), default=1)
        set_options(panel.only, [ALL_FUTURES, *map(str, range(1, futures + 1))], panel.only.value)
        pending = run is not None and run.is_pending
        panel.cancel.disabled = not pending
        panel.drop.disabled = not session.kept
        panel.progress.visible = pending
        if run is not None:
            set_value(panel.progress, 100.0 * len(run.frames) / max(len(run.poses), 1))
        panel.about_model.content = lines((session.library.limits(session.model), "plain"))
        panel.legend.content = lines((legend(panel.colour.value, futures * len(runs)), "plain"))
        panel.saved.content = lines(*((path, "good") for path in saved))
        panel.status.content = lines((trouble, "bad"), *describe(session))


def seconds_a_frame(moment: StudioMoment) -> float:
    """The time between two frames, to the hundredth of a second."""
    return max(round(float(moment.times_s[-1]) / len(moment.times_s), 2), 0.01) if len(moment.times_s) else 0.1


def describe(session: Session) -> list[tuple[str, Mood]]:
    """The window's status, line by line."""
    moment, run = session.moment, session.run
    if moment is None:
        return [("No moment is open: choose data, drive and frame", "plain")]
    found: list[tuple[str, Mood]] = [
        (f"{moment.drive.name}, frame {moment.frame}: {len(moment.past)} past sweeps", "plain"),
        *((note, "bad") for note in moment.notes),
    ]
    if run is None:
        return [*found, ("Press Imagine", "plain")]
    return [*found, (f"{run.model}, {run.label}: {_progress(session, run)}", _MOODS.get(run.state, "plain"))]


def _progress(session: Session, run: Run) -> str:
    made, wanted = len(run.frames), len(run.poses)
    if run.state == "waiting":
        return "waits for another window's forecast" if session.worker.is_busy_with_others(id(session)) else "begins"
    if run.state == "running":
        left = run.seconds_left()
        soon = "" if left is None else f", about {duration(left)} left"
        return f"{made} of {wanted} frames{soon}" if made < wanted else f"all {made} frames, now the simulated truth"
    if run.state == "cancelled":
        return f"cancelled after {made} of {wanted} frames"
    if run.state == "failed":
        return run.error
    return f"{made} frames, {run.sampling.futures} future{'s' if run.sampling.futures > 1 else ''}"

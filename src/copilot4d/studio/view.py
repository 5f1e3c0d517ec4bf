"""`View`: one browser window. Widgets and the 3D scene on one side, a `Session` on the other.

Callbacks come from viser's threads, one at a time through the lock, and read what the widgets say when their turn
comes: ten moves of a slider that wait together become one change. Drawing has a thread of its own, so that the worker
never waits for a browser.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import viser

from copilot4d.errors import Copilot4dError, UsageError
from copilot4d.studio.clouds import Look, clouds, legend
from copilot4d.studio.library import Library
from copilot4d.studio.moment import Moment
from copilot4d.studio.panel import ALL_FUTURES, Panel, connect, lines, set_options, set_range
from copilot4d.studio.plan import Plan
from copilot4d.studio.run import Run
from copilot4d.studio.save import Picture, save_html, save_mp4, save_ply
from copilot4d.studio.scene import Scene
from copilot4d.studio.session import Session
from copilot4d.studio.simulated_truth import can_simulate
from copilot4d.studio.worker import Worker

PLAY_S = 0.4  # a frame, while playing
RENDER_TIMEOUT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a new window begins with."""

    data: str
    model: str
    out: Path
    drive: str | None = None
    frame: int | None = None
    may_open: bool = True  # whether the window may name other folders of this machine


class View:
    """The state of a window beyond its session: the look, what was said, and whether it is still there."""

    def __init__(self, client: viser.ClientHandle, library: Library, worker: Worker, start: Start) -> None:
        self.client, self.out, self.may_open = client, start.out, start.may_open
        self.look = Look()
        self.lock = threading.RLock()
        self.is_closed = False
        self._trouble = ""
        self._saved: list[str] = []
        self._followed: Run | None = None  # the time slider follows this run as its frames arrive
        self._is_filming = False
        self._wake = threading.Event()
        self.session = Session(library, worker, model=start.model, changed=self._wake.set)
        self.panel = Panel(client.gui, data=start.data, models=library.models, may_open=start.may_open)
        self.scene = Scene(client, dragged=self._on_drag)
        self._connect()
        self._drawer = threading.Thread(target=self._draw_on, name="copilot4d-studio-drawer", daemon=True)
        self._drawer.start()
        self._do(lambda: self._open(start.data, start.drive, start.frame))

    def close(self) -> None:
        """The browser is gone: take back what it asked, and never write to it again."""
        with self.lock:
            self.is_closed = True
            self.session.close()
        self._wake.set()

    # --- the user's hand -------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        panel = self.panel
        for handles, action in (
            ([panel.imagine], self._on_imagine),
            ([panel.cancel], self._on_cancel),
            ([panel.open], self._on_open),
            ([panel.drive, panel.frame, panel.setting], self._on_moment),
            ([panel.model], self._on_model),
            ([panel.preset], self._on_preset),
            ([panel.speed, panel.steer, panel.brake], self._on_sliders),
            ([panel.futures, panel.seed, panel.steps, panel.guidance, panel.simulate], self._on_sampling),
            ([panel.keep], self.session.keep),
            ([panel.drop], self.session.drop_kept),
            ([panel.time], self._on_time),
            ([panel.save], self._on_save),
            (
                [panel.all_times, panel.past, panel.truth, panel.foreseen, panel.colour, panel.only,
                 panel.point_size, panel.handles, panel.play],
                self._wake.set,
            ),
        ):  # fmt: skip
            connect(handles, self._acting(action))

    def _acting(self, action: Callable[[], None]) -> Callable[[], None]:
        return lambda: self._do(action)

    def _do(self, action: Callable[[], None]) -> None:
        """Do what the user asked, one thing at a time; what cannot be is told in the window."""
        with self.lock:
            if self.is_closed or self.panel.is_silent:
                return
            self._trouble = ""
            try:
                action()
            except (Copilot4dError, OSError) as error:
                self._trouble = str(error)
        self._wake.set()

    def _open(self, data: str, drive: str | None = None, frame: int | None = None) -> None:
        self.session.open(data, drive, frame)
        self._ask_if_live()

    def _on_open(self) -> None:
        if not self.may_open:  # the button is off, but a page can send what it likes
            raise UsageError("this studio shows the data that it was started with")
        if self.panel.other_model.value.strip():
            self.session.choose_model(self.panel.other_model.value.strip())
        if self.panel.data.value.strip() != self.session.data:
            self._open(self.panel.data.value.strip())
        else:
            self._ask_if_live()

    def _on_moment(self) -> None:
        panel, moment = self.panel, self.session.moment
        drive, setting = panel.drive.value, panel.setting.value
        frame = panel.frame.value if moment is not None and moment.drive.name == drive else None
        if moment is not None and (moment.drive.name, moment.frame, moment.setting) == (drive, frame, setting):
            return
        self.session.choose(drive=drive, frame=frame, setting=setting)
        self.look = replace(self.look, time=0)
        self._ask_if_live()

    def _on_model(self) -> None:
        self.session.choose_model(self.panel.model.value)
        self._ask_if_live()

    def _on_preset(self) -> None:
        self._plan(Plan(kind=self.panel.preset.value))

    def _on_sliders(self) -> None:
        self._plan(Plan(kind="sliders", controls=self.panel.controls()))

    def _on_drag(self, is_released: bool) -> None:
        def drag() -> None:
            plan = Plan(kind="drawn", waypoints_m=self.scene.waypoints_m())
            self._plan(plan) if is_released else self.session.choose_plan(plan)

        self._do(drag)

    def _plan(self, plan: Plan) -> None:
        self.session.choose_plan(plan)
        self._ask_if_live()

    def _on_sampling(self) -> None:
        panel = self.panel
        self.session.choose_sampling(
            futures=panel.futures.value, seed=panel.seed.value, steps=panel.steps.value, guidance=panel.guidance.value
        )
        self.session.simulate_truth = panel.simulate.value
        self._ask_if_live()

    def _on_imagine(self) -> None:
        self._followed = self.session.ask()

    def _on_cancel(self) -> None:
        self.session.cancel()

    def _on_time(self) -> None:
        self._followed = None  # the user's hand comes first
        self.look = replace(self.look, time=self.panel.time.value)

    def _ask_if_live(self) -> None:
        if self.panel.live.value and self.session.moment is not None:
            self._on_imagine()

    # --- saving ----------------------------------------------------------------------------------------------------

    def _on_save(self) -> None:
        picture = Picture(session=self.session, look=self.look)
        if self.panel.save.value == "MP4":
            threading.Thread(target=self._film, args=(picture,), name="copilot4d-studio-film", daemon=True).start()
            return
        save = save_html if self.panel.save.value == "HTML" else save_ply
        self._saved = [str(path) for path in save(self.out, picture)]

    def _film(self, picture: Picture) -> None:
        """Step through time and take what the browser renders; the drawer rests meanwhile."""
        with self.lock:
            if self._is_filming or self.is_closed:
                return
            self._is_filming, before = True, self.look
        try:
            paths = save_mp4(self.out, picture, self._rendered)
            with self.lock:
                self._saved = [str(path) for path in paths]
        except (Copilot4dError, OSError) as error:
            self._trouble = str(error)
        finally:
            with self.lock:
                self._is_filming, self.look = False, before
            self._wake.set()

    def _rendered(self, time: int) -> np.ndarray | None:
        """(H, W, 3) what the browser shows at a time; None where it gives no picture."""
        with self.lock:
            moment = self.session.moment
            if moment is None or self.is_closed:
                return None
            self.look = replace(self.look, time=time, all_times=False)
            self._draw_scene(moment)
            camera = self.client.camera
            width = min(camera.image_width, 1280)
            height = round(camera.image_height * width / max(camera.image_width, 1))
        if width < 16 or height < 16:
            return None
        try:
            return self.client.get_render(height, width, timeout=RENDER_TIMEOUT_S)
        except (RuntimeError, TimeoutError):  # a hidden tab, or a browser that cannot
            return None

    # --- drawing ---------------------------------------------------------------------------------------------------

    def _draw_on(self) -> None:
        while True:
            playing = self.panel.play.value
            woken = self._wake.wait(PLAY_S if playing else None)
            self._wake.clear()
            with self.lock:
                if self.is_closed:
                    return
                if not self._is_filming:
                    if playing and not woken:
                        self._next_time()
                    self.draw()

    def _next_time(self) -> None:
        moment = self.session.moment
        if moment is not None:
            self._followed = None
            time = self.look.time + 1
            self.look = replace(self.look, time=time if time <= len(moment.times_s) else 1 - len(moment.past))

    def draw(self) -> None:
        """Bring widgets and scene in step with the session. The lock is held."""
        session, panel = self.session, self.panel
        if self._followed is not None and self._followed is session.run and self._followed.frames:
            self.look = replace(self.look, time=len(self._followed.frames))
        with panel.silently(), self.client.atomic():
            self._draw_panel()
        only = panel.only.value
        self.look = replace(
            self.look, all_times=panel.all_times.value, past=panel.past.value, truth=panel.truth.value,
            futures=panel.foreseen.value, colour=panel.colour.value,
            only_future=None if only == ALL_FUTURES else int(only) - 1,
        )  # fmt: skip
        if session.moment is None:
            self.scene.clear_clouds()
        else:
            self._draw_scene(session.moment)

    def _draw_scene(self, moment: Moment) -> None:
        session, look = self.session, self.look
        if session.way is None:
            return
        poses = [*(sweep.world_from_lidar for sweep in moment.past), *session.way.poses]
        place = min(max(look.time + len(moment.past) - 1, 0), len(poses) - 1)
        self.scene.show_clouds(moment, clouds(session, look), look.colour, self.panel.point_size.value)
        self.scene.show_ego(moment, poses[place])
        self.scene.show_ways(moment, session.way, session.runs())
        self.scene.show_waypoints(moment, session.way, self.panel.handles.value)

    def _draw_panel(self) -> None:
        session, panel, moment = self.session, self.panel, self.session.moment
        run = session.run
        if session.dataset is not None:
            chosen = moment.drive.name if moment is not None else panel.drive.value
            set_options(panel.drive, session.dataset.names, chosen)
        set_options(panel.model, session.library.models, session.model)
        if moment is not None and session.way is not None:
            set_range(panel.frame, 0, max(len(moment.drive) - 1, 1), moment.frame)
            set_range(panel.time, 1 - len(moment.past), len(moment.times_s), self.look.time)
            self.look = replace(self.look, time=panel.time.value)
            panel.setting.value = moment.setting
            panel.show_controls(session.way.controls)
            assert session.dataset is not None
            panel.simulate.disabled = not can_simulate(session.dataset, moment.drive)
        futures = max((len(other.frames[0]) for other in session.runs() if other.frames), default=1)
        set_options(panel.only, [ALL_FUTURES, *map(str, range(1, futures + 1))], panel.only.value)
        pending = run is not None and run.is_pending
        panel.cancel.disabled = not pending
        panel.drop.disabled = not session.kept
        panel.progress.visible = pending
        if run is not None:
            panel.progress.value = 100.0 * len(run.frames) / max(len(run.poses), 1)
        panel.legend.content = lines((legend(panel.colour.value, futures * len(session.runs())), "plain"))
        panel.saved.content = lines(*((path, "good") for path in self._saved))
        panel.status.content = lines((self._trouble, "bad"), *describe(session, moment, run))


def describe(session: Session, moment: Moment | None, run: Run | None) -> list[tuple[str, str]]:
    """The window's status, line by line."""
    if moment is None:
        return [("No moment is open: choose data, drive and frame", "plain")]
    found = [(f"{moment.drive.name}, frame {moment.frame}: {len(moment.past)} past sweeps", "plain")]
    found += [(note, "bad") for note in moment.notes]
    if run is None:
        return [*found, ("Press Imagine", "plain")]
    made, wanted = len(run.frames), len(run.poses)
    words = {
        "waiting": "waits for another window's forecast" if session.worker.is_busy_with_others(id(session)) else "...",
        "running": f"{made} of {wanted} frames",
        "done": f"{made} frames, {run.sampling.futures} future{'s' if run.sampling.futures > 1 else ''}",
        "cancelled": f"cancelled after {made} of {wanted} frames",
        "failed": run.error,
    }[run.state]
    mood = {"failed": "bad", "done": "good"}.get(run.state, "plain")
    return [*found, (f"{run.model}, {run.label}: {words}", mood)]

"""`View`: one browser window. Widgets and the 3D scene on one side, a `Session` on the other.

Callbacks come from viser's threads, one at a time through the lock, and read what the widgets say when their turn
comes: ten moves of a slider that wait together become one change. Drawing has a thread of its own, so that the worker
never waits for a browser.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np
import viser

from copilot4d.errors import Copilot4dError, UsageError
from copilot4d.studio.clouds import SIDE_M, Look, clouds, labels
from copilot4d.studio.library import Library
from copilot4d.studio.moment import StudioMoment
from copilot4d.studio.panel import ALL_FUTURES, LAYOUTS, Panel, connect
from copilot4d.studio.panel_sync import PanelSync
from copilot4d.studio.plan import Kind, Plan
from copilot4d.studio.run import Run, Sampling
from copilot4d.studio.save import Picture, save_html, save_mp4, save_ply
from copilot4d.studio.scene import Scene
from copilot4d.studio.session import Session
from copilot4d.studio.worker import Worker

_log = logging.getLogger(__name__)
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
    sampling: Sampling = field(default_factory=Sampling)
    may_open: bool = True  # whether the window may name other folders of this machine


class View:
    """The state of a window beyond its session: the look, what was said, and whether it is still there."""

    def __init__(self, client: viser.ClientHandle, library: Library, worker: Worker, start: Start) -> None:
        self.client, self.out, self.may_open = client, start.out, start.may_open
        self.look = Look()
        self.lock = threading.RLock()
        self.is_closed = False
        self._trouble, self._undo = "", False  # what was refused, and whether widgets must go back
        self._saved: list[str] = []
        self._followed: Run | None = None  # the time slider follows this run as its frames arrive
        self._is_filming = False
        self._filmed: StudioMoment | None = None
        self._wake = threading.Event()
        self.session = Session(library, worker, model=start.model, changed=self._wake.set)
        self.session.choose_sampling(**asdict(start.sampling))
        self.panel = Panel(
            client.gui, data=start.data, models=library.models, sampling=start.sampling, may_open=start.may_open
        )
        self._sync = PanelSync(self.panel)
        self.scene = Scene(client, dragged=self._on_drag)
        self._connect()
        self._drawer = threading.Thread(target=self._draw_on, name="copilot4d-studio-drawer", daemon=True)
        self._drawer.start()
        self._do(lambda: self._open(start.data, start.drive, start.frame))

    def close(self) -> None:
        """The browser is gone: take back what it asked, and never write to it again."""
        self.is_closed = True  # before the lock: a drawing that is under way is the last
        with self.lock:
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
                [panel.all_times, panel.past, panel.truth, panel.show_futures, panel.colour, panel.only,
                 panel.point_size, panel.layout, panel.handles, panel.play],
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
                self._trouble, self._undo = str(error), True
        self._wake.set()

    def _open(self, data: str, drive: str | None = None, frame: int | None = None) -> None:
        self.look = replace(self.look, time=0)
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
        self._plan(Plan(kind=cast(Kind, self.panel.preset.value)))

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
        self.look = replace(self.look, time=self._sync.frame_on_slider(self.session.moment))
        self._sync.time_was_set(self.look.time)

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
            self._is_filming, self._filmed, before = True, self.session.moment, self.look
        try:
            paths = save_mp4(self.out, picture, self._rendered)
            with self.lock:
                self._saved = [str(path) for path in paths]
        except (Copilot4dError, OSError) as error:
            self._trouble = str(error)
        finally:
            with self.lock:
                self._is_filming, self._filmed, self.look = False, None, before
            self._wake.set()

    def _rendered(self, time: int) -> np.ndarray | None:
        """(H, W, 3) what the browser shows at a time; None where it gives no picture."""
        with self.lock:
            moment = self.session.moment
            if moment is None or moment is not self._filmed:
                raise UsageError("the moment was changed while it was filmed: film again")
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
                if self._is_filming:
                    continue
                if playing and not woken:
                    self._next_time()
                try:
                    self.draw()
                except Exception as error:  # told, and the next change is drawn again: a window never freezes
                    _log.exception("a window could not be drawn")
                    self._trouble = f"{type(error).__name__}: {error}"

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
        with self.client.atomic():
            undo, self._undo = self._undo, False
            self._sync.show(session, self.look, trouble=self._trouble, saved=self._saved, undo=undo)
        only = panel.only.value
        self.look = replace(
            self.look, all_times=panel.all_times.value, past=panel.past.value, truth=panel.truth.value,
            futures=panel.show_futures.value, colour=panel.colour.value,
            side_by_side=panel.layout.value == LAYOUTS[1],
            only_future=int(only) - 1 if only in panel.only.options and only != ALL_FUTURES else None,
        )  # fmt: skip
        if session.moment is None:
            self.scene.clear_clouds()
        else:
            self._draw_scene(session.moment)

    def _draw_scene(self, moment: StudioMoment) -> None:
        session, look = self.session, self.look
        if session.way is None:
            return
        poses = [*(sweep.world_from_lidar for sweep in moment.past), *session.way.poses]
        place = min(max(look.time + len(moment.past) - 1, 0), len(poses) - 1)
        shown = clouds(session, look)
        self.scene.show_clouds(
            moment, shown, look.colour, self.panel.point_size.value, labels=labels(session, look, shown),
            truth_beside_m=SIDE_M if look.side_by_side else 0.0,
        )  # fmt: skip
        self.scene.show_ego(moment, poses[place])
        self.scene.show_ways(moment, session.way, session.runs())
        self.scene.show_waypoints(
            moment, session.way, visible=self.panel.handles.value, dragged=session.plan.kind == "drawn"
        )

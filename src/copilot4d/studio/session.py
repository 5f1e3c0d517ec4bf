"""`Session`: what one window of the studio has chosen, asked and got. No widget is known here.

Choices that cannot be are refused with an error of the family, and everything stays as it was. `changed` is called from
whichever thread changed something; it must be quick.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from copilot4d.datasets import Dataset
from copilot4d.datasets.windows import SETTINGS, protocol_windows
from copilot4d.errors import Copilot4dError, UsageError
from copilot4d.forecaster import Imagination, Imaginative
from copilot4d.forecasting.repeated import imagine
from copilot4d.geometry import Drive
from copilot4d.studio.library import Library
from copilot4d.studio.moment import StudioMoment, read_moment
from copilot4d.studio.plan import Plan, PlannedWay
from copilot4d.studio.run import Run, Sampling
from copilot4d.studio.simulated_truth import can_simulate, simulated_truth
from copilot4d.studio.worker import Worker

MOST_KEPT = 5


class Session:
    """One user's state. Methods may be called from any thread."""

    def __init__(
        self, library: Library, worker: Worker, *, model: str, changed: Callable[[], None] = lambda: None
    ) -> None:
        self.library, self.worker, self.changed = library, worker, changed
        self.dataset: Dataset | None = None
        self.data = ""
        self.setting = SETTINGS[0]
        self.model = model
        self.moment: StudioMoment | None = None
        self.plan = Plan()
        self.way: PlannedWay | None = None
        self.sampling = Sampling()
        self.run: Run | None = None
        self.kept: tuple[Run, ...] = ()
        self.simulate_truth = False
        self._root: tuple[Any, Imagination] | None = None  # the past, already read by the model: plans fork it
        self._lock = threading.RLock()
        self._closed = False

    # --- choices ---------------------------------------------------------------------------------------------------

    def open(self, data: str, drive: str | None = None, frame: int | None = None) -> None:
        """Open a data set and go to a moment of it: by default the first with a whole past and future.

        Where the data set opens but the moment does not, its drives can still be chosen from.
        """
        dataset = self.library.dataset(data)
        names = [drive] if drive is not None else [name for name in dataset.names if dataset.has_poses(name)]
        with self._lock:
            self.dataset, self.data = dataset, data
            self._forget()
        self.choose(drive=names[0] if names else dataset.names[0], frame=frame)

    def choose(self, *, drive: str | None = None, frame: int | None = None, setting: str | None = None) -> None:
        """Another drive, moment or setting. A drive without a frame begins at its first whole moment."""
        if self.dataset is None:
            raise UsageError("open a data set first")
        current = self.moment
        setting = setting or self.setting
        name = drive or (current.drive.name if current else self.dataset.names[0])
        if frame is None:
            is_other = current is None or current.drive.name != name
            frame = first_moment(self.dataset[name], setting) if is_other or current is None else current.frame
        moment = read_moment(self.dataset, name, frame, setting)
        with self._lock:
            self._forget()
            self.moment, self.setting = moment, setting
            self.way = self.plan.at(moment)
        self.changed()

    def choose_model(self, model: str) -> None:
        """Another forecaster, by name or folder; it is loaded here, so that a wrong name is told at once.

        Guidance and steps become its own, but for what the user has changed.
        """
        self.library.forecaster(model)
        before, its, sampling = self.library.sampling(self.model), self.library.sampling(model), self.sampling
        sampling = sampling.changed(
            guidance=its.guidance if sampling.guidance == before.guidance else None,
            steps=its.steps if sampling.steps == before.steps else None,
        ).checked()
        self.cancel()
        with self._lock:
            self.model, self.sampling = model, sampling
        self.changed()

    def choose_plan(self, plan: Plan) -> None:
        """Another way for the ego."""
        with self._lock:
            self.way = None if self.moment is None else plan.at(self.moment)
            self.plan = plan
        self.changed()

    def choose_sampling(self, **changes: Any) -> None:
        """Other guidance, steps, seed or number of futures."""
        sampling = replace(self.sampling, **changes).checked()
        with self._lock:
            self.sampling = sampling

    # --- asking ----------------------------------------------------------------------------------------------------

    def ask(self) -> Run:
        """Imagine what follows from the plan. What was asked before and is not done yet is taken back."""
        with self._lock:
            if self._closed:
                raise UsageError("this window was closed")
            if self.moment is None or self.way is None:
                raise UsageError("there is no moment to imagine from: choose data, drive and moment first")
            self._end_pending()
            run = Run(
                label=self.plan.kind, model=self.model, sampling=self.sampling, poses=self.way.poses,
                way=self.way.line_m,
            )  # fmt: skip
            self.run = run
            moment, simulate = self.moment, self.simulate_truth
            self.worker.ask(id(self), lambda: self._work(run, moment, simulate), lambda error: self._fail(run, error))
        self.changed()
        return run

    def cancel(self) -> bool:
        """Take back what was asked; whether there was anything. Frames that are there stay."""
        with self._lock:
            pending = self._end_pending()
            self.worker.cancel(id(self))
        if pending:
            self.changed()
        return pending

    def keep(self) -> None:
        """Put the current run aside for comparison with the next ones; the oldest goes when there are too many."""
        with self._lock:
            if self.run is None or not self.run.frames:
                raise UsageError("there is no imagined future to keep yet")
            if self.run not in self.kept:
                self.kept = (*self.kept, self.run)[-MOST_KEPT:]
        self.changed()

    def drop_kept(self) -> None:
        """Forget what was kept."""
        with self._lock:
            self.kept = ()
        self.changed()

    def runs(self) -> tuple[Run, ...]:
        """All that can be shown, the current one last."""
        with self._lock:
            current = () if self.run is None or self.run in self.kept else (self.run,)
            return (*self.kept, *current)

    def close(self) -> None:
        """The window is gone: nothing is wanted any more."""
        with self._lock:
            self._closed = True
            self.changed = lambda: None
            self._forget()
            self.moment = self.way = self.dataset = None

    # --- in the worker's thread ------------------------------------------------------------------------------------

    def _work(self, run: Run, moment: StudioMoment, simulate: bool) -> Iterator[None]:
        run.began_s = time.monotonic()
        if not self._advance(run, "running"):
            return
        forecaster = self.library.forecaster(run.model)
        imagination = self._begin(run, moment)
        # A forecaster without frames of its own is asked on the newest sweep's beams: each step then costs one frame.
        rays = None if isinstance(forecaster, Imaginative) else moment.newest_with_points.rays()[0]
        for pose in run.poses:
            frames = imagination.step(pose, rays)
            if not self._advance(run, "running", lambda frames=frames: run.frames.append(frames)):  # type: ignore[misc]
                return
            yield
        if simulate and self.dataset is not None and can_simulate(self.dataset, moment.drive):
            for sweep in simulated_truth(self.dataset, moment, run.poses):
                if not self._advance(run, "running", lambda sweep=sweep: run.simulated.append(sweep)):  # type: ignore[misc]
                    return
                yield
        self._advance(run, "done")

    def _begin(self, run: Run, moment: StudioMoment) -> Imagination:
        """The imagination after the past. Plans at one moment share it, so that the past is read by the model once."""
        key = (id(moment), run.model, run.sampling)
        root = self._root
        if root is None or root[0] != key:
            sampling = run.sampling
            begun = imagine(
                self.library.forecaster(run.model), moment.past, guidance=sampling.guidance, steps=sampling.steps,
                seed=sampling.seed, futures=sampling.futures,
            )  # fmt: skip
            with self._lock:
                root = (key, begun)
                self._root = None if self._closed else root
        return root[1].fork()

    def _advance(self, run: Run, state: Any, add: Callable[[], None] = lambda: None) -> bool:
        """Put something into the run, unless it is out of date."""
        with self._lock:
            if self._closed or run is not self.run or not run.is_pending:
                return False
            add()
            run.state = state
        self.changed()
        return True

    def _fail(self, run: Run, error: Exception) -> None:
        with self._lock:
            if run.is_pending:
                run.state = "failed"
                kind = "" if isinstance(error, Copilot4dError) else f"{type(error).__name__}: "
                run.error = f"{kind}{error}"
        self.changed()

    # --- helpers ---------------------------------------------------------------------------------------------------

    def _end_pending(self) -> bool:
        if self.run is None or not self.run.is_pending:
            return False
        self.run.state = "cancelled"
        return True

    def _forget(self) -> None:
        """What was imagined belongs to one moment: another moment begins without it."""
        self._end_pending()
        self.worker.cancel(id(self))
        self.run, self.kept, self._root = None, (), None
        self.moment = self.way = None


def first_moment(drive: Drive, setting: str) -> int:
    """The first frame with a whole past and future; else the middle of the drive."""
    windows = protocol_windows({drive.name: drive}, setting)
    return next((window.reference for window in windows if window.complete), len(drive) // 2)

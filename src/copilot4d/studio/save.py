"""What is seen, as files: one page with a 3D viewer, a film, coloured point files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from copilot4d.pictures import Cloud as ViewerCloud
from copilot4d.pictures import Horizon as ViewerHorizon
from copilot4d.pictures import Page, Plan, Viewer, bev_image, write_mp4
from copilot4d.pictures.files import write_bytes
from copilot4d.pictures.ink import Image
from copilot4d.pictures.panels import Cell, panel
from copilot4d.pictures.storyboard import clock
from copilot4d.studio.clouds import Cloud, Look, clouds, colours
from copilot4d.studio.moment import StudioMoment
from copilot4d.studio.run import Run
from copilot4d.studio.session import Session

Render = Callable[[int], "NDArray[np.uint8] | None"]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What was seen when saving was asked for."""

    session: Session
    look: Look

    @property
    def moment(self) -> StudioMoment:
        """The moment that is shown."""
        if self.session.moment is None:
            raise UsageError("there is nothing to save: no moment is open")
        return self.session.moment

    def place(self, out: Path, suffix: str) -> Path:
        """A file name that says what it shows and is not taken yet."""
        run = self.session.run
        plan = self.session.plan.kind if run is None else run.label
        stem = re.sub(r"[^\w.-]+", "_", f"{self.moment.drive.name}_frame{self.moment.frame}_{plan}")
        number = 1
        while (place := out / f"{stem}_{number:02d}{suffix}").exists() or [*out.glob(f"{place.stem}_*{suffix}")]:
            number += 1
        return place


def save_ply(out: Path, picture: Picture) -> list[Path]:
    """One coloured .ply per cloud that is seen, in the frame of the newest past sweep."""
    seen = [cloud for cloud in clouds(picture.session, picture.look) if cloud.visible]
    if not seen:
        raise UsageError("nothing is seen at this time: switch a layer on, or move the time slider")
    base = picture.place(out, ".ply")
    paths = []
    for cloud in seen:
        name = re.sub(r"\W+", "_", f"{cloud.title}_{cloud.time:+d}".replace("+", "p").replace("-", "m"))
        path = base.with_name(f"{base.stem}_{name}.ply")
        number = 2
        while path in paths:  # two kept runs of one plan have the same title
            path, number = base.with_name(f"{base.stem}_{name}_{number}.ply"), number + 1
        points = cloud.points(picture.moment)
        paths.append(write_bytes(path, coloured_ply(points, colours(cloud, picture.moment, picture.look.colour))))
    return paths


def coloured_ply(points: NDArray[np.float32], rgb: NDArray[np.uint8]) -> bytes:
    """(N, 3) points and (N, 3) colours as a binary .ply file."""
    kinds = [(axis, "<f4") for axis in "xyz"] + [(name, "u1") for name in ("red", "green", "blue")]
    rows = np.empty(len(points), dtype=kinds)
    for k, axis in enumerate("xyz"):
        rows[axis] = points[:, k]
    for k, name in enumerate(("red", "green", "blue")):
        rows[name] = rgb[:, k]
    properties = "".join(f"property {'float' if kind == '<f4' else 'uchar'} {name}\n" for name, kind in kinds)
    header = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(rows)}\n{properties}end_header\n"
    return header.encode("ascii") + rows.tobytes()


def save_mp4(out: Path, picture: Picture, render: Render) -> list[Path]:
    """A film through all times. `render` gives the browser's own picture of a time; without one, views from above."""
    moment = picture.moment
    times = range(1 - len(moment.past), _last_time(picture.session, moment) + 1)
    rendered = [render(time) for time in times]
    images = [image for image in rendered if image is not None]
    if len(images) < len(rendered) or len({image.shape for image in images}) != 1:
        images = list(views_from_above(picture, times))
    spacing_s = float(moment.times_s[0])
    return [write_mp4(picture.place(out, ".mp4"), images, fps=1.0 / max(spacing_s, 0.05))]


def views_from_above(picture: Picture, times: Sequence[int]) -> Iterator[Image]:
    """A panel per time: truth beside every imagined future, each from above."""
    moment = picture.moment
    columns = 1 + max((len(run.frames[0]) for run in picture.session.runs() if run.frames), default=0)
    for time in times:
        shown = clouds(picture.session, replace(picture.look, time=time, all_times=False))
        now = [cloud for cloud in shown if cloud.time == time]
        rows: list[list[Cell]] = [[_cell(cloud, moment) for cloud in now if cloud.role != "future"]]
        futures = [_cell(cloud, moment) for cloud in now if cloud.role == "future"]
        cells = [cell for row in (*rows, futures) for cell in row][:columns]
        empty = Cell(np.zeros((420, 420, 3), dtype=np.uint8), "")
        cells += [empty] * (columns - len(cells))
        yield panel([cells], heading=f"{moment.drive.name}, frame {moment.frame}")


def save_html(out: Path, picture: Picture) -> list[Path]:
    """One self-contained page: every run is a plan of its viewer, with the log's truth beside the log's own plan."""
    moment, runs = picture.moment, [run for run in picture.session.runs() if run.frames]
    if not runs:
        raise UsageError("a page shows imagined futures, and there are none yet: press Imagine first")
    frames = min(len(run.frames) for run in runs)
    models = list(dict.fromkeys(name for run in runs for name in _names(run)))
    page = Page(f"What if: {moment.drive.name}, frame {moment.frame}")
    page.text(
        "The past, and what each model imagines for each plan of the ego. Drag to orbit, scroll to come closer, and "
        "move through time with the slider."
    )
    past = [ViewerCloud(points=sweep.points) for sweep in moment.past]
    page.viewer(
        Viewer(
            horizons=[
                ViewerHorizon(
                    name=moment.setting, past_s=moment.past_times_s.tolist(),
                    future_s=moment.times_s[:frames].tolist(), past=past,
                    plans=[_plan(moment, run, number, frames) for number, run in enumerate(runs, 1)],
                )
            ],
            models=models,
        )
    )  # fmt: skip
    rows = [
        [n, run.label, run.model, len(run.frames), run.sampling.futures, run.sampling.seed, run.sampling.guidance]
        for n, run in enumerate(runs, 1)
    ]
    page.table(["", "plan", "model", "frames", "futures", "seed", "guidance"], rows, caption="What was asked.")
    return [page.write(picture.place(out, ".html"))]


def _plan(moment: StudioMoment, run: Run, number: int, frames: int) -> Plan:
    poses = np.concatenate([[sweep.world_from_lidar for sweep in moment.past], run.poses[:frames]])
    truth: list[ViewerCloud | None] = []
    known = run.simulated or (list(moment.truth) if run.label == "log" else [])
    if known:
        truth = [ViewerCloud(points=known[k].points) if k < len(known) else None for k in range(frames)]
    forecasts = {
        name: [ViewerCloud(points=run.frames[k][future].sweep.points) for k in range(frames)]
        for future, name in enumerate(_names(run))
    }
    return Plan(
        name=f"{number}. {run.label}", caption=f"{run.model} imagines: {run.label}",
        reference_from_lidar=se3.relative_motion(moment.world_from_reference, poses), forecasts=forecasts, truth=truth,
    )  # fmt: skip


def _names(run: Run) -> list[str]:
    """A name per future: the model's, and which sample where there are several."""
    count = len(run.frames[0])
    return [run.model if count == 1 else f"{run.model}, future {k + 1}" for k in range(count)]


def _last_time(session: Session, moment: StudioMoment) -> int:
    return max([len(moment.truth), *(len(run.frames) for run in session.runs())])


def _cell(cloud: Cloud, moment: StudioMoment) -> Cell:
    return Cell(bev_image(cloud.sweep.points, size=420), f"{cloud.title}  {clock(cloud.time_s)}")

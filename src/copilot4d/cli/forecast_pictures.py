"""The pictures of `copilot4d forecast`: a strip of all frames, and a film. Apart, because drawing is slow to load."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from copilot4d.cli.forecast_files import PICTURES
from copilot4d.cli.forecast_moment import ForecastMoment, Route
from copilot4d.errors import DataError
from copilot4d.evaluation import chamfer
from copilot4d.forecaster import Forecast
from copilot4d.geometry import Sweep, inside_box, se3
from copilot4d.pictures import Frame, Look, Story, forecast_film, forecast_strip, write_gif, write_mp4, write_png
from copilot4d.pictures.foxglove_file import write_foxglove
from copilot4d.pictures.rerun_file import write_rerun
from copilot4d.progress import Track


def write_pictures(
    out: Path,
    moment: ForecastMoment,
    route: Route,
    forecast: Forecast,
    model: str,
    track: Track,
    region_half_m: float = math.inf,
) -> list[Path]:
    """A strip of all frames, and a film. The true sweeps are read for these alone.

    region_half_m: a model that predicts no further, to each side, is compared with the truth up to there.
    """
    story = _story(moment, route, forecast, model, region_half_m)
    png, gif, mp4 = (out / name for name in PICTURES)
    strip = write_png(png, forecast_strip(story, Look(size=360)))
    count = len(story.past) + len(story.forecast)
    film = list(track(forecast_film(story), "drawing", total=count))
    fps = 1.0 / max(0.05, story.forecast[0].time_s)  # as fast as the world
    return [strip, write_gif(gif, film, fps=fps), write_mp4(mp4, film, fps=fps)]


def write_mcap(path: Path, moment: ForecastMoment, route: Route, forecast: Forecast) -> Path:
    """Past, truth, forecast and difference as one file for Foxglove."""
    return write_foxglove(
        path, past=moment.past, futures=[future.sweeps for future in forecast.futures],
        truth=list(_truths(moment, route)), timestamps_ns=route.timestamps_ns.tolist(),
    )  # fmt: skip


def write_rrd(path: Path, moment: ForecastMoment, route: Route, forecast: Forecast) -> Path:
    """The same as one file for Rerun."""
    return write_rerun(
        path, past=moment.past, futures=[future.sweeps for future in forecast.futures],
        truth=list(_truths(moment, route)), timestamps_ns=route.timestamps_ns.tolist(),
    )  # fmt: skip


def _story(moment: ForecastMoment, route: Route, forecast: Forecast, model: str, region_half_m: float) -> Story:
    reference_ns = moment.past[-1].timestamp_ns
    truths = list(_truths(moment, route))
    way = np.concatenate([moment.past[-1].world_from_lidar[None], route.world_from_lidar])[:, :3, 3]
    predicted = [
        Frame(
            points=sweep.points,
            time_s=(int(timestamp_ns) - reference_ns) * 1e-9,
            note=note_of(sweep, truths[k], region_half_m) if k < len(truths) else "",
        )
        for k, (sweep, timestamp_ns) in enumerate(zip(forecast.sweeps, route.timestamps_ns, strict=True))
    ]
    return Story(
        past=[
            Frame(
                points=sweep.points,
                time_s=(sweep.timestamp_ns - reference_ns) * 1e-9,
                path=se3.transform_points(se3.invert(sweep.world_from_lidar), way)
                if sweep is moment.past[-1]
                else None,
            )
            for sweep in moment.past
        ],
        truth=[
            Frame(points=sweep.points, time_s=(int(timestamp_ns) - reference_ns) * 1e-9)
            for sweep, timestamp_ns in zip(truths, route.timestamps_ns, strict=False)
        ],
        forecast=predicted,
        model=model,
        heading=f"drive {moment.drive.name}, frame {moment.past_frames[-1]}",
    )


def note_of(predicted: Sweep, true: Sweep, region_half_m: float) -> str:
    """How near a forecast is to the truth: everywhere, or up to region_half_m to each side."""
    if math.isinf(region_half_m):
        return f"Chamfer {chamfer(predicted.points, true.points):.2f} m²"
    near = np.array([-region_half_m, -region_half_m, -np.inf, region_half_m, region_half_m, np.inf])
    clouds = [sweep.points[inside_box(sweep.points, near)] for sweep in (predicted, true)]
    return f"Chamfer {chamfer(*clouds):.2f} m² in ±{region_half_m:.0f} m"


def _truths(moment: ForecastMoment, route: Route) -> Iterator[Sweep]:
    """The true future sweeps, up to the first that the log lacks or that cannot be read (which is noted)."""
    for frame in route.frames:
        if frame is None:
            return
        try:
            yield moment.drive[frame].without_box(moment.drive.ego_box)
        except DataError as error:
            moment.skipped.append(f"true sweep, for the pictures: {error}")
            return

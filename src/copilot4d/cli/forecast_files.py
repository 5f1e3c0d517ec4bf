"""What `copilot4d forecast` leaves on disk: a point file per future frame, forecast.json, pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from copilot4d.cli.forecast_moment import ForecastMoment, Route
from copilot4d.datasets.point_files import write_points
from copilot4d.errors import UsageError
from copilot4d.forecaster import Forecast
from copilot4d.progress import Track

JSON_NAME = "forecast.json"
FORMATS = ("ply", "bin", "npz")
PICTURES = ("forecast.png", "forecast.gif", "forecast.mp4")


def prepare_folder(out: Path) -> None:
    """Make the folder. What an earlier forecast left there is removed: its files and the new ones must not mix."""
    out.mkdir(parents=True, exist_ok=True)
    if (out / JSON_NAME).exists():
        stale = [out / name for name in PICTURES]
        for suffix in FORMATS:
            stale += [*out.glob(f"future_[0-9]*.{suffix}"), *out.glob(f"alternative_[0-9]*_future_[0-9]*.{suffix}")]
        for path in stale:
            path.unlink(missing_ok=True)
        (out / JSON_NAME).unlink()


def check_format(forecast: Forecast, format: str) -> None:
    """A .bin file has no room for a ray origin per point: say so before anything is written or removed."""
    if format == "bin" and any(sweep.origins is not None for sweep in forecast.sweeps):
        raise UsageError("--format bin cannot keep where the rays of several lidars start; use --format ply or npz")


def write_sweeps(out: Path, forecast: Forecast, format: str, track: Track) -> list[list[Path]]:
    """One file per future frame, each in its own lidar frame; for each future a list of them, the forecast's first."""
    paths = [
        [out / f"{alternative_prefix(s)}future_{k + 1:02d}.{format}" for k in range(len(future.sweeps))]
        for s, future in enumerate(forecast.futures)
    ]
    sweeps = [sweep for future in forecast.futures for sweep in future.sweeps]
    named = list(zip([path for row in paths for path in row], sweeps, strict=True))
    for path, sweep in track(named, "writing sweeps"):
        write_points(path, sweep.points, sweep.intensity, sweep.origins)
    return paths


def alternative_prefix(number: int) -> str:
    """The first future's files have plain names; those of the second begin with alternative_02_."""
    return "" if number == 0 else f"alternative_{number + 1:02d}_"


def write_description(
    out: Path, moment: ForecastMoment, route: Route, forecast: Forecast, paths: list[list[Path]], **named: Any
) -> Path:
    """forecast.json: what was forecast from what, with which options, and where it lies."""
    reference_ns = moment.past[-1].timestamp_ns
    description = {
        **named,
        "drive": moment.drive.name,
        "frame_convention": "points in each future frame's own lidar frame: x forward, y left, z up, metres",
        "reference_frame": moment.past_frames[-1],
        "past": [
            {
                "frame": frame,
                "timestamp_ns": sweep.timestamp_ns,
                "world_from_lidar": sweep.world_from_lidar.tolist(),
            }
            for frame, sweep in zip(moment.past_frames, moment.past, strict=True)
        ],
        "future": [
            {
                "file": path.name,
                "points": len(sweep),
                "time_s": round((int(timestamp_ns) - reference_ns) * 1e-9, 6),
                "timestamp_ns": int(timestamp_ns),
                "frame": frame,
                "pose_from": source,
                "world_from_lidar": pose.tolist(),
            }
            for path, sweep, timestamp_ns, frame, source, pose in zip(
                paths[0], forecast.sweeps, route.timestamps_ns, route.frames, route.sources, route.world_from_lidar,
                strict=True,
            )
        ],
        "alternatives": [
            [{"file": path.name, "points": len(sweep)} for path, sweep in zip(row, other.sweeps, strict=True)]
            for row, other in zip(paths[1:], forecast.alternatives, strict=True)
        ],
        "skipped": moment.skipped,
    }  # fmt: skip
    path = out / JSON_NAME
    path.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
    return path

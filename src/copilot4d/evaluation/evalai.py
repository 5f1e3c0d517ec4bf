"""The Argoverse 2 4D occupancy forecasting challenge: ray queries in, one depth per ray out, as EvalAI takes them.

    {"queries": [{"horizon": "3s", "rays": {LOG: {FRAME: [[[ox, oy, oz, dx, dy, dz], ...], ...]}}}]}

FRAME is the reference sweep's file name. Rays of each of the five future frames lie in the upper lidar's frame of the
reference sweep, as Argoverse calibrates it. A submission is the same tree with `[depth]` in place of each ray.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from copilot4d.errors import DataError, UsageError
from copilot4d.forecaster import Forecaster
from copilot4d.geometry import Drive, Rays, Sweep, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.progress import Track, silent

_REMEDY = "take the query file of the challenge as it is published"
_DIGITS = 4  # a tenth of a millimetre


def read_queries(path: Path) -> dict[str, Any]:
    """A file of ray queries, checked as far as its outline goes."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        queries = content["queries"]
        assert isinstance(queries, list)
        for query in queries:
            assert query["horizon"] in ("1s", "3s")
            assert all(isinstance(frames, dict) for frames in query["rays"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        outline = '{"queries": [{"horizon": "3s", "rays": {LOG: {FRAME: ...}}}]}'
        found = (str(error) or "something else")[:120]
        raise DataError(path, "queries", expected=outline, found=found, remedy=_REMEDY) from error
    return dict(content)


def answer_queries(
    forecaster: Forecaster, drives: Mapping[str, Drive], path: Path, clip_of: Any, *, track: Track = silent,
    **sampling: Any,
) -> dict[str, Any]:  # fmt: skip
    """The submission for a file of queries. `clip_of(drive, frame, horizon)` -> past sweeps and future poses."""
    answers = []
    for query in read_queries(path)["queries"]:
        horizon, wanted = query["horizon"], query["rays"]
        missing = [log for log in wanted if log not in drives]
        if missing:
            raise UsageError(
                f"{path} asks for {len(missing)} logs that are not in the data, {missing[0]} first: open the "
                "folder of the split that the challenge is held on"
            )
        rays: dict[str, dict[str, Any]] = {}
        tasks = [(log, frame) for log, frames in wanted.items() for frame in frames]
        for log, frame in track(tasks, f"answering {horizon}", len(tasks)):
            past, poses = clip_of(drives[log], reference_of(drives[log], frame, path), horizon)
            asked = [_array(path, log, frame, rows) for rows in wanted[log][frame]]
            depths = answer(forecaster, past, poses, asked, **sampling)
            rays.setdefault(log, {})[frame] = [[[round(float(d), _DIGITS)] for d in row] for row in depths]
        answers.append({"horizon": horizon, "rays": rays})
    return {"queries": answers}


def reference_of(drive: Drive, frame: str, path: Path) -> int:
    """The sweep that a query's frame names: the file <timestamp_ns>.feather, or its number alone."""
    stem = frame.removesuffix(".feather")
    named = int(stem) if stem.isdecimal() and len(stem) <= 18 else -1
    found = np.flatnonzero(drive.timestamps_ns == named)
    if len(found) != 1:
        raise DataError(
            path, f"log {drive.name}", expected="frames that are names of its sweeps", found=frame, remedy=_REMEDY
        )
    return int(found[0])


def answer(
    forecaster: Forecaster, past: tuple[Sweep, ...], future_poses: FloatArray, asked: list[FloatArray], **sampling: Any
) -> list[FloatArray]:
    """Depths along rays (R, 6) of each future frame, which lie in the frame of the newest past sweep."""
    if len(asked) > len(future_poses):
        raise UsageError(f"the queries ask for {len(asked)} future frames, and the log has {len(future_poses)}")
    rays = []
    for rows, pose in zip(asked, future_poses, strict=False):
        frame_from_reference = se3.relative_motion(pose, past[-1].world_from_lidar)
        length = np.linalg.norm(rows[:, 3:], axis=1, keepdims=True)
        rays.append(Rays(rows[:, :3], rows[:, 3:] / length).transformed(frame_from_reference))
    forecast = forecaster.forecast(past, future_poses[: len(asked)], rays, **sampling)
    if forecast.depths is None:
        raise UsageError(f"{forecaster.name} gives no depths along rays, which the challenge asks for")
    return list(forecast.depths)  # in metres, whatever the length of the given directions: so are the kit's true ones


def _array(path: Path, log: str, frame: str, rows: Any) -> FloatArray:
    try:
        values = np.array(rows, dtype=np.float64).reshape(-1, 6)
    except (ValueError, TypeError) as error:
        raise DataError(
            path, f"log {log}, frame {frame}", expected="rays of six numbers", found="something else", remedy=_REMEDY
        ) from error
    if not np.isfinite(values).all() or (np.linalg.norm(values[:, 3:], axis=1) == 0).any():
        raise DataError(
            path, f"log {log}, frame {frame}", expected="finite rays with a direction", found="some that are not",
            remedy=_REMEDY,
        )  # fmt: skip
    return values


def write_submission(path: Path, submission: Mapping[str, Any]) -> Path:
    """Write it, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writing = path.with_name(f".{path.name}.writing")
    writing.write_text(json.dumps(submission, allow_nan=False), encoding="utf-8")
    writing.replace(path)
    return path

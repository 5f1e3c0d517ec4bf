"""Learning the depth selector of a model: forecasts of drives whose future is known, ray by ray.

The selector learns what this model gets right, so it is learned from the model's own forecasts, best of drives that the
world model never saw: on drives it was trained on, it is surer than it should be.

    R rays of a future frame, C candidates
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from copilot4d.datasets.windows import Window, explain_missing, protocol_windows, read_clip
from copilot4d.depth_selection import MeasuredPast, RangeView
from copilot4d.errors import ProtocolError, UsageError
from copilot4d.evaluation import Protocol
from copilot4d.evaluation.true_rays import true_frame
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.geometry import Clip, Drive, Rays, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.motion import extrapolate
from copilot4d.progress import Track, silent
from copilot4d.training.tasks.depth_selector import Examples, examples

AS_SENSOR = 0.5  # share of frames whose rays are read among all beams of the sensor


def moments(drives: Mapping[str, Drive], setting: str, count: int) -> list[Window]:
    """`count` windows of a setting with a whole future, evenly spread over the drives.

    At the start of a drive their past is short, down to a single sweep, as it is in scoring and where a log begins.
    """
    if count < 1:
        raise UsageError(f"at least 1 forecast per setting is needed to learn from, got {count}")
    found = protocol_windows(drives, setting)
    whole = max((len(window.future) for window in found if window.complete), default=0)
    windows = [window for window in found if whole and len(window.future) == whole]
    if not windows:
        shown = [explain_missing(drive, setting) for _, drive in zip(range(8), drives.values(), strict=False)]
        raise ProtocolError(f"no drive has a complete window of the {setting} setting: " + "; ".join(shown))
    places = np.linspace(0, len(windows) - 1, min(count, len(windows)) + 1)
    return [windows[i] for i in ((places[1:] + places[:-1]) / 2).astype(int)]


@torch.no_grad()
def forecast_examples(
    forecaster: Copilot4D, drives: Mapping[str, Drive], windows: Sequence[Window], *, rays_per_frame: int,
    steps: int | None = None, seed: int = 0, track: Track = silent,
) -> list[Examples]:  # fmt: skip
    """Rays of the forecasts of these windows, frame by frame, with what each candidate would have cost; occupancy
    depths among them where the forecaster has one.
    """
    alone = forecaster.without_selector()
    rng = np.random.default_rng(seed)
    parts: list[Examples] = []
    for window in track(windows, "forecasts"):
        parts += clip_examples(alone, read_clip(drives[window.drive], window), rays_per_frame, steps, seed, rng)
    return parts


def clip_examples(
    forecaster: Copilot4D, clip: Clip, rays_per_frame: int, steps: int | None, seed: int, rng: np.random.Generator
) -> list[Examples]:
    """Of each future frame of one clip."""
    protocol = Protocol(roi_half_m=forecaster.region_half_m)
    session = forecaster.imagine(clip.past, steps=steps, seed=seed)
    measured = MeasuredPast.of(clip.past, extrapolate(clip.past))
    parts = []
    for i, (pose, sweep) in enumerate(zip(clip.future_poses, clip.future, strict=True)):
        frame = true_frame(clip, i, protocol)
        count = len(frame.rays)
        # Scores ask about true rays alone; a forecast that is given no rays asks about all of the sensor's beams, also
        # those that do not come back. So each second frame has the beams around its true rays.
        others = session.pattern.rays() if rng.random() < AS_SENSOR else frame.rays[:0]
        rays = Rays.joined([frame.rays, others])
        session.step(pose, rays)
        (reading,) = session.readings
        if count == 0:
            continue
        found = reading.candidates(measured.along(rays, pose, sweep.timestamp_ns), rays)
        around = found[count:] if len(others) else found
        found = found[:count]
        reference_from_lidar = se3.relative_motion(clip.past[-1].world_from_lidar, pose)
        is_scored, *in_region = (
            _is_within(se3.transform_points(reference_from_lidar, points), forecaster.region_half_m)
            for points in (frame.points, *map(frame.rays.points_at, found.depths_m.T))
        )
        view = RangeView.of(around.features, around.cells)
        made = examples(found, frame.rays, frame.points, is_scored, np.stack(in_region, axis=1), view)
        parts.append(made.thinned(rays_per_frame, rng))
    return parts


def _is_within(points: FloatArray, half_m: float) -> NDArray[np.bool_]:
    """(N,) whether points lie in the square of the scores' region."""
    return np.asarray((np.abs(points[:, :2]) < half_m).all(axis=1))

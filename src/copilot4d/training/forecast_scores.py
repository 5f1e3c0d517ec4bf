"""How well a forecaster does on clips that it was not trained on, by the protocol; and what that looks like."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from copilot4d.evaluation.frame_score import score_frame
from copilot4d.evaluation.protocol import Protocol
from copilot4d.evaluation.true_rays import true_frame
from copilot4d.forecaster import Forecaster
from copilot4d.geometry import Clip, se3
from copilot4d.pictures import Cell, Legend, bev_image, panel

SHOWN = ("chamfer_roi", "roi_l1_mean", "roi_l1_median", "roi_absrel_median")


def score_clips(forecaster: Forecaster, protocol: Protocol, clips: Iterable[tuple[str, Clip]]) -> dict[str, float]:
    """Means over all frames of all clips: each metric, and ROI Chamfer per setting."""
    found: dict[str, list[float]] = defaultdict(list)
    for setting, clip in clips:
        frames = [true_frame(clip, i, protocol) for i in range(len(clip.future))]
        forecast = forecaster.forecast(clip.past, clip.future_poses, [f.rays for f in frames])
        assert forecast.depths is not None
        for frame, sweep, depths in zip(frames, forecast.sweeps, forecast.depths, strict=True):
            if len(frame.points) == 0:
                continue
            scoring_from_future = frame.scoring_from_future
            score = score_frame(
                se3.transform_points(scoring_from_future, sweep.points.astype(np.float64)),
                se3.transform_points(scoring_from_future, frame.points.astype(np.float64)),
                frame.origin_in(scoring_from_future),
                protocol.roi,
                predicted_depths=depths,
            )
            if not score.scored:
                found["frames_not_scored"].append(1.0)
                continue
            for name in SHOWN:
                found[name].append(getattr(score, name))
            found[f"chamfer_roi_{setting}"].append(score.chamfer_roi)
    scores = {name: float(np.mean(values)) for name, values in found.items() if name != "frames_not_scored"}
    return {"chamfer_roi": float("nan"), **scores, "frames_not_scored": float(sum(found["frames_not_scored"]))}


def clip_picture(
    forecaster: Forecaster, clip: Clip, *, half_m: float, heights_m: tuple[float, float], on_rays: bool, title: str = ""
) -> NDArray[np.uint8]:
    """The first, the middle and the last future frame from above, truth over forecast. on_rays: on the true rays."""
    rays = [s.rays()[0] for s in clip.future] if on_rays else None
    forecast = forecaster.forecast(clip.past, clip.future_poses, rays)
    shown = sorted({0, len(clip.future) // 2, len(clip.future) - 1})
    rows = []
    for words, sweeps in (("truth", clip.future), ("forecast", forecast.sweeps)):
        row = []
        for i in shown:
            points = se3.transform_points(clip.reference_from(clip.future[i]), sweeps[i].points)
            after_s = (clip.future[i].timestamp_ns - clip.reference.timestamp_ns) * 1e-9
            row.append(Cell(bev_image(points, half=half_m, z_range=heights_m), f"{words}, {after_s:+.1f} s"))
        rows.append(row)
    return np.asarray(panel(rows, heading=title, legend=Legend.of_height(heights_m)))

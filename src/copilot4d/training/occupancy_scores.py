"""How well a 4D-Occ network forecasts clips that it was not trained on, by the protocol, inside its own region."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from copilot4d.baselines.occupancy_4d import Occupancy4d, Occupancy4dForecaster
from copilot4d.evaluation.frame_score import score_frame
from copilot4d.evaluation.protocol import Protocol
from copilot4d.evaluation.true_rays import true_frame
from copilot4d.geometry import Clip, se3
from copilot4d.pictures import Cell, Legend, bev_image, panel

SHOWN = ("chamfer_roi", "roi_l1_mean", "roi_l1_median", "roi_absrel_median")


def score_forecasts(model: Occupancy4d, clips: Iterable[tuple[str, Clip]]) -> dict[str, float]:
    """Means over all frames of all clips: each metric, and ROI Chamfer per setting."""
    forecaster = Occupancy4dForecaster(model)
    protocol = Protocol(roi_half_m=region_half_m(model))
    found: dict[str, list[float]] = defaultdict(list)
    for setting, clip in clips:
        frames = [true_frame(clip, i, protocol) for i in range(len(clip.future))]
        forecast = forecaster.forecast(clip.past, clip.future_poses, [f.rays for f in frames])
        for frame, sweep in zip(frames, forecast.sweeps, strict=True):
            if len(frame.points) == 0:
                continue
            scoring_from_future = frame.scoring_from_future
            score = score_frame(
                se3.transform_points(scoring_from_future, sweep.points.astype(np.float64)),
                se3.transform_points(scoring_from_future, frame.points.astype(np.float64)),
                frame.origin_in(scoring_from_future),
                protocol.roi,
            )
            if not score.scored:
                found["frames_not_scored"].append(1.0)
                continue
            for name in SHOWN:
                found[name].append(getattr(score, name))
            found[f"chamfer_roi_{setting}"].append(score.chamfer_roi)
    scores = {name: float(np.mean(values)) for name, values in found.items() if name != "frames_not_scored"}
    return {"chamfer_roi": float("nan"), **scores, "frames_not_scored": float(sum(found["frames_not_scored"]))}


def forecast_picture(model: Occupancy4d, clip: Clip, *, title: str = "") -> NDArray[np.uint8]:
    """The first, the middle and the last future frame from above, truth over forecast on the true rays."""
    forecaster, half = Occupancy4dForecaster(model), region_half_m(model)
    forecast = forecaster.forecast(clip.past, clip.future_poses, [s.rays()[0] for s in clip.future])
    shown = sorted({0, len(clip.future) // 2, len(clip.future) - 1})
    box = model.config.grid.box
    heights = (max(float(box[2]), -2.5), min(float(box[5]), 2.5))
    rows = []
    for words, sweeps in (("truth", clip.future), ("forecast", forecast.sweeps)):
        row = []
        for i in shown:
            points = se3.transform_points(clip.reference_from(clip.future[i]), sweeps[i].points)
            after_s = (clip.future[i].timestamp_ns - clip.reference.timestamp_ns) * 1e-9
            row.append(Cell(bev_image(points, half=half, z_range=heights), f"{words}, {after_s:+.1f} s"))
        rows.append(row)
    return np.asarray(panel(rows, heading=title, legend=Legend.of_height(heights)))


def region_half_m(model: Occupancy4d) -> float:
    """Half the width of the largest square around the sensor that the network's region holds."""
    box = model.config.grid.box
    return float(np.abs(box[[0, 1, 3, 4]]).min())

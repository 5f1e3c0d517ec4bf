"""How well a network of the 4D-Occ kind forecasts clips that it was not trained on, inside its own region."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from copilot4d.baselines.occupancy_4d import Occupancy4dForecaster, OccupancyNetwork
from copilot4d.evaluation.protocol import Protocol
from copilot4d.geometry import Clip
from copilot4d.training.forecast_scores import clip_picture, score_clips


def score_forecasts(model: OccupancyNetwork, clips: Iterable[tuple[str, Clip]]) -> dict[str, float]:
    """Means over all frames of all clips: each metric, and ROI Chamfer per setting."""
    return score_clips(Occupancy4dForecaster(model), Protocol(roi_half_m=region_half_m(model)), clips)


def forecast_picture(model: OccupancyNetwork, clip: Clip, *, title: str = "") -> NDArray[np.uint8]:
    """The first, the middle and the last future frame from above, truth over forecast on the true rays."""
    box = model.config.grid.box
    heights = (max(float(box[2]), -2.5), min(float(box[5]), 2.5))
    return clip_picture(
        Occupancy4dForecaster(model), clip, half_m=region_half_m(model), heights_m=heights, on_rays=True,
        title=title,
    )  # fmt: skip


def region_half_m(model: OccupancyNetwork) -> float:
    """Half the width of the largest square around the sensor that the network's region holds."""
    box = model.config.grid.box
    return float(np.abs(box[[0, 1, 3, 4]]).min())

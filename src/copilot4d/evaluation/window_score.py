"""One window of the protocol through a forecaster: forecast, score, and what goes into the tally."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import ForecastError, UsageError
from copilot4d.evaluation.frame_score import DetailedScore, score_frame_detailed
from copilot4d.evaluation.protocol import Protocol
from copilot4d.evaluation.several import SeveralFrame, several_frames
from copilot4d.evaluation.tally import Tally
from copilot4d.evaluation.true_rays import TrueFrame, true_frame
from copilot4d.forecaster import Forecast, Forecaster
from copilot4d.geometry import Clip, inside_box, se3
from copilot4d.geometry.se3 import FloatArray

NO_RAYS = "no true ray enters the ROI"
EMPTY_ROI = "no true or no predicted point inside the ROI"

# 4D-Occ scores in nuScenes' axes (x right, y forward); its pairing by angle depends on them.
_NUSCENES_FROM_OURS = se3.from_yaw(np.pi / 2)


class Sampling(TypedDict):
    """How a forecaster is asked."""

    seed: int
    guidance: float
    steps: int
    futures: int


@dataclass(frozen=True)
class WindowScore:
    """The scores of one window's future frames, each a score or why there is none."""

    drive: str
    seconds: float  # of the forecast
    frames: list[DetailedScore | str]
    times_ns: list[tuple[int, int]]  # of the reference and of each frame
    truths: list[str]  # what each frame was scored against
    several: list[SeveralFrame]
    moving: list[FloatArray | None] = field(default_factory=list)  # errors of rays that meet something moving

    def add_to(self, tally: Tally) -> None:
        """All of it: an interrupt before leaves the tally without this window, not with half of it."""
        tally.seconds_forecasting += self.seconds
        tally.add_several(self.several)
        for i, errors_m in enumerate(self.moving):
            if errors_m is not None:
                tally.add_moving(i + 1, errors_m)
        for i, result in enumerate(self.frames):
            if isinstance(result, str):
                tally.not_scored(result)
            else:
                tally.add(self.drive, i + 1, self.times_ns[i], result, truth=self.truths[i])


def score_window(
    protocol: Protocol, forecaster: Forecaster, clip: Clip, sampling: Sampling,
    moving: Sequence[NDArray[np.bool_] | None] = (),
) -> WindowScore:  # fmt: skip
    """Forecast a clip's future on its true rays, and score it. moving: of each future sweep, which points move."""
    known = moving or [None] * len(clip.future)
    truth = [true_frame(clip, i, protocol, known[i]) for i in range(len(clip.future))]
    before = time.monotonic()
    forecast = _forecast(forecaster, clip, truth, sampling)
    spent = time.monotonic() - before
    scored = [_score(protocol, clip, forecast, frame, i) for i, frame in enumerate(truth)]
    return WindowScore(
        drive=clip.drive,
        seconds=spent,
        frames=scored,
        times_ns=[(clip.reference.timestamp_ns, sweep.timestamp_ns) for sweep in clip.future],
        truths=[frame.fingerprint for frame in truth],
        several=_several(protocol, clip, forecast, truth, scored) if len(forecast.futures) > 1 else [],
        moving=[_moving_errors(protocol, forecast, frame, i) for i, frame in enumerate(truth)],
    )


def _moving_errors(protocol: Protocol, forecast: Forecast, frame: TrueFrame, index: int) -> FloatArray | None:
    """Depth errors of the rays whose return lies on something moving inside the ROI; None where that is not known."""
    if frame.moving is None or forecast.depths is None:
        return None
    inside = inside_box(se3.transform_points(frame.scoring_from_future, frame.points), protocol.roi)
    asked = frame.moving & inside
    true_m = np.linalg.norm(frame.points[asked] - frame.rays.origins[asked], axis=-1)
    errors_m: FloatArray = np.abs(np.asarray(forecast.depths[index], dtype=np.float64)[asked] - true_m)
    return errors_m


def _several(
    protocol: Protocol, clip: Clip, forecast: Forecast, truth: list[TrueFrame], first: list[DetailedScore | str]
) -> list[SeveralFrame]:
    """What all futures say; the first one's scores are known."""
    others = [[_score(protocol, clip, f, frame, i) for i, frame in enumerate(truth)] for f in forecast.alternatives]
    scores = [[None if isinstance(r, str) else r.score for r in future] for future in (first, *others)]
    clouds = [
        [
            se3.transform_points(frame.scoring_from_future, sweep.points)
            for frame, sweep in zip(truth, future.sweeps, strict=True)
        ]
        for future in forecast.futures
    ]
    return several_frames(scores, clouds, protocol.roi)


def _forecast(forecaster: Forecaster, clip: Clip, truth: list[TrueFrame], sampling: Sampling) -> Forecast:
    rays = [frame.rays for frame in truth]
    where = f"{forecaster.name} on drive {clip.drive}, reference frame {clip.past_frames[-1]}"
    try:
        forecast = forecaster.forecast(clip.past, clip.future_poses, rays, **sampling)
    except ForecastError as error:
        raise ForecastError(f"{where}: {error}") from error
    if forecast.depths is None or len(forecast.sweeps) != len(rays) or len(forecast.depths) != len(rays):
        depths = None if forecast.depths is None else len(forecast.depths)
        raise ForecastError(
            f"{where}: asked for {len(rays)} frames with a depth for each given ray, got {len(forecast.sweeps)} sweeps "
            f"and depths for {depths} frames"
        )
    return forecast


def _score(protocol: Protocol, clip: Clip, forecast: Forecast, frame: TrueFrame, index: int) -> DetailedScore | str:
    """The score of future frame `index`, or why it has none."""
    if len(frame.rays) == 0:
        return NO_RAYS
    assert forecast.depths is not None
    predicted, depths = forecast.sweeps[index].points, np.asarray(forecast.depths[index])
    try:
        detailed = _detailed_score(protocol, frame, predicted, depths)
    except (ForecastError, UsageError) as error:
        raise ForecastError(
            f"drive {clip.drive}, reference frame {clip.past_frames[-1]}, future frame {clip.future_frames[index]} "
            f"(horizon {index + 1}): {error}"
        ) from error
    return detailed if protocol.parity or detailed.score.scored else EMPTY_ROI


def _detailed_score(
    protocol: Protocol, frame: TrueFrame, predicted_points: FloatArray, predicted_depths: FloatArray
) -> DetailedScore:
    """Score one frame; its prediction is in the future frame's own lidar frame."""
    scoring_from_future, roi = frame.scoring_from_future, protocol.roi
    answers: FloatArray | None = predicted_depths
    if protocol.pairing == "nearest":
        scoring_from_future, roi = se3.compose(_NUSCENES_FROM_OURS, scoring_from_future), _turned(roi)
        if _lies_on(frame, predicted_points, predicted_depths):
            answers = None  # rows answer rays: the points say it all
    return score_frame_detailed(
        se3.transform_points(scoring_from_future, predicted_points),
        se3.transform_points(scoring_from_future, frame.points),
        frame.origin_in(scoring_from_future),
        roi,
        protocol.pairing,
        protocol.parity,
        predicted_depths=answers,
        clamp=protocol.clamp,
    )


def _lies_on(frame: TrueFrame, points: FloatArray, depths: FloatArray) -> bool:
    same_rows = len(points) == len(frame.rays) == len(depths)
    return same_rows and bool(np.allclose(points, frame.rays.points_at(depths), atol=1e-2, equal_nan=True))


def _turned(roi: FloatArray) -> FloatArray:
    """The box in nuScenes' axes: x' = -y, y' = x."""
    xmin, ymin, zmin, xmax, ymax, zmax = roi
    return np.array([-ymax, xmin, zmin, -ymin, xmax, zmax])

"""`score_frame`: every metric of one (reference, future frame) pair."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import ForecastError, ProtocolError, UsageError
from copilot4d.evaluation.chamfer import chamfer_full_and_roi
from copilot4d.evaluation.depth_error import RayErrors, depth_errors, nearest_depths, raw_depth_errors
from copilot4d.geometry import inside_box
from copilot4d.geometry.se3 import FloatArray

Pairing = Literal["ray", "nearest"]
NAN = float("nan")


@dataclass(frozen=True, kw_only=True)
class FrameScore:
    """The metrics of one future frame. Chamfer in m^2, L1 in metres, AbsRel as a fraction (papers print x100).

    `roi_*` look only at rays whose true end point lies in the ROI. A metric that this frame does not have (nothing
    inside the ROI) is NaN.
    """

    chamfer: float
    chamfer_roi: float
    l1_mean: float
    absrel_mean: float
    l1_median: float
    absrel_median: float
    roi_l1_mean: float
    roi_absrel_mean: float
    roi_l1_median: float
    roi_absrel_median: float

    @property
    def scored(self) -> bool:
        """Whether every metric exists."""
        return bool(np.isfinite(list(self.as_dict().values())).all())

    def as_dict(self) -> dict[str, float]:
        """Name -> value, in the order of the fields."""
        return asdict(self)


METRICS = tuple(field.name for field in fields(FrameScore))
NOT_SCORED = FrameScore(**dict.fromkeys(METRICS, NAN))


class DetailedScore(NamedTuple):
    """A frame's score, and the per-ray errors inside the ROI from which pooled medians are made."""

    score: FrameScore
    roi_l1: FloatArray  # (V,)
    roi_absrel: FloatArray  # (V,)


def score_frame(
    predicted_points: FloatArray,
    true_points: FloatArray,
    origin: FloatArray,
    roi: FloatArray,
    pairing: Pairing = "ray",
    parity: bool = False,
    *,
    predicted_depths: FloatArray | None = None,
    clamp: bool = True,
) -> FrameScore:
    """Score one predicted cloud against the true one, both in the frame of scoring.

    predicted_points: (M, 3), the cloud that Chamfer sees.
    true_points: (N, 3), one per true ray; origin: (3,) or (N, 3), where those rays start.
    roi: (6,) xmin, ymin, zmin, xmax, ymax, zmax, closed.
    pairing: "ray": row i of the prediction answers true ray i (its range is the predicted depth). "nearest": each
        true ray takes the range of the predicted point nearest in angle, as 4D-Occ does.
    parity: keep what 4D-Occ's code does with odd input, and its float32 (docs/scoring.md). The default refuses empty
        and non-finite predictions (ForecastError), and gives NaN for a ROI Chamfer without points, not 0.
    predicted_depths: (N,) depths along the true rays, for a free cloud whose points do not lie on them; L1 and AbsRel
        then come from these (with "nearest" from the cloud's points all the same).
    clamp: False compares raw depths, as the AV2 challenge's evaluation does.

    >>> true = np.array([[10.0, 0, 0], [0, 20, 0]])
    >>> score = score_frame(1.1 * true, true, np.zeros(3), np.array([-70, -70, -4.5, 70, 70, 4.5]))
    >>> round(score.l1_mean, 6), round(score.absrel_mean, 6), round(score.chamfer, 6)
    (1.5, 0.1, 2.5)
    """
    return score_frame_detailed(
        predicted_points, true_points, origin, roi, pairing, parity, predicted_depths=predicted_depths, clamp=clamp
    ).score


def score_frame_detailed(
    predicted_points: FloatArray,
    true_points: FloatArray,
    origin: FloatArray,
    roi: FloatArray,
    pairing: Pairing = "ray",
    parity: bool = False,
    *,
    predicted_depths: FloatArray | None = None,
    clamp: bool = True,
) -> DetailedScore:
    """`score_frame` with the in-ROI errors of the single rays."""
    predicted_points, true_points, roi = _cloud("predicted", predicted_points), _cloud("true", true_points), _box(roi)
    origin = _origin(origin, len(true_points))
    if pairing not in ("ray", "nearest"):
        raise UsageError(f"pairing must be 'ray' or 'nearest', got {pairing!r}")
    if predicted_depths is not None:
        predicted_depths = np.asarray(predicted_depths)
        if predicted_depths.shape != (len(true_points),):
            expected = f"({len(true_points)},), one per true ray"
            raise UsageError(f"predicted_depths must be {expected}, got {predicted_depths.shape}")
    if not parity:
        _refuse_odd_truth(true_points, origin)
        if len(true_points) == 0:
            return DetailedScore(NOT_SCORED, np.zeros(0), np.zeros(0))
        _refuse_odd_prediction(predicted_points, predicted_depths)
    if pairing == "ray" and predicted_depths is None and len(predicted_points) not in (0, len(true_points)):
        raise UsageError(
            f"pairing='ray' needs one predicted point per true ray: {len(predicted_points)} points for "
            f"{len(true_points)} rays; give predicted_depths (one per ray), or use pairing='nearest'"
        )

    distance = chamfer_full_and_roi(predicted_points, true_points, roi)
    true_in_roi = inside_box(true_points, roi.astype(true_points.dtype))
    errors, roi_errors = _ray_errors(
        predicted_points, true_points, origin, roi, true_in_roi, pairing, parity, predicted_depths, clamp
    )
    (l1, absrel), (l1_median, absrel_median) = _summary(errors, parity)
    (roi_l1, roi_absrel), (roi_l1_median, roi_absrel_median) = _summary(roi_errors, parity)
    score = FrameScore(
        chamfer=distance.full,
        chamfer_roi=0.0 if parity and np.isnan(distance.roi) else distance.roi,  # 4D-Occ's value for an empty crop
        l1_mean=l1,
        absrel_mean=absrel,
        l1_median=l1_median,
        absrel_median=absrel_median,
        roi_l1_mean=roi_l1,
        roi_absrel_mean=roi_absrel,
        roi_l1_median=roi_l1_median,
        roi_absrel_median=roi_absrel_median,
    )
    none = np.zeros(0)
    if roi_errors is None:
        return DetailedScore(score, none, none)
    return DetailedScore(score, roi_errors.valid_l1, roi_errors.valid_absrel)


def _summary(errors: RayErrors | None, parity: bool) -> tuple[tuple[float, float], tuple[float, float]]:
    # Where 4D-Occ's own code stops with an exception there is no value to agree with: NaN says so.
    if errors is None or (parity and errors.stuck):
        return (NAN, NAN), (NAN, NAN)
    return errors.means(), errors.medians()


def _ray_errors(
    predicted_points: FloatArray, true_points: FloatArray, origin: FloatArray, roi: FloatArray,
    true_in_roi: NDArray[np.bool_], pairing: Pairing, parity: bool, predicted_depths: FloatArray | None, clamp: bool,
) -> tuple[RayErrors | None, RayErrors | None]:  # fmt: skip
    """Errors of all rays, and of those that end in the ROI. None where there is no prediction to pair with."""
    dtype: np.dtype[np.floating[Any]] = np.dtype(np.float32 if parity else np.float64)
    predicted, true, origin = predicted_points.astype(dtype), true_points.astype(dtype), origin.astype(dtype)
    origins = np.broadcast_to(origin, true.shape)

    def errors_of(depths: FloatArray | None, keep: NDArray[np.bool_] | slice) -> RayErrors | None:
        if depths is None:
            return None
        if not clamp:
            return raw_depth_errors(np.linalg.norm(true[keep] - origins[keep], axis=-1), depths, parity=parity)
        return depth_errors(origins[keep], true[keep], depths, roi)

    everything = slice(None)
    if pairing == "ray":
        if predicted_depths is None:
            with np.errstate(invalid="ignore"):
                predicted_depths = np.linalg.norm(predicted - origin, axis=-1) if len(predicted) else None
        depths = None if predicted_depths is None else np.asarray(predicted_depths, dtype=dtype)
        errors = errors_of(depths, everything)
        return errors, None if errors is None else errors.select(true_in_roi)

    rows_answer_rays = predicted_depths is None and len(predicted) == len(true)
    depths = _paired_by_angle(predicted, true, origin, rows_answer_rays)
    errors = errors_of(depths, everything)
    if not true_in_roi.any():
        return errors, None
    if not rows_answer_rays:  # a free cloud is not cropped by the rays it does not have
        return errors, None if errors is None else errors.select(true_in_roi)
    inner_origin = origin if origin.ndim == 1 else origin[true_in_roi]
    depths = _paired_by_angle(predicted[true_in_roi], true[true_in_roi], inner_origin, rows_answer_rays)
    return errors, errors_of(depths, true_in_roi)


def _paired_by_angle(
    predicted: FloatArray, true: FloatArray, origin: FloatArray, rows_answer_rays: bool
) -> FloatArray | None:
    """(N,) predicted depths by the nearest angle, seen from each origin in turn where a sweep has several."""
    if origin.ndim == 1:
        return nearest_depths(predicted - origin, true - origin)
    depths = np.zeros(len(true), dtype=true.dtype)
    origins, which = np.unique(origin, axis=0, return_inverse=True)
    for i, one in enumerate(origins):
        rows = which.reshape(-1) == i
        found = nearest_depths((predicted[rows] if rows_answer_rays else predicted) - one, true[rows] - one)
        if found is None:
            return None
        depths[rows] = found
    return depths


def _cloud(name: str, points: FloatArray) -> FloatArray:
    points = np.asarray(points)
    if points.ndim != 2 or points.shape[1] != 3:
        raise UsageError(f"{name}_points must be (N, 3), got {points.shape}")
    return points if np.issubdtype(points.dtype, np.floating) else points.astype(np.float64)


def _box(roi: FloatArray) -> FloatArray:
    roi = np.asarray(roi, dtype=np.float64)
    if roi.shape != (6,) or not (roi[:3] < roi[3:]).all():
        raise UsageError(f"roi must be xmin, ymin, zmin, xmax, ymax, zmax with min below max, got {roi.tolist()}")
    return roi


def _origin(origin: FloatArray, rays: int) -> FloatArray:
    origin = np.asarray(origin)
    if origin.shape not in ((3,), (rays, 3)):
        raise UsageError(f"origin must be (3,) or one per true point ({rays}, 3), got {origin.shape}")
    return origin


def _refuse_odd_truth(true_points: FloatArray, origin: FloatArray) -> None:
    if not np.isfinite(true_points).all() or not np.isfinite(origin).all():
        raise ProtocolError("the true points or ray origins hold NaN or infinity; drop such returns when reading them")


def _refuse_odd_prediction(predicted_points: FloatArray, predicted_depths: FloatArray | None) -> None:
    if len(predicted_points) == 0:
        raise ForecastError("the prediction is empty: a frame without points has no score")
    for name, values in (("points", predicted_points), ("depths", predicted_depths)):
        if values is None:
            continue
        finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
        if not finite.all():
            bad = np.flatnonzero(~finite)
            raise ForecastError(
                f"{len(bad)} of {len(values)} predicted {name} are NaN or infinite, the first at row {bad[0]}: "
                f"{values[bad[0]].tolist()}; a forecast must give a finite depth on every ray"
            )

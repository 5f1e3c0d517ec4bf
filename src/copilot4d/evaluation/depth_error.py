"""Depth errors along the true rays: pairing, clamping to the ROI, per-ray errors (docs/scoring.md).

All clouds are in the frame of scoring. `roi` is (6,): xmin, ymin, zmin, xmax, ymax, zmax. The arithmetic runs in the
dtype of what is given: parity with 4D-Occ needs float32, the default mode passes float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pykdtree.kdtree import KDTree

from copilot4d.geometry import inside_box, rays_through
from copilot4d.geometry.se3 import FloatArray

MIN_RANGE_M = 0.01  # nearer returns carry no direction
BAND_M = 0.02  # a point this little outside the ROI counts as on its surface
_BEHIND_M = 1e-4  # a face this little behind the start still counts as ahead
_PARALLEL = 1e-8  # a direction component this small never meets the face
_TIED_CANDIDATES = 8


class ClampedRays(NamedTuple):
    """Rays cut to the ROI: where they now start and end, and which of them can be used."""

    origins: FloatArray  # (N, 3)
    ends: FloatArray  # (N, 3)
    enters: NDArray[np.bool_]  # (N,) False: the ray never meets the ROI
    stuck: NDArray[np.bool_]  # (N,) True: it meets the ROI, but no face stops it (a non-finite end, a grazed edge)


@dataclass(frozen=True)
class RayErrors:
    """Errors of N true rays. Rays that are counted but not valid add 0 to a mean and nothing to a median."""

    l1: FloatArray  # (N,) metres
    absrel: FloatArray  # (N,) a fraction of the clamped true depth
    counted: NDArray[np.bool_]  # (N,) the true range is more than 1 cm
    valid: NDArray[np.bool_]  # (N,)
    stuck: bool = False  # at least one counted ray could not be clamped

    def select(self, keep: NDArray[np.bool_]) -> RayErrors:
        """Only these rays."""
        return RayErrors(self.l1[keep], self.absrel[keep], self.counted[keep], self.valid[keep], self.stuck)

    @property
    def valid_l1(self) -> FloatArray:
        """(V,) errors of the valid rays."""
        return self.l1[self.valid]

    @property
    def valid_absrel(self) -> FloatArray:
        """(V,) relative errors of the valid rays."""
        return self.absrel[self.valid]

    def means(self) -> tuple[float, float]:
        """L1 and AbsRel: sums over valid rays, divided by all that were counted. NaN where none was."""
        count = int(self.counted.sum())
        if count == 0:
            return float("nan"), float("nan")
        total_l1, total_absrel = self.valid_l1.sum(dtype=np.float64), self.valid_absrel.sum(dtype=np.float64)
        return float(total_l1) / count, float(total_absrel) / count

    def medians(self) -> tuple[float, float]:
        """Medians over the valid rays. NaN where there is none."""
        if not self.valid.any():
            return float("nan"), float("nan")
        return float(np.median(self.valid_l1)), float(np.median(self.valid_absrel))


def clamp_to_roi(origins: FloatArray, ends: FloatArray, roi: FloatArray) -> ClampedRays:
    """Cut rays from `origins` (N, 3) to `ends` (N, 3) to the ROI.

    An end inside stays. An end outside moves back along its ray to the first face whose hit lies in the ROI inflated
    by 2 cm; ends within those 2 cm stay. Where the origin lies outside the inflated ROI and the end outside the ROI,
    the origin moves forward to the entry, and an end that lies before the entry moves there too.
    """
    dtype = ends.dtype
    origins, ends = np.array(origins), np.array(ends)  # copies: rows change below
    enters, stuck = np.ones(len(ends), dtype=bool), np.zeros(len(ends), dtype=bool)
    outside = np.flatnonzero(~inside_box(ends, np.asarray(roi, dtype=dtype)))
    if len(outside) == 0:
        return ClampedRays(origins, ends, enters, stuck)

    band = _inflated(roi, dtype)
    start, end = origins[outside], ends[outside]
    rays, depth = rays_through(end, start)
    direction = rays.directions
    away = ~inside_box(start, band)
    if away.any():
        entry = _first_face(start[away], direction[away], roi, band)
        met = np.isfinite(entry)
        at_entry = start[away] + np.where(met, entry, 0)[:, None] * direction[away]
        start[away] = np.where(met[:, None], at_entry, start[away])
        end[away] = np.where((met & (entry > depth[away]))[:, None], at_entry, end[away])
        enters[outside[away]] = met
    beyond = ~inside_box(end, band) & enters[outside]
    if beyond.any():
        back = _first_face(end[beyond], -direction[beyond], roi, band)
        found = np.isfinite(back)
        end[beyond] = end[beyond] - np.where(found, back, 0)[:, None] * direction[beyond]
        stuck[outside[beyond]] = ~found
    origins[outside], ends[outside] = start, end
    return ClampedRays(origins, ends, enters, stuck)


def _inflated(roi: FloatArray, dtype: np.dtype[np.floating]) -> FloatArray:
    roi = np.asarray(roi, dtype=np.float64)
    return np.concatenate([roi[:3] - BAND_M, roi[3:] + BAND_M]).astype(dtype)


def _first_face(starts: FloatArray, directions: FloatArray, roi: FloatArray, band: FloatArray) -> FloatArray:
    """(N,) distance along each ray to the first of the six faces' planes whose hit lies in `band`; inf for none."""
    first = np.full(len(starts), np.inf, dtype=starts.dtype)
    faces = np.asarray(roi, dtype=starts.dtype)
    for axis in (0, 1, 2):
        parallel = np.abs(directions[:, axis]) <= _PARALLEL
        for face in (faces[axis], faces[axis + 3]):
            with np.errstate(divide="ignore", invalid="ignore"):
                distance = (face - starts[:, axis]) / directions[:, axis]
                hit = starts + distance[:, None] * directions
                usable = ~parallel & (distance + _BEHIND_M >= 0) & inside_box(hit, band)
            first = np.where(usable & (distance < first), distance, first)
    return first


def depth_errors(
    origins: FloatArray, true_points: FloatArray, predicted_depths: FloatArray, roi: FloatArray
) -> RayErrors:
    """Errors of predicted depths (N,) on the rays from origins (N, 3) to true points (N, 3), all clamped to the ROI.

    With e = |gt_c - pred_c| between the clamped ends and o_c the clamped origin: L1 is e, AbsRel is e / |gt_c - o_c|;
    a ray that never enters the ROI, or of which no more than 1 cm is left, is not valid.
    """
    rays, true_depths = rays_through(true_points, origins)
    counted = true_depths > MIN_RANGE_M
    true = clamp_to_roi(origins, true_points, roi)
    predicted = clamp_to_roi(origins, rays.points_at(predicted_depths), roi)
    left = np.linalg.norm(true.ends - true.origins, axis=-1)
    stuck = (true.stuck | predicted.stuck) & true.enters & counted
    valid = counted & true.enters & ~stuck & (left > MIN_RANGE_M)
    with np.errstate(invalid="ignore"):
        error = np.linalg.norm(true.ends - predicted.ends, axis=-1)
    relative = np.divide(error, left, out=np.zeros_like(error), where=valid)
    return RayErrors(error, relative, counted, valid, bool(stuck.any()))


def raw_depth_errors(true_depths: FloatArray, predicted_depths: FloatArray, *, parity: bool) -> RayErrors:
    """Errors of the AV2 challenge's evaluation: |d_pred - d_true| and that over d_true, nothing clamped.

    Its own code counts returns within 1 cm of the sensor too (parity); the default leaves them out.
    """
    counted = np.ones(len(true_depths), dtype=bool) if parity else true_depths > MIN_RANGE_M
    error = np.abs(predicted_depths - true_depths)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = error / true_depths
    return RayErrors(error, relative, counted, counted)


def nearest_depths(predicted_offsets: FloatArray, true_offsets: FloatArray) -> FloatArray | None:
    """(N,) for each true ray, the range of the predicted point nearest to it in (atan2(x, y), atan2(z, y)).

    Offsets (M, 3) and (N, 3) are taken from the sensor's origin. There is no wrap-around at +-pi, and of equally near
    points the first wins: both as in 4D-Occ. Points without a direction (NaN, or within 1 cm) are not candidates;
    None where no candidate is left.
    """
    predicted_offsets = np.asarray(predicted_offsets, dtype=np.float32)
    true_angles = _angles(np.asarray(true_offsets, dtype=np.float32))
    with np.errstate(invalid="ignore", over="ignore"):
        ranges = np.sqrt((predicted_offsets * predicted_offsets).sum(axis=1))
        usable = ranges > MIN_RANGE_M
    if not usable.any():
        return None
    ranges, angles = ranges[usable], _angles(predicted_offsets[usable])
    if len(true_angles) == 0:
        return np.zeros(0, dtype=np.float32)

    # Points in one direction become one entry, the first of them, so that a tie never fills all candidates.
    packed = np.ascontiguousarray(angles).view(np.uint64)[:, 0]
    first_row = np.sort(np.unique(packed, return_index=True)[1])
    distinct = np.ascontiguousarray(angles[first_row])
    count = min(_TIED_CANDIDATES, len(distinct))
    _, candidates = KDTree(distinct).query(true_angles, k=count)
    candidates = np.sort(candidates.reshape(len(true_angles), count).astype(np.int64), axis=1)
    squared = ((distinct[candidates] - true_angles[:, None]) ** 2).sum(axis=-1)  # (N, count) float32, as 4D-Occ has it
    nearest = np.take_along_axis(candidates, squared.argmin(axis=1)[:, None], axis=1)[:, 0]
    return np.asarray(ranges[first_row[nearest]])


def _angles(offsets: FloatArray) -> NDArray[np.float32]:
    """(N, 3) -> (N, 2): the two angles of 4D-Occ; adding 0 turns -0.0 into 0.0, which packs alike."""
    x, y, z = offsets.T
    return np.stack([np.arctan2(x, y) + 0, np.arctan2(z, y) + 0], axis=1, dtype=np.float32)

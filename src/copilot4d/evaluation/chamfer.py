"""Chamfer distance between point clouds: trees on the CPU, bounded chunks in torch.

chamfer(P, G) = 1/2 ( mean_p min_g |p - g|^2 + mean_g min_p |g - p|^2 )        squared distances, m^2
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pykdtree.kdtree import KDTree

from copilot4d.errors import UsageError
from copilot4d.geometry import inside_box
from copilot4d.geometry.se3 import FloatArray

if TYPE_CHECKING:
    import torch

_WORTH_A_THREAD = 20_000  # points


class ChamferPair(NamedTuple):
    """Chamfer over the whole clouds, and over both clouds cropped, each on its own, to a closed box.

    NaN where a cloud is empty.
    """

    full: float
    roi: float


class _Neighbours(NamedTuple):
    squared: FloatArray  # (N,) squared distance to the nearest point of the other cloud
    row: NDArray[np.uint32]  # (N,) which point that is


def chamfer(predicted_points: FloatArray, true_points: FloatArray) -> float:
    """Chamfer distance of two clouds (N, 3) and (M, 3), in m^2; NaN where one is empty.

    A NaN coordinate makes it NaN, an infinite one makes it infinite, as the formula says.

    >>> chamfer(np.array([[0.0, 0, 0]]), np.array([[1.0, 0, 0], [0, 2, 0]]))  # (1 + (1 + 4) / 2) / 2
    1.75
    """
    predicted, true = _one_dtype(predicted_points, true_points)
    odd = _non_finite_chamfer(predicted, true)
    if odd is not None:
        return odd
    return _chamfer_of(*_both_ways(predicted, true))


def chamfer_full_and_roi(predicted_points: FloatArray, true_points: FloatArray, roi: FloatArray) -> ChamferPair:
    """Both Chamfer distances of a frame, for hardly more than the price of the full one.

    A point inside the box whose nearest neighbour is inside too keeps it after the crop; only the others are asked
    again, against a tree of the cropped cloud.
    """
    predicted, true = _one_dtype(predicted_points, true_points)
    box = np.asarray(roi, dtype=predicted.dtype)  # compared in the points' own precision
    predicted_in, true_in = inside_box(predicted, box), inside_box(true, box)
    odd = _non_finite_chamfer(predicted, true)
    if odd is not None:
        return ChamferPair(full=odd, roi=chamfer(predicted[predicted_in], true[true_in]))
    forward, backward = _both_ways(predicted, true)
    full = _chamfer_of(forward, backward)
    if predicted_in.all() and true_in.all():
        return ChamferPair(full=full, roi=full)
    if not predicted_in.any() or not true_in.any():
        return ChamferPair(full=full, roi=float("nan"))
    cropped = (
        _cropped_mean(predicted, true, predicted_in, true_in, forward),
        _cropped_mean(true, predicted, true_in, predicted_in, backward),
    )
    return ChamferPair(full=full, roi=0.5 * sum(cropped))


def _one_dtype(predicted_points: FloatArray, true_points: FloatArray) -> tuple[FloatArray, FloatArray]:
    predicted, true = np.asarray(predicted_points), np.asarray(true_points)
    dtype = np.result_type(predicted, true, np.float32)
    return np.ascontiguousarray(predicted, dtype=dtype), np.ascontiguousarray(true, dtype=dtype)


def _non_finite_chamfer(predicted: FloatArray, true: FloatArray) -> float | None:
    """The value where no tree is needed or possible; None where both clouds are finite and have points."""
    if len(predicted) == 0 or len(true) == 0:
        return float("nan")
    if np.isfinite(predicted).all() and np.isfinite(true).all():
        return None
    return float("nan") if np.isnan(predicted).any() or np.isnan(true).any() else float("inf")


def _both_ways(predicted: FloatArray, true: FloatArray) -> tuple[_Neighbours, _Neighbours]:
    """Each predicted point's nearest true one, and the reverse."""
    if len(predicted) + len(true) < _WORTH_A_THREAD:
        return _nearest(predicted, KDTree(true)), _nearest(true, KDTree(predicted))
    # A query uses all cores, building a tree only one: so both trees are built at once.
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(KDTree, predicted)
        true_tree = KDTree(true)
        return _nearest(predicted, true_tree), _nearest(true, building.result())


def _nearest(points: FloatArray, tree: KDTree) -> _Neighbours:
    squared, index = tree.query(points, k=1, sqr_dists=True)
    return _Neighbours(squared, index)


def _chamfer_of(forward: _Neighbours, backward: _Neighbours) -> float:
    return 0.5 * (float(forward.squared.mean(dtype=np.float64)) + float(backward.squared.mean(dtype=np.float64)))


def _cropped_mean(
    points: FloatArray,
    others: FloatArray,
    points_in: NDArray[np.bool_],
    others_in: NDArray[np.bool_],
    full: _Neighbours,
) -> float:
    """mean over points in the box of the squared distance to the nearest of the others in the box."""
    squared = full.squared[points_in]
    lost = ~others_in[full.row[points_in]]  # their nearest neighbour was cropped away
    if lost.any():
        squared[lost] = _nearest(points[points_in][lost], KDTree(others[others_in])).squared
    return float(squared.mean(dtype=np.float64))


def chamfer_torch(
    predicted: torch.Tensor,
    true: torch.Tensor,
    predicted_lengths: torch.Tensor | None = None,
    true_lengths: torch.Tensor | None = None,
    *,
    chunk: int = 2048,
) -> torch.Tensor:
    """Chamfer distances (B,) of padded batches (B, N, 3) and (B, M, 3), on any device, with gradients.

    `*_lengths` (B,) say how many leading points of each cloud are real; None means all. At no time does more than a
    (B, chunk, 8 chunk) block of distances exist. NaN where a cloud is empty.
    """
    import torch

    for name, cloud in (("predicted", predicted), ("true", true)):
        if cloud.ndim != 3 or cloud.shape[-1] != 3 or len(cloud) != len(predicted):
            shapes = f"{tuple(predicted.shape)} and {tuple(true.shape)}"
            raise UsageError(f"chamfer_torch takes (B, N, 3) and (B, M, 3), got {shapes} (look at {name})")
    if chunk < 1:
        raise UsageError(f"chamfer_torch: chunk must be at least 1, got {chunk}")
    predicted_real = _real_mask(predicted, predicted_lengths)
    true_real = _real_mask(true, true_lengths)
    forward = _nearest_squared_torch(predicted, true, true_real, chunk)
    backward = _nearest_squared_torch(true, predicted, predicted_real, chunk)
    both_have_points = predicted_real.any(dim=1) & true_real.any(dim=1)
    value = 0.5 * (_masked_mean(forward, predicted_real) + _masked_mean(backward, true_real))
    return torch.where(both_have_points, value, torch.full_like(value, float("nan")))


def _real_mask(cloud: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
    import torch

    batch, count = cloud.shape[:2]
    if lengths is None:
        return torch.ones(batch, count, dtype=torch.bool, device=cloud.device)
    if lengths.shape != (batch,) or bool((lengths < 0).any()) or bool((lengths > count).any()):
        raise UsageError(f"chamfer_torch: lengths must be ({batch},) within 0..{count}, got {lengths.tolist()}")
    return torch.arange(count, device=cloud.device) < lengths.to(cloud.device)[:, None]


def _masked_mean(values: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    import torch

    total = torch.where(real, values, torch.zeros_like(values)).sum(dim=1, dtype=torch.float64)
    return (total / real.sum(dim=1).clamp(min=1)).to(values.dtype)


def _nearest_squared_torch(
    points: torch.Tensor, others: torch.Tensor, others_real: torch.Tensor, chunk: int
) -> torch.Tensor:
    """(B, N) squared distance to the nearest real other point. The search only finds who is nearest; the distance is
    then taken from the coordinates' differences, which loses no digits and carries the gradient.
    """
    import torch

    batch, count = points.shape[:2]
    nearest = torch.zeros(batch, count, dtype=torch.long, device=points.device)
    if others.shape[1] == 0:
        return torch.zeros(batch, count, dtype=points.dtype, device=points.device)
    with torch.no_grad():
        for start in range(0, count, chunk):
            block = points[:, start : start + chunk]
            best = torch.full(block.shape[:2], float("inf"), dtype=points.dtype, device=points.device)
            for first in range(0, others.shape[1], 8 * chunk):
                part = slice(first, first + 8 * chunk)
                distance = torch.cdist(block, others[:, part], compute_mode="donot_use_mm_for_euclid_dist")
                distance.masked_fill_(~others_real[:, None, part], float("inf"))
                value, index = distance.min(dim=2)
                closer = value < best
                best = torch.where(closer, value, best)
                nearest[:, start : start + chunk][closer] = index[closer] + first
    chosen = torch.gather(others, 1, nearest[..., None].expand(-1, -1, 3))
    return (points - chosen).square().sum(dim=-1)

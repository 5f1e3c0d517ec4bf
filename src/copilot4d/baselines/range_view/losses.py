"""What range images are compared by, each a mean over clips: ranges, masks, and points after unprojection.

B clips, F future frames, H rows, W columns
"""

from __future__ import annotations

import numpy as np
import torch
from pykdtree.kdtree import KDTree
from torch import Tensor
from torch.nn import functional

from copilot4d.baselines.range_view.config import RangePrediction


def range_loss(predicted: RangePrediction, truth_m: Tensor) -> Tensor:
    """Metres: |predicted - true| where the truth has a return, as published over all cells, empty ones counting 0."""
    wrong = (predicted.ranges_m - truth_m).abs()
    return torch.where(truth_m > 0, wrong, 0.0).mean()


def mask_loss(predicted: RangePrediction, truth_m: Tensor) -> Tensor:
    """Cross-entropy of whether a cell has a return."""
    return functional.binary_cross_entropy_with_logits(predicted.mask_logits, (truth_m > 0).float())


def chamfer_loss(predicted: RangePrediction, truth_m: Tensor, directions: Tensor, threshold: float) -> Tensor:
    """Square metres: the mean over frames of mean_p min_t |p - t|^2 + mean_t min_p |t - p|^2.

    directions: (H, W, 3). Which point is nearest is found without gradients; a frame where either side has no point
    counts 0.
    """
    masked = predicted.masked(threshold)
    total = truth_m.new_zeros(())
    for ranges, truth in zip(masked.flatten(0, 1), truth_m.flatten(0, 1), strict=True):
        ours, theirs = (directions[image > 0] * image[image > 0][:, None] for image in (ranges, truth))
        if len(ours) and len(theirs):
            total = total + _one_way(ours, theirs) + _one_way(theirs, ours)
    return total / (masked.shape[0] * masked.shape[1])


def _one_way(points: Tensor, others: Tensor) -> Tensor:
    a, b = (np.ascontiguousarray(x.detach().cpu().numpy()) for x in (points, others))
    nearest = torch.from_numpy(KDTree(b).query(a, k=1)[1].astype(np.int64)).to(points.device)
    return (points - others[nearest]).square().sum(dim=1).mean()

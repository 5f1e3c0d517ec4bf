"""The first layer of the voxel PointNet and its sum over points, in one pass over the points.

Axes: N points, V voxels, C channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from copilot4d.compiled import compiled

POINTS_AT_ONCE = 512  # whose gradients are summed in single precision


def relu_sums(points: Tensor, weight: Tensor, bias: Tensor, voxel_of_point: Tensor, voxels: int) -> Tensor:
    """(N, 3) points -> (V, C): of each voxel, the sum over its points of relu(weight @ point + bias).

    weight (C, 3), bias (C,), voxel_of_point (N,). The points get no gradient. A sweep has some 100,000 points: on the
    CPU, layer by layer, writing and reading their features again and again takes far longer than computing them.

    >>> relu_sums(torch.tensor([[1.0, 0, 0], [2, 0, 0], [-9, 0, 0]]), torch.tensor([[1.0, 0, 0]]), torch.tensor([0.5]),
    ...           torch.tensor([0, 0, 1]), 2).tolist()
    [[4.0], [0.0]]
    """
    if points.device.type == "cpu" and points.dtype == weight.dtype in (torch.float32, torch.float64):
        summed: Tensor = _ReluSums.apply(points.detach(), weight, bias, voxel_of_point, voxels)  # type: ignore[no-untyped-call]
        return summed
    return relu_sums_plain(points, weight, bias, voxel_of_point, voxels)


def relu_sums_plain(points: Tensor, weight: Tensor, bias: Tensor, voxel_of_point: Tensor, voxels: int) -> Tensor:
    """What `relu_sums` computes, layer by layer on any device."""
    of_points = functional.relu(functional.linear(points.detach(), weight, bias))
    return of_points.new_zeros(voxels, of_points.shape[1]).index_add(0, voxel_of_point, of_points)


class _ReluSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, points: Tensor, weight: Tensor, bias: Tensor, voxel_of_point: Tensor, voxels: int) -> Tensor:
        ctx.save_for_backward(points, weight, bias, voxel_of_point)
        out = weight.new_zeros(voxels, len(weight))
        _sum(_arrays(points, weight, bias, voxel_of_point), out.numpy())
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None, None]:
        points, weight, bias, voxel_of_point = ctx.saved_tensors
        made = np.zeros((4, len(weight)))  # x, y, z and the bias
        part = np.zeros((4, len(weight)), dtype=grad.numpy().dtype)
        given = _arrays(points, weight, bias, voxel_of_point)
        _sum_backward(given, grad.contiguous().numpy(), part, made, POINTS_AT_ONCE)
        whole = torch.from_numpy(made).to(grad.dtype)
        return None, whole[:3].T.contiguous(), whole[3].clone(), None, None


def _arrays(points: Tensor, weight: Tensor, bias: Tensor, voxel_of_point: Tensor) -> tuple[Any, Any, Any, Any]:
    """What both loops read, as they want it: channels side by side."""
    rows = weight.detach().T.contiguous().numpy()
    return points.contiguous().numpy(), rows, bias.detach().contiguous().numpy(), voxel_of_point.contiguous().numpy()


@compiled
def _sum(given: Any, out: Any) -> None:
    """out[voxel of p] += relu(...), in the order of the points."""
    points, rows, bias, voxel_of_point = given
    for p in range(len(points)):
        x, y, z = points[p, 0], points[p, 1], points[p, 2]
        voxel = voxel_of_point[p]
        for c in range(rows.shape[1]):
            value = rows[0, c] * x + rows[1, c] * y + rows[2, c] * z + bias[c]
            out[voxel, c] += value if value > 0 else 0 * value


@compiled
def _sum_backward(given: Any, grad: Any, part: Any, made: Any, at_once: int) -> None:
    """made (4, C) += the gradients of weight and bias. `part` is scratch: long sums in single precision lose digits."""
    points, rows, bias, voxel_of_point = given
    for p in range(len(points)):
        x, y, z = points[p, 0], points[p, 1], points[p, 2]
        voxel = voxel_of_point[p]
        for c in range(rows.shape[1]):
            value = rows[0, c] * x + rows[1, c] * y + rows[2, c] * z + bias[c]
            passed = grad[voxel, c] if value > 0 else 0 * value
            part[0, c] += passed * x
            part[1, c] += passed * y
            part[2, c] += passed * z
            part[3, c] += passed
        if (p + 1) % at_once == 0 or p + 1 == len(points):
            for row in range(4):
                for c in range(rows.shape[1]):
                    made[row, c] += part[row, c]
                    part[row, c] = 0

"""Rays from voxel to voxel through densities that are constant inside each: exact depths, and their gradient.

The kernels behind `voxel_depth` on the CPU. Densities lie as logits in an array (B, X/f, Y/f, f, f, T, Z), the order in
which a 2D network with `f` x `f` voxel columns per map cell puts them out: no copy in another order is ever made.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from copilot4d.compiled import compiled

LN_2 = float(np.log(2.0))
NOTHING_LEFT = 14.0  # optical depth at which fewer than one in a million pass: the walk ends


@compiled
def softplus(x: float) -> float:
    """log(1 + e^x) without overflow."""
    return x + np.log1p(np.exp(-x)) if x > 0.0 else np.log1p(np.exp(x))


@compiled
def mean_passage(tau: float) -> float:
    """(1 - e^-tau) / tau: which part of a voxel of optical depth tau a ray passes on average."""
    if tau < 1e-3:
        return 1.0 - tau / 2.0 + tau * tau / 6.0
    return -np.expm1(-tau) / tau


@compiled
def mean_passage_slope(tau: float) -> float:
    """The derivative of `mean_passage`."""
    if tau < 1e-2:
        return -0.5 + tau / 3.0 - tau * tau / 8.0 + tau * tau * tau / 30.0
    return (np.exp(-tau) * (1.0 + tau) - 1.0) / (tau * tau)


@compiled
def _enter(origin: Any, direction: Any, near: float, minimum: Any, size: Any, shape: Any, walk: Any) -> None:
    """Set (3, 3) `walk`: the first cell, the depth of the next crossing and the stride of crossings, per axis."""
    for axis in range(3):
        walk[1, axis] = walk[2, axis] = np.inf
        position = (origin[axis] + near * direction[axis] - minimum[axis]) / size[axis]
        cell = min(max(np.floor(position), 0.0), shape[axis] - 1.0)
        walk[0, axis] = cell
        if direction[axis] != 0.0:
            edge = minimum[axis] + (cell + (1.0 if direction[axis] > 0 else 0.0)) * size[axis]
            walk[1, axis] = (edge - origin[axis]) / direction[axis]
            walk[2, axis] = size[axis] / abs(direction[axis])


@compiled
def _next_axis(walk: Any) -> int:
    axis = 0
    if walk[1, 1] < walk[1, axis]:
        axis = 1
    if walk[1, 2] < walk[1, axis]:
        axis = 2
    return axis


@compiled
def _advance(walk: Any, axis: int, direction: Any, shape: Any) -> bool:
    """To the next cell; False where it lies outside."""
    walk[0, axis] += 1.0 if direction[axis] > 0 else -1.0
    walk[1, axis] += walk[2, axis]
    return 0.0 <= walk[0, axis] < shape[axis]


@compiled
def render_forward(
    logits: Any, origins: Any, directions: Any, scenes: Any, steps: Any, entry: Any, leave: Any, minimum: Any,
    size: Any, shape: Any, expected: Any, median: Any, opacity: Any,
) -> None:  # fmt: skip
    """Write (R,) expected depth, median depth (infinite where less than half is stopped) and opacity."""
    fold, walk = logits.shape[3], np.empty((3, 3))
    for r in range(len(origins)):
        near, far = float(entry[r]), float(leave[r])
        expected[r], median[r], opacity[r] = near, np.inf, 0.0
        if not far > near:
            continue
        _enter(origins[r], directions[r], near, minimum, size, shape, walk)
        here, passed, depth, b, t = near, 0.0, near, scenes[r], steps[r]
        while here < far:
            axis = _next_axis(walk)
            end = max(here, min(walk[1, axis], far))
            x, y, z = int(walk[0, 0]), int(walk[0, 1]), int(walk[0, 2])
            length = end - here
            density = softplus(logits[b, x // fold, y // fold, x % fold, y % fold, t, z]) / size[0]
            tau = density * length
            depth += np.exp(-passed) * length * mean_passage(tau)
            if passed < LN_2 <= passed + tau:
                median[r] = here + (LN_2 - passed) / density
            passed += tau
            here = end
            if passed > NOTHING_LEFT or not _advance(walk, axis, directions[r], shape):
                break
        expected[r], opacity[r] = depth, -np.expm1(-passed)


@compiled
def render_backward(
    logits: Any, origins: Any, directions: Any, scenes: Any, steps: Any, entry: Any, leave: Any, minimum: Any,
    size: Any, shape: Any, expected: Any, incoming: Any, out: Any,
) -> None:  # fmt: skip
    """Add the gradient of sum_r incoming_r expected_r to `out`, an array like `logits`.

    With T_i what reaches voxel i, L_i its length and m the mean passage, D = near + sum_i T_i L_i m(tau_i), so that
    dD / dtau_i = T_i L_i m'(tau_i) - (what the ray goes on average behind voxel i).
    """
    fold, walk = logits.shape[3], np.empty((3, 3))
    for r in range(len(origins)):
        near, far = float(entry[r]), float(leave[r])
        if incoming[r] == 0.0 or not far > near:
            continue
        _enter(origins[r], directions[r], near, minimum, size, shape, walk)
        here, passed, behind, b, t = near, 0.0, float(expected[r]) - near, scenes[r], steps[r]
        while here < far:
            axis = _next_axis(walk)
            end = max(here, min(walk[1, axis], far))
            x, y, z = int(walk[0, 0]), int(walk[0, 1]), int(walk[0, 2])
            length = end - here
            logit = float(logits[b, x // fold, y // fold, x % fold, y % fold, t, z])
            tau = softplus(logit) * length / size[0]
            reached = np.exp(-passed)
            behind -= reached * length * mean_passage(tau)
            slope = reached * length * mean_passage_slope(tau) - behind
            rise = length / size[0] / (1.0 + np.exp(-logit))  # d tau / d logit
            out[b, x // fold, y // fold, x % fold, y % fold, t, z] += incoming[r] * slope * rise
            passed += tau
            here = end
            if passed > NOTHING_LEFT or not _advance(walk, axis, directions[r], shape):
                break

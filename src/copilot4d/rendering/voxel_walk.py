"""Rays from voxel to voxel through densities that are constant inside each: exact depths, and their gradient.

The kernels behind `voxel_depths` on the CPU. Densities lie as logits in an array (B, X/f, Y/f, f, f, T, Z), the order
in which a 2D network with `f` x `f` voxel columns per map cell puts them out: no copy in another order is ever made.
Finding the voxels comes first, reading them second: reads that do not wait for each other hide the memory's latency.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from copilot4d.compiled import compiled

NOTHING = 1e-6  # of a ray: where less is left, what is behind does not count; where less was stopped, nothing was


class Crossings(NamedTuple):
    """The voxels that R rays cross, ray after ray, near to far: ray r has firsts[r] ... firsts[r + 1] - 1."""

    firsts: NDArray[np.int64]  # (R + 1,)
    voxels: NDArray[np.int64]  # (S,) position in the flat logits
    lengths_m: NDArray[np.float32]  # (S,) of the way through each


def cross_voxels(
    origins: NDArray[Any], directions: NDArray[Any], scenes: NDArray[np.int64], steps: NDArray[np.int64],
    entry: NDArray[Any], leave: NDArray[Any], minimum: NDArray[Any], size: NDArray[Any], sizes: NDArray[np.int64],
) -> Crossings:  # fmt: skip
    """sizes: (7,) the shape of the logits."""
    shape = np.array([sizes[1] * sizes[3], sizes[2] * sizes[4], sizes[6]])
    arguments = (origins, directions, scenes, steps, entry, leave, minimum, size, shape, sizes)
    nothing, none = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
    firsts = np.zeros(len(origins) + 1, dtype=np.int64)
    _walk(*arguments, firsts, nothing, none, False)
    firsts = np.cumsum(firsts)
    voxels, lengths_m = np.empty(firsts[-1], dtype=np.int64), np.empty(firsts[-1], dtype=np.float32)
    _walk(*arguments, firsts, voxels, lengths_m, True)
    return Crossings(firsts, voxels, lengths_m)


def room_for(rays: int, sizes: NDArray[np.int64]) -> Crossings:
    """Space for what so many rays may cross at most: `cross_voxels_into` needs to walk only once."""
    most = rays * int(sizes[1] * sizes[3] + sizes[2] * sizes[4] + sizes[6])
    return Crossings(
        np.zeros(rays + 1, dtype=np.int64), np.empty(most, dtype=np.int64), np.empty(most, dtype=np.float32)
    )


def cross_voxels_into(
    room: Crossings, origins: NDArray[Any], directions: NDArray[Any], scenes: NDArray[np.int64],
    steps: NDArray[np.int64], entry: NDArray[Any], leave: NDArray[Any], minimum: NDArray[Any], size: NDArray[Any],
    sizes: NDArray[np.int64],
) -> None:  # fmt: skip
    """`cross_voxels` of no more rays than there is room for."""
    shape = np.array([sizes[1] * sizes[3], sizes[2] * sizes[4], sizes[6]])
    _walk(origins, directions, scenes, steps, entry, leave, minimum, size, shape, sizes, *room, True)


@compiled
def _walk(
    origins: Any, directions: Any, scenes: Any, steps: Any, entry: Any, leave: Any, minimum: Any, size: Any,
    shape: Any, sizes: Any, firsts: Any, voxels: Any, lengths_m: Any, write: bool,
) -> None:  # fmt: skip
    """Count each ray's crossings into firsts[r + 1], or write them from firsts[r] on, and into firsts[r + 1] where the
    next ray's begin (Amanatides and Woo).
    """
    fold, steps_of_time, levels = sizes[3], sizes[5], sizes[6]
    cell, ahead = np.empty(3, dtype=np.int64), np.empty(3, dtype=np.int64)
    crossing, stride = np.empty(3), np.empty(3)
    for r in range(len(origins)):
        here, far = float(entry[r]), float(leave[r])
        if not far > here:
            firsts[r + 1] = firsts[r] if write else 0
            continue
        for axis in range(3):
            direction = float(directions[r, axis])
            crossing[axis] = stride[axis] = np.inf
            position = (origins[r, axis] + here * direction - minimum[axis]) / size[axis]
            cell[axis] = min(max(int(np.floor(position)), 0), shape[axis] - 1)
            ahead[axis] = 1 if direction > 0 else -1
            if direction != 0.0:
                edge = minimum[axis] + (cell[axis] + (1 if direction > 0 else 0)) * size[axis]
                crossing[axis] = (edge - origins[r, axis]) / direction
                stride[axis] = size[axis] / abs(direction)
        number = firsts[r] if write else 0
        while here < far:
            axis = 0
            if crossing[1] < crossing[axis]:
                axis = 1
            if crossing[2] < crossing[axis]:
                axis = 2
            end = max(here, min(crossing[axis], far))
            if write:
                x, y = cell[0], cell[1]
                column = (scenes[r] * sizes[1] + x // fold) * sizes[2] + y // fold
                column = (column * fold + x % fold) * fold + y % fold
                voxels[number] = (column * steps_of_time + steps[r]) * levels + cell[2]
                lengths_m[number] = end - here
            number += 1
            here = end
            cell[axis] += ahead[axis]
            crossing[axis] += stride[axis]
            if cell[axis] < 0 or cell[axis] >= shape[axis]:
                break
        firsts[r + 1] = number


@compiled
def composite_crossings(
    logits: Any, firsts: Any, voxels: Any, lengths_m: Any, entry: Any, unit_m: float, expected: Any, median: Any,
    opacity: Any, slopes: Any,
) -> None:  # fmt: skip
    """Write (R,) expected depth, median depth of what is stopped (infinite where nothing is) and opacity.

    slopes: (S,) gets d expected / d logit of each crossing, or is (0,). With T_i what reaches voxel i, L_i
    its length and m(tau) = (1 - e^-tau) / tau the part of it that a ray passes on average, D = near + sum_i T_i L_i
    m(tau_i), so that dD / dtau_i = T_i L_i m'(tau_i) - (how far the ray goes on average behind voxel i).
    """
    wanted = len(slopes) > 0
    gone, start, density, arrived = np.empty(1), np.empty(1), np.empty(1), np.empty(1)
    for r in range(len(entry)):
        first, last = firsts[r], firsts[r + 1]
        if last - first > len(gone):
            room = 2 * (last - first)
            gone, start, density, arrived = np.empty(room), np.empty(room), np.empty(room), np.empty(room)
        near = float(entry[r])
        depth, here, reached, median[r] = 0.0, near, 1.0, np.inf
        end = first
        while end < last and reached > NOTHING:
            logit, length = float(logits[voxels[end]]), float(lengths_m[end])
            rise = np.exp(-abs(logit))
            softplus = np.log1p(rise) + max(logit, 0.0)
            tau = softplus * length / unit_m
            passed = np.exp(-tau)
            small = tau < 1e-2
            part = 1.0 - tau * (0.5 - tau * (1.0 / 6.0 - tau / 24.0)) if small else (1.0 - passed) / tau
            depth += reached * length * part
            i = end - first
            start[i], density[i], arrived[i] = here, softplus / unit_m, reached
            if wanted:
                bend = -0.5 + tau * (1.0 / 3.0 - tau * (0.125 - tau / 30.0)) if small else (passed - part) / tau
                sigmoid = 1.0 / (1.0 + rise) if logit > 0 else rise / (1.0 + rise)
                gone[i] = depth
                slopes[end] = length / unit_m * sigmoid
                lengths_m[end] = reached * length * bend  # this crossing's length is not needed any more
            reached *= passed
            here += length
            end += 1
        if 1.0 - reached > NOTHING:
            half = (1.0 + reached) / 2.0
            i = end - first - 1
            while arrived[i] <= half:
                i -= 1
            median[r] = start[i] + np.log(arrived[i] / half) / density[i]
        if wanted:
            for i in range(first, end):
                slopes[i] *= lengths_m[i] - (depth - gone[i - first])
            for i in range(end, last):
                slopes[i] = 0.0
        expected[r], opacity[r] = near + depth, 1.0 - reached


@compiled
def scatter_slopes(firsts: Any, voxels: Any, slopes: Any, incoming: Any, out: Any) -> None:
    """out[voxel] += incoming of its ray times the slope of the crossing."""
    for r in range(len(incoming)):
        weight = incoming[r]
        if weight != 0.0:
            for i in range(firsts[r], firsts[r + 1]):
                out[voxels[i]] += weight * slopes[i]

"""The compiled kernels of `traversal` and `one_pass`. They call each other, so they are in one file: numba compiles a
function again when its own file changes, and does not look at those of the functions that it calls.

Rays walk through a grid from cell to cell (Amanatides and Woo) and have samples in occupied cells only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from copilot4d.compiled import compiled, compiled_sums

SUM, NORMALISED, MEDIAN = 0, 1, 2  # the depths that a ray may be given
NEGLIGIBLE = 1e-7  # of a ray: where less is left, what is behind changes no digit of the answer
TINY, EPSILON = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).eps)


@compiled
def walk(
    origin: Any, direction: Any, scene: int, near: float, far: float, offset: float, mask: Any, minimum: Any,
    size: Any, shape: Any, step: float, thinning: int, out: Any, first: int,
) -> int:  # fmt: skip
    """Samples of one ray before thinning; writes the kept ones to `out` from `first` on where thinning > 0."""
    if not far > near:
        return 0
    x, x_ahead, x_crossing, x_stride = begin_axis(origin[0], direction[0], near, minimum[0], size[0], shape[0])
    y, y_ahead, y_crossing, y_stride = begin_axis(origin[1], direction[1], near, minimum[1], size[1], shape[1])
    z, z_ahead, z_crossing, z_stride = begin_axis(origin[2], direction[2], near, minimum[2], size[2], shape[2])
    here = float(near)
    j = int(np.ceil(near / step - offset))
    number = 0
    written = first
    while here < far:
        end = min(x_crossing, min(y_crossing, min(z_crossing, far)))
        if mask[scene, x, y, z]:
            j = max(j, int(np.ceil(here / step - offset)))
            depth = (j + offset) * step
            while depth < end:
                if thinning == 1 or (thinning > 0 and number % thinning == thinning // 2):
                    out[written] = depth
                    written += 1
                number += 1
                j += 1
                depth = (j + offset) * step
        here = max(here, end)
        if x_crossing <= y_crossing and x_crossing <= z_crossing:
            x += x_ahead
            x_crossing += x_stride
            if x < 0 or x >= shape[0]:
                break
        elif y_crossing <= z_crossing:
            y += y_ahead
            y_crossing += y_stride
            if y < 0 or y >= shape[1]:
                break
        else:
            z += z_ahead
            z_crossing += z_stride
            if z < 0 or z >= shape[2]:
                break
    return number


@compiled
def begin_axis(origin: float, direction: float, near: float, minimum: float, size: float, cells: int) -> Any:
    """Of one axis: the first cell, which way it goes on, the depth of the first crossing, and from one to the next."""
    cell = min(max(int(np.floor((origin + near * direction - minimum) / size)), 0), cells - 1)
    if direction == 0.0:
        return cell, 0, np.inf, np.inf
    edge = minimum + (cell + (1 if direction > 0 else 0)) * size
    return cell, (1 if direction > 0 else -1), (edge - origin) / direction, size / abs(direction)


@compiled
def count_samples(
    origins: Any, directions: Any, scenes: Any, entry: Any, leave: Any, offsets: Any, mask: Any, minimum: Any,
    size: Any, shape: Any, step: float,
) -> Any:  # fmt: skip
    """(R,) samples of each ray before thinning."""
    counts = np.zeros(len(origins), dtype=np.int64)
    nothing = np.empty(0, dtype=np.float32)
    for r in range(len(origins)):
        counts[r] = walk(
            origins[r], directions[r], scenes[r], entry[r], leave[r], offsets[r], mask, minimum, size, shape, step,
            0, nothing, 0,
        )  # fmt: skip
    return counts


@compiled
def fill_samples(
    origins: Any, directions: Any, scenes: Any, entry: Any, leave: Any, offsets: Any, mask: Any, minimum: Any,
    size: Any, shape: Any, step: float, thinning: Any, first: Any, out: Any,
) -> None:  # fmt: skip
    """Write the kept samples of each ray to `out`, from first[r] on."""
    for r in range(len(origins)):
        walk(
            origins[r], directions[r], scenes[r], entry[r], leave[r], offsets[r], mask, minimum, size, shape, step,
            thinning[r], out, first[r],
        )  # fmt: skip


@compiled
def render_part(
    order: Any, origins: Any, directions: Any, entry: Any, leave: Any, mask: Any, minimum: Any, size: Any,
    shape: Any, step: float, max_samples: int, values: Any, columns: Any, grid_minimum: Any, grid_size: Any,
    grid_shape: Any, weights: Any, bias: Any, lanes: Any, kind: int, depth_m: Any, opacity: Any, samples: Any,
) -> None:  # fmt: skip
    """Write depth, opacity and number of samples of the rays in `order`: near each other, they read the same cells."""
    start, slope = np.empty(3), np.empty(3)
    depths, parts = np.empty(64, dtype=np.float32), np.empty(64)
    nothing = np.empty(0, dtype=np.float32)
    for r in order:
        origin, direction, near, far = origins[r], directions[r], entry[r], leave[r]
        thinning, room = 1, int(max(0.0, (far - near) / step)) + 2
        if room > max_samples:
            whole = walk(origin, direction, 0, near, far, 0.5, mask, minimum, size, shape, step, 0, nothing, 0)
            thinning, room = max(1, -(-whole // max_samples)), whole
        if room > len(depths):
            depths, parts = np.empty(2 * room, dtype=np.float32), np.empty(2 * room)
        whole = walk(origin, direction, 0, near, far, 0.5, mask, minimum, size, shape, step, thinning, depths, 0)
        count = max(0, (whole - thinning // 2 + thinning - 1) // thinning)
        samples[r] = count
        for axis in range(3):  # where the ray is, in cells from the first centre, is start + depth * slope
            start[axis] = (origin[axis] - grid_minimum[axis]) / grid_size[axis] - 0.5
            slope[axis] = direction[axis] / grid_size[axis]
        asked = _composite(depths, count, start, slope, grid_shape, values, columns, weights, bias, lanes, parts)
        stopped, total = 0.0, 0.0
        for i in range(asked):
            stopped += parts[i]
            total += parts[i] * depths[i]
        opacity[r] = stopped
        if kind == MEDIAN:
            depth_m[r] = _median(parts, depths, asked, 0.5 * stopped, step)
        elif kind == NORMALISED:
            depth_m[r] = total / max(stopped, EPSILON)
        else:
            depth_m[r] = total


@compiled_sums
def _composite(
    depths: Any, count: int, start: Any, slope: Any, shape: Any, values: Any, columns: Any, weights: Any, bias: Any,
    lanes: Any, parts: Any,
) -> int:  # fmt: skip
    """Write which part of a ray each sample stops, near to far, until next to nothing is left; how many were asked.

    lanes: a tuple as long as there are hidden units. Its length is part of its type, so that the loop over them, in
    which all of the time goes, is compiled for that number.
    """
    x_cells, y_cells, levels, units = shape[0], shape[1], shape[2], np.uint64(len(lanes))
    x_most, y_most, z_most = max(x_cells - 2, 0), max(y_cells - 2, 0), max(levels - 2, 0)
    # In a grid of one cell along an axis both neighbours are that cell.
    x_step, y_step, z_step = y_cells * min(x_cells - 1, 1), min(y_cells - 1, 1), min(levels - 1, 1)
    x_start, y_start, z_start = start[0], start[1], start[2]
    x_slope, y_slope, z_slope = slope[0], slope[1], slope[2]
    above = units * np.uint64(z_step)
    one, zero = np.float32(1.0), np.float32(0.0)
    reached = 1.0
    for i in range(count):
        if reached < NEGLIGIBLE:
            return i
        depth = depths[i]
        px = min(max(x_start + depth * x_slope, 0.0), x_cells - 1.0)
        py = min(max(y_start + depth * y_slope, 0.0), y_cells - 1.0)
        pz = min(max(z_start + depth * z_slope, 0.0), levels - 1.0)
        x, y, z = min(int(px), x_most), min(int(py), y_most), min(int(pz), z_most)
        fx, fy, fz = np.float32(px - x), np.float32(py - y), np.float32(pz - z)
        column = x * y_cells + y
        a = np.uint64(columns[column] * levels + z) * units
        b = np.uint64(columns[column + y_step] * levels + z) * units
        c = np.uint64(columns[column + x_step] * levels + z) * units
        d = np.uint64(columns[column + x_step + y_step] * levels + z) * units
        wd = fx * fy
        wb, wc = fy - wd, fx - wd
        wa = one - fx - wb
        low, high = one - fz, fz
        a0, b0, c0, d0, a1, b1, c1, d1 = (
            low * wa, low * wb, low * wc, low * wd, high * wa, high * wb, high * wc, high * wd,
        )  # fmt: skip
        logit = bias
        for k in range(units):
            here = a0 * values[a + k] + b0 * values[b + k] + c0 * values[c + k] + d0 * values[d + k]
            a2, b2, c2, d2 = a + above, b + above, c + above, d + above
            next_level = a1 * values[a2 + k] + b1 * values[b2 + k] + c1 * values[c2 + k] + d1 * values[d2 + k]
            unit = here + next_level
            logit += weights[k] * (unit if unit > zero else zero)
        rise = np.exp(-abs(logit))
        inverse = one / (one + rise)
        alpha = inverse if logit > zero else rise * inverse
        parts[i] = reached * alpha
        reached *= rise * inverse if logit > zero else inverse
    return count


@compiled
def _median(parts: Any, depths: Any, count: int, half: float, step: float) -> float:
    """Where half of what is stopped is stopped, each sample's part spread over one step around it; 0 for none."""
    if not half > 0.0:
        return 0.0
    before, i = 0.0, 0
    while i < count - 1 and before + parts[i] < half:
        before += parts[i]
        i += 1
    share = min(max((half - before) / max(parts[i], TINY), 0.0), 1.0)
    return float(depths[i] + step * (share - 0.5))

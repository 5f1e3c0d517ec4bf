"""Rays through one step's densities in one pass: walk, composite, stop. The kernel behind `voxel_depths` where no
gradients are needed and many rays share a step.

The crossings of a ray live in a scratch of its own. Densities lie in a table (X, Y, Z) of that step alone, so that a
crossing costs one read and, in free space, no exponential function.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from copilot4d.compiled import compiled
from copilot4d.rendering.ray_kernels import begin_axis
from copilot4d.rendering.voxel_walk import NOTHING

THIN = 0.0625  # optical depth below which a polynomial is exact to 1e-11


@compiled
def stop_rays(
    origins: Any, directions: Any, entry: Any, leave: Any, densities: Any, minimum: Any, size: Any, shape: Any,
    expected: Any, median: Any, opacity: Any,
) -> None:  # fmt: skip
    """Write (R,) expected depth, median depth of what is stopped (infinite where nothing is) and opacity.

    densities: (X * Y * Z,) float32 per metre.
    """
    room = shape[0] + shape[1] + shape[2] + 3
    starts, arrived, thickness = np.empty(room), np.empty(room), np.empty(room)
    y_cells, levels = shape[1], shape[2]
    for r in range(len(entry)):
        near, far = float(entry[r]), float(leave[r])
        expected[r], median[r], opacity[r] = near, np.inf, 0.0
        if not far > near:
            continue
        x, x_ahead, x_crossing, x_stride = begin_axis(
            float(origins[r, 0]), float(directions[r, 0]), near, minimum[0], size[0], shape[0]
        )
        y, y_ahead, y_crossing, y_stride = begin_axis(
            float(origins[r, 1]), float(directions[r, 1]), near, minimum[1], size[1], shape[1]
        )
        z, z_ahead, z_crossing, z_stride = begin_axis(
            float(origins[r, 2]), float(directions[r, 2]), near, minimum[2], size[2], shape[2]
        )
        # How many cells are left to the edge of the grid, along each axis; and where the ray is in the table.
        x_left = shape[0] - 1 - x if x_ahead > 0 else x
        y_left = shape[1] - 1 - y if y_ahead > 0 else y
        z_left = shape[2] - 1 - z if z_ahead > 0 else z
        x_jump, y_jump, z_jump = x_ahead * y_cells * levels, y_ahead * levels, z_ahead
        place = (x * y_cells + y) * levels + z
        here, reached, depth, count = near, 1.0, 0.0, 0
        while here < far and reached > NOTHING:
            density = float(densities[place])
            end = min(x_crossing, min(y_crossing, z_crossing))
            is_x = x_crossing <= y_crossing and x_crossing <= z_crossing
            is_y = not is_x and y_crossing <= z_crossing
            length = max(0.0, min(end, far) - here)
            tau = density * length
            if tau < THIN:
                part = 1.0 - tau * (1 / 2 - tau * (1 / 6 - tau * (1 / 24 - tau * (1 / 120 - tau / 720))))
                passed = 1.0 - tau * part
            else:
                passed = np.exp(-tau)
                part = (1.0 - passed) / tau
            depth += reached * length * part
            starts[count], arrived[count], thickness[count] = here, reached, density
            count += 1
            reached *= passed
            here += length
            if is_x:
                if x_left == 0:
                    break
                x_left -= 1
                x_crossing += x_stride
                place += x_jump
            elif is_y:
                if y_left == 0:
                    break
                y_left -= 1
                y_crossing += y_stride
                place += y_jump
            else:
                if z_left == 0:
                    break
                z_left -= 1
                z_crossing += z_stride
                place += z_jump
        expected[r], opacity[r] = near + depth, 1.0 - reached
        if 1.0 - reached > NOTHING:
            half = (1.0 + reached) / 2.0
            i = count - 1
            while arrived[i] <= half:
                i -= 1
            median[r] = starts[i] + np.log(arrived[i] / half) / thickness[i]

"""The loops of preparing a sweep, compiled: in numpy every step goes through all points once more.

Each point takes the arithmetic of the numpy code in its order and precision, so that the results are equal bit by bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.compiled import compiled

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


@compiled
def augment_points(
    points: Float32, origins: Float32, ego_box: Float64, change: Float64, nearest: np.float32, moved: Float32,
    moved_origins: Float32,
) -> Any:  # fmt: skip
    """Fill `moved` with the points (N, 3) outside the closed `ego_box` (6,), in the frame of `change` (4, 4), without
    those at most `nearest` from their origin, and `moved_origins` likewise where it has rows. How many there are, or
    -1 where a number came out that is not finite.

    origins: none (0, 3) where all rays start at zero. Sums are of float64, distances of float32.
    """
    # Copies in locals: the compiler cannot know that writing `moved` leaves these arrays as they are.
    xx, xy, xz, x0 = change[0, 0], change[0, 1], change[0, 2], change[0, 3]
    yx, yy, yz, y0 = change[1, 0], change[1, 1], change[1, 2], change[1, 3]
    zx, zy, zz, z0 = change[2, 0], change[2, 1], change[2, 2], change[2, 3]
    low_x, low_y, low_z, high_x, high_y, high_z = (
        ego_box[0], ego_box[1], ego_box[2], ego_box[3], ego_box[4], ego_box[5],
    )  # fmt: skip
    from_zero, centred = len(origins) == 0, len(moved_origins) == 0
    ox = oy = oz = np.float32(0)
    count = 0
    for i in range(len(points)):
        x, y, z = points[i, 0], points[i, 1], points[i, 2]
        own = (x >= low_x) & (x <= high_x) & (y >= low_y) & (y <= high_y) & (z >= low_z) & (z <= high_z)
        mx = np.float32(xx * x + xy * y + xz * z + x0)
        my = np.float32(yx * x + yy * y + yz * z + y0)
        mz = np.float32(zx * x + zy * y + zz * z + z0)
        if not centred:
            if from_zero:
                ax = ay = az = np.float32(0)
            else:
                ax, ay, az = origins[i, 0], origins[i, 1], origins[i, 2]
            ox = np.float32(xx * ax + xy * ay + xz * az + x0)
            oy = np.float32(yx * ax + yy * ay + yz * az + y0)
            oz = np.float32(zx * ax + zy * ay + zz * az + z0)
            moved_origins[count, 0], moved_origins[count, 1], moved_origins[count, 2] = ox, oy, oz
        moved[count, 0], moved[count, 1], moved[count, 2] = mx, my, mz
        dx, dy, dz = mx - ox, my - oy, mz - oz
        distance = np.sqrt(dx * dx + dy * dy + dz * dz)
        if not distance < np.inf:  # rare: who calls has a slower way that says what is wrong
            return -1
        count += (not own) & (distance > nearest)
    return count


@compiled
def select_inside(points: Float32, box: Float32, kept: Float32) -> Any:
    """Fill `kept` with the points (N, 3) in the closed box (6,), in their order. How many there are."""
    low_x, low_y, low_z, high_x, high_y, high_z = box[0], box[1], box[2], box[3], box[4], box[5]
    count = 0
    for i in range(len(points)):
        x, y, z = points[i, 0], points[i, 1], points[i, 2]
        kept[count, 0], kept[count, 1], kept[count, 2] = x, y, z
        inside = (x >= low_x) & (x <= high_x) & (y >= low_y) & (y <= high_y) & (z >= low_z) & (z <= high_z)
        count += inside
    return count

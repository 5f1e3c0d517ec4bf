"""The inner loop of reading an Argoverse 2 sweep, compiled: in numpy it costs twice as much as reading the file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.compiled import compiled

FloatArray = NDArray[np.float32]
FLOAT_FROM_HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)  # by the half's 16 bits


@compiled
def place_points(
    float_from_half: NDArray[np.float32],
    half_x: NDArray[np.uint16],
    half_y: NDArray[np.uint16],
    half_z: NDArray[np.uint16],
    laser_number: NDArray[np.uint8],
    lasers_per_lidar: int,
    lidar_from_ego: NDArray[np.float32],
    lower_origin: NDArray[np.float32],
    points: NDArray[np.float32],
    origins: NDArray[np.float32],
) -> Any:
    """Fill `points` and `origins` (N, 3) from the ego frame's x, y, z as bits of float16. Whether all are finite."""
    # Copies in locals: the compiler cannot know that writing `points` leaves these arrays as they are.
    xx, xy, xz, x0 = lidar_from_ego[0, 0], lidar_from_ego[0, 1], lidar_from_ego[0, 2], lidar_from_ego[0, 3]
    yx, yy, yz, y0 = lidar_from_ego[1, 0], lidar_from_ego[1, 1], lidar_from_ego[1, 2], lidar_from_ego[1, 3]
    zx, zy, zz, z0 = lidar_from_ego[2, 0], lidar_from_ego[2, 1], lidar_from_ego[2, 2], lidar_from_ego[2, 3]
    lower_x, lower_y, lower_z = lower_origin[0], lower_origin[1], lower_origin[2]
    magnitude, one_exponent, overflow = np.uint16(0x7FFF), np.uint16(0x0400), np.uint16(0x8000)
    seen = np.uint16(0)
    for i in range(len(half_x)):
        bits_x, bits_y, bits_z = half_x[i], half_y[i], half_z[i]
        # One more in the exponent reaches the sign's bit only from an infinity or NaN.
        seen |= (bits_x & magnitude) + one_exponent
        seen |= (bits_y & magnitude) + one_exponent
        seen |= (bits_z & magnitude) + one_exponent
        x, y, z = float_from_half[bits_x], float_from_half[bits_y], float_from_half[bits_z]
        points[i, 0] = xx * x + xy * y + xz * z + x0
        points[i, 1] = yx * x + yy * y + yz * z + y0
        points[i, 2] = zx * x + zy * y + zz * z + z0
        is_lower = np.float32(laser_number[i] >= lasers_per_lidar)
        origins[i, 0], origins[i, 1], origins[i, 2] = is_lower * lower_x, is_lower * lower_y, is_lower * lower_z
    return seen < overflow


def place_points_plain(
    halves: NDArray[np.float16], laser_number: NDArray[np.uint8], lasers_per_lidar: int, lidar_from_ego: FloatArray,
    lower_origin: FloatArray,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """What `place_points` fills in for (N, 3) points of the ego frame: points and origins, (N, 3) each."""
    points = halves.astype(np.float32) @ lidar_from_ego[:3, :3].T + lidar_from_ego[:3, 3]
    return points, np.where((laser_number >= lasers_per_lidar)[:, None], lower_origin, np.float32(0))

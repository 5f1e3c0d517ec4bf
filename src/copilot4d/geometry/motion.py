"""The ego's motion where none was given."""

from __future__ import annotations

import numpy as np

from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray


def continue_motion(world_from_lidar: FloatArray, count: int) -> FloatArray:
    """(N, 4, 4) evenly spaced poses, oldest first -> the next `count` poses, (count, 4, 4).

    The last step is repeated in the ego's own frame: constant speed and constant rate of turn, so that a bend goes on
    as a bend. A single pose stays where it is.
    """
    poses = np.asarray(world_from_lidar, dtype=np.float64)
    step = se3.relative_motion(poses[-2], poses[-1]) if len(poses) > 1 else se3.identity()
    future, pose = [], poses[-1]
    for _ in range(count):
        pose = se3.nearest_rigid(se3.compose(pose, step))
        future.append(pose)
    return np.stack(future) if future else np.zeros((0, 4, 4))

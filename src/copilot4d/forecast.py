"""From a name to something that forecasts, and the ego's motion where nobody gave it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from copilot4d.baselines import BASELINES
from copilot4d.errors import UsageError
from copilot4d.forecaster import Forecaster
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray


def load_forecaster(name_or_folder: str | Path) -> Forecaster:
    """A forecaster by a baseline's name.

    A baseline's name comes before a folder of the same name: write "./copy_last" to mean the folder.
    """
    name = str(name_or_folder)
    if name in BASELINES:
        return BASELINES[name]()
    known = ", ".join(BASELINES)
    if Path(name_or_folder).is_dir():
        raise UsageError(f"{name} is a folder, but holds no model in a format that is known here; known names: {known}")
    raise UsageError(f"there is no model {name!r}, and no folder of that name; known names: {known}")


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

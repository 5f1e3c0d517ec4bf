"""From a name to something that forecasts, and the ego's motion where nobody gave it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from copilot4d.baselines import BASELINES
from copilot4d.errors import UsageError
from copilot4d.forecaster import Forecaster
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray

SHIPPED_MODELS = ("mini",)
SHIPPED_BASELINES = ("occupancy_4d", "occupancy_4d_median")  # the same weights: expected depths, or medians


def load_forecaster(
    name_or_folder: str | Path, *, tokenizer: str | Path | None = None, device: str = "cpu", copy_path: bool = True
) -> Forecaster:
    """A forecaster by name or folder.

    "mini": the weights that come with the package. A baseline's name; "occupancy_4d" and "occupancy_4d_median" have
    weights there, too. A folder of `copilot4d export`. A run or checkpoint of `copilot4d train world-model`, whose
    tokenizer is found where the run says, or given by `tokenizer`; or of `copilot4d train occupancy-4d`. A name comes
    before a folder of that name: write "./mini" to mean the folder.

    copy_path: False leaves a model's copy gate out, and does not even read it.
    """
    name, folder = str(name_or_folder), Path(name_or_folder)
    if name in BASELINES:
        return BASELINES[name]()
    from copilot4d import model_folder  # only here: baselines need no torch

    if name in SHIPPED_MODELS:
        return model_folder.load_model_folder(model_folder.shipped_model(name), copy_path=copy_path).to(device)
    if name in SHIPPED_BASELINES:
        return _load_shipped_baseline(name, device)
    if (folder / model_folder.DESCRIPTION).is_file():
        return model_folder.load_model_folder(folder, copy_path=copy_path).to(device)
    if (folder / "config.json").is_file():
        return _load_shared(folder, device)
    if (folder / "checkpoints").is_dir() or (folder / "manifest.json").is_file():
        return _load_run(folder, tokenizer, device, copy_path)
    known = ", ".join([*SHIPPED_MODELS, *BASELINES, *SHIPPED_BASELINES])
    if folder.is_dir():
        raise UsageError(
            f"{name} is a folder, but holds no model ({model_folder.DESCRIPTION}) and no run (checkpoints/); "
            f"known names: {known}"
        )
    raise UsageError(f"there is no model {name!r}, and no folder of that name; known names: {known}")


def _load_run(folder: Path, tokenizer: str | Path | None, device: str, copy_path: bool) -> Forecaster:
    """By the task that the run's checkpoints name."""
    from copilot4d.model_folder import load_run
    from copilot4d.training.load_checkpoint import best_checkpoint

    if best_checkpoint(folder).content.get("task") == "occupancy_4d":
        return _load_occupancy_4d(folder, device)
    return load_run(folder, tokenizer=tokenizer, copy_path=copy_path).to(device)


def _load_shared(folder: Path, device: str) -> Forecaster:
    """A pretrained folder: 4D-Occ forecasts alone, the parts of a model do not."""
    from copilot4d.training.pretrained import stated_config

    kind = stated_config(folder).get("kind")
    if kind in ("tokenizer", "world_model", "copy_gate"):
        raise UsageError(f"{folder} holds a {kind} alone, which forecasts nothing: pass the model folder around it")
    return _load_occupancy_4d(folder, device)


def _load_shipped_baseline(name: str, device: str) -> Forecaster:
    from copilot4d.model_folder import SHIPPED_OCCUPANCY_4D, shipped_folder
    from copilot4d.training.load_occupancy_4d import load_occupancy_4d

    folder = shipped_folder(SHIPPED_OCCUPANCY_4D)
    return load_occupancy_4d(folder, depth="median" if name.endswith("_median") else None).to(device)


def _load_occupancy_4d(folder: Path, device: str) -> Forecaster:
    from copilot4d.training.load_occupancy_4d import load_occupancy_4d

    return load_occupancy_4d(folder).to(device)


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

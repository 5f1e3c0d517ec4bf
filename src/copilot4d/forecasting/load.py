"""From a name to something that forecasts."""

from __future__ import annotations

from pathlib import Path

from copilot4d.baselines import BASELINES
from copilot4d.errors import UsageError, did_you_mean
from copilot4d.forecaster import Forecaster
from copilot4d.forecasting.hub import fetch, is_hub_name, parse_hub_name

SHIPPED_MODELS = ("mini",)
# The same weights of our variant of 4D-Occ: expected depths, or medians; its first name and its present one.
SHIPPED_BASELINES = ("occupancy_4d", "occupancy_4d_median", "4d_occ_ours", "4d_occ_ours_median")
TRAINED_BASELINES = ("4d_occ", "st3dcnn", "spfnet", "s2net")  # networks whose weights do not come with the package


def load_forecaster(
    name_or_folder: str | Path,
    *,
    tokenizer: str | Path | None = None,
    device: str = "cpu",
    depth_selection: bool = True,
) -> Forecaster:
    """A forecaster by name or folder.

    "mini": the weights that come with the package. A baseline's name; "4d_occ_ours" and "4d_occ_ours_median" (also
    called "occupancy_4d" and "occupancy_4d_median") have weights there, too. A folder of `copilot4d export`. A run or
    checkpoint of `copilot4d train world-model`, whose tokenizer is found where the run says, or given by `tokenizer`;
    or of `copilot4d train baseline`. A name comes before a folder of that name: write "./mini" to mean the folder.
    "hf:user/name" is a model of the Hugging Face hub.

    depth_selection: False leaves a model's depth selector out, and does not even read it.
    """
    name, folder = str(name_or_folder), Path(name_or_folder)
    if name in BASELINES:
        return BASELINES[name]()
    check_model_name(name)
    if is_hub_name(name):
        return load_forecaster(fetch(name).folder, device=device, depth_selection=depth_selection)
    from copilot4d.checkpoints import model_folder  # only here: baselines need no torch
    from copilot4d.forecasting.load_model import load_model_folder

    if name in SHIPPED_MODELS:
        return load_model_folder(model_folder.shipped_model(name), depth_selection=depth_selection).to(device)
    if name in SHIPPED_BASELINES:
        return _load_shipped_baseline(name, device)
    if (folder / model_folder.DESCRIPTION).is_file():
        return load_model_folder(folder, depth_selection=depth_selection).to(device)
    if (folder / "config.json").is_file():
        return _load_shared(folder, device)
    if (folder / "checkpoints").is_dir() or (folder / "manifest.json").is_file():
        return _load_run(folder, tokenizer, device, depth_selection)
    raise UsageError(
        f"{name} is a folder, but holds no model ({model_folder.DESCRIPTION}) and no run (checkpoints/); "
        f"known names: {_known()}"
    )


def check_model_name(name: str) -> None:
    """UsageError where it is neither a known name nor a folder. Needs no torch."""
    if is_hub_name(name):
        parse_hub_name(name)
        return
    if name in TRAINED_BASELINES and not Path(name).is_dir():
        raise UsageError(
            f"the weights of {name} do not come with the package: train it (copilot4d train baseline {name}) and name "
            "the folder of its run"
        )
    names = [*SHIPPED_MODELS, *BASELINES, *SHIPPED_BASELINES]
    if name not in names and not Path(name).is_dir():
        near = did_you_mean(name, names)
        raise UsageError(f"there is no model {name!r}, and no folder of that name{near}; known names: {_known()}")


def _known() -> str:
    return ", ".join([*SHIPPED_MODELS, *BASELINES, *SHIPPED_BASELINES])


def _load_run(folder: Path, tokenizer: str | Path | None, device: str, depth_selection: bool) -> Forecaster:
    """By the task that the run's checkpoints name."""
    from copilot4d.checkpoints.load_checkpoint import best_checkpoint
    from copilot4d.forecasting.load_model import load_run

    task = str(best_checkpoint(folder).content.get("task"))
    if task == "occupancy_4d" or task in TRAINED_BASELINES:
        return _load_baseline(folder, task, device)
    return load_run(folder, tokenizer=tokenizer, depth_selection=depth_selection).to(device)


def _load_shared(folder: Path, device: str) -> Forecaster:
    """A pretrained folder: 4D-Occ forecasts alone, the parts of a model do not."""
    from copilot4d.checkpoints.pretrained import stated_config

    kind = stated_config(folder).get("kind")
    if kind in ("tokenizer", "world_model", "depth_selector", "copy_gate"):
        raise UsageError(f"{folder} holds a {kind} alone, which forecasts nothing: pass the model folder around it")
    return _load_baseline(folder, str(kind), device)


def _load_shipped_baseline(name: str, device: str) -> Forecaster:
    from copilot4d.checkpoints.load_occupancy_4d import load_occupancy_4d
    from copilot4d.checkpoints.model_folder import shipped_occupancy_4d

    return load_occupancy_4d(shipped_occupancy_4d(), depth="median" if name.endswith("_median") else None).to(device)


def _load_baseline(folder: Path, kind: str, device: str) -> Forecaster:
    """A learned baseline by the task of its run, or the kind of its folder."""
    from copilot4d.baselines.range_view import RANGE_VIEW
    from copilot4d.checkpoints.load_occupancy_4d import PUBLISHED_KIND, load_occupancy_4d, load_published_occupancy_4d
    from copilot4d.checkpoints.load_range_view import load_range_view

    if kind in RANGE_VIEW:
        return load_range_view(folder, kind).to(device)
    if kind == PUBLISHED_KIND:
        return load_published_occupancy_4d(folder).to(device)
    return load_occupancy_4d(folder).to(device)

"""`load_forecaster`: from a name to something that forecasts."""

from __future__ import annotations

from pathlib import Path

from copilot4d.baselines import BASELINES
from copilot4d.errors import UsageError
from copilot4d.forecaster import Forecaster


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

"""Where what can be made again is kept: simulated drives, indexes of data sets."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """COPILOT4D_CACHE, else copilot4d in the user's cache folder."""
    if given := os.environ.get("COPILOT4D_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "copilot4d"

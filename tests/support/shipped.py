"""The weights that come with the package, for the tests that use them; they skip, saying so, where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from copilot4d.checkpoints.model_folder import shipped_model
from copilot4d.errors import UsageError


def shipped_mini() -> Path:
    """The folder of the shipped model, or a skip with the reason."""
    try:
        return shipped_model("mini")
    except UsageError as error:
        pytest.skip(str(error))

"""The options of `copilot4d compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Options:
    """Compare score files in one table; the best value of each column is bold.

    Scores of different protocols, settings or frames are not mixed, unless you ask for it. Example:

        copilot4d compare copy_last.json ray_tracing.json
    """

    scores: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Files that `copilot4d evaluate` wrote."""
    mix_protocols: bool = False
    """Show scores of different protocols in one table; each row then names its protocol."""
    markdown: bool = False
    """Print a Markdown table."""

"""The options of `copilot4d compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Options:
    """Put score files side by side in one table; the best of each column is bold.

    Scores of different protocols, settings or frames are not mixed unless you say so. Example:

        copilot4d compare copy_last.json ray_tracing.json
    """

    scores: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Files that `copilot4d evaluate` wrote."""
    mix_protocols: bool = False
    """Show them in one table although they were made by different rules; each row then says its own."""
    markdown: bool = False
    """Print a Markdown table."""

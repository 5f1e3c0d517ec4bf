"""The options of `copilot4d train world-model`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.checks import check_folders
from copilot4d.cli.options.training_options import RunOptions


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """Learn how tokens of sweeps go on, given the past and the ego's motion.

    Tokens come from `copilot4d tokenize`; several folders of one tokenizer may be mixed, and clips of several frame
    intervals train one model. The same command goes on where an interrupted run stopped. Example:

        copilot4d train world-model --preset mini --tokens tokens/kitti --tokenizer runs/tokenizer --run runs/world
    """

    tokens: tuple[Path, ...]
    """One or several folders of tokens, all of one tokenizer."""
    held_out_tokens: tuple[Path, ...] = ()
    """Folders of tokens on which checkpoints are scored."""
    held_out: tuple[str, ...] = ()
    """Or drives of --tokens for that; by default those that were tokenized as held out."""
    held_out_clips: int = 32
    """How many clips of those, evenly spread, each scoring looks at."""
    drives: tuple[str, ...] = ()
    """Train only on these drives."""
    intervals: tuple[int, ...] = ()
    """Train only on clips with these frame intervals, in frames of the log."""
    process: Literal["absorbing_uniform", "maskgit"] | None = None
    """maskgit: no noise, loss on masked tokens only (the paper's ablation)."""
    tokenizer: Path | None = None
    """The tokenizer's run: pictures then show decoded forecasts instead of token maps."""

    def check(self) -> None:
        """What can be told before torch is loaded."""
        check_folders(tokenizer=self.tokenizer)
        for folder in self.tokens:
            check_folders(tokens=folder)

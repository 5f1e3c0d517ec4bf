"""The options of `copilot4d train world-model`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.checks import check_folders
from copilot4d.cli.options.training_options import RunOptions


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """Train the world model: predict the tokens of future sweeps from the past and the ego's motion.

    Make the tokens with `copilot4d tokenize`. Several folders of the same tokenizer, and clips of several frame
    intervals, can train one model. The same command resumes an interrupted run. Example:

        copilot4d train world-model --preset mini --tokens tokens/kitti --tokenizer runs/tokenizer --run runs/world
    """

    tokens: tuple[Path, ...]
    """One or several folders of tokens, all from the same tokenizer."""
    held_out_tokens: tuple[Path, ...] = ()
    """Folders of held-out tokens, on which checkpoints are scored."""
    held_out: tuple[str, ...] = ()
    """Or held-out drives of --tokens. By default those that were tokenised with --held-out."""
    held_out_clips: int = 32
    """Held-out clips per scoring, evenly spread."""
    drives: tuple[str, ...] = ()
    """Train only on these drives."""
    intervals: tuple[int, ...] = ()
    """Train only on clips with these frame intervals, in frames of the log."""
    process: Literal["absorbing_uniform", "maskgit"] | None = None
    """maskgit: no noise, loss on masked tokens only (an ablation of the paper). By default the preset's."""
    tokenizer: Path | None = None
    """The tokenizer's run or folder. Pictures then show decoded forecasts instead of token maps."""

    def check(self) -> None:
        """Checks that need no torch."""
        check_folders(tokenizer=self.tokenizer)
        for folder in self.tokens:
            check_folders(tokens=folder)

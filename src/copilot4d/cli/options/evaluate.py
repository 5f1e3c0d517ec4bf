"""The options of `copilot4d evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.data_options import DataOptions
from copilot4d.cli.options.model_options import ModelOptions


@dataclass(frozen=True, kw_only=True)
class Options(DataOptions, ModelOptions):
    """Score a model or a baseline on a data set by the field's protocol.

    It forecasts every window of the setting and writes the scores to one JSON file, with the protocol's name and hash.
    The same command resumes an interrupted run. Example:

        copilot4d evaluate --model ray_tracing --data path/to/kitti --drives 08 --setting 1s --out scores.json
    """

    data: Path
    """The data set; its format is recognised. Also without --data, as the first word: copilot4d evaluate DATA ..."""
    setting: Literal["1s", "3s"]
    """How far to forecast: 1s or 3s ahead."""
    out: Path
    """The file for the scores (JSON)."""
    drives: tuple[str, ...] = ()
    """Only these drives, by name."""
    split: str | None = None
    """Only the drives of this split: train, val or test."""
    protocol: Literal["4docc", "vidar", "evalkit"] = "4docc"
    """The convention: 4docc (the paper's), vidar, or evalkit (the AV2 challenge)."""
    roi_half: float | None = None
    """Half the width of the scored region (ROI) in metres. By default 70 (vidar: 51.2). Use 32 for mini."""
    every: int = 1
    """Score only every N-th reference frame."""
    limit: int | None = None
    """Score only the first N reference frames."""
    thin: int = 1
    """Score only every N-th ray, for a quick test. The protocol's name then ends in thinN; such scores cannot be
    compared with others."""
    workers: int = 1
    """Number of processes. Each loads the model. The scores do not change."""
    parity: bool = False
    """Reproduce the special cases of the public 4D-Occ code (docs/scoring.md)."""
    on_bad_sweep: Literal["raise", "skip"] = "raise"
    """raise: stop at a sweep that cannot be read. skip: leave out its windows, and list them."""
    futures: int = 1
    """How many futures to sample. Scores use the first one; the best, the mean and the spread are printed too."""
    submission: Literal["evalai"] | None = None
    """Write a challenge submission instead of scores. evalai: the Argoverse 2 forecasting challenge."""
    queries: Path | None = None
    """With --submission: the challenge's file of rays."""

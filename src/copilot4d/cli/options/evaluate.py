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

    Every window of the setting goes through the model; what it found stands in one JSON file with the protocol's name
    and hash. An interrupted run goes on where it was when the same command is given again. Example:

        copilot4d evaluate --model ray_tracing --data path/to/kitti --drives 08 --setting 1s --out scores.json
    """

    data: Path
    """The data set; its format is recognised. Also as the first word: copilot4d evaluate DATA ..."""
    setting: Literal["1s", "3s"]
    """How far to forecast: the protocol's two settings."""
    out: Path
    """Where to write the scores (JSON)."""
    drives: tuple[str, ...] = ()
    """Only these drives, by name."""
    split: str | None = None
    """Only the drives of this split: train, val or test."""
    protocol: Literal["4docc", "vidar", "evalkit"] = "4docc"
    """The convention: 4docc (the paper's), vidar, or evalkit (the AV2 challenge)."""
    roi_half: float | None = None
    """Half the ROI's width in metres. By default the convention's own: 70, or 51.2 for vidar."""
    every: int = 1
    """Score only each n-th reference frame."""
    limit: int | None = None
    """Score only the first N reference frames."""
    thin: int = 1
    """Score only each n-th ray: a quick look. The protocol's name then ends in thinN, and no table mixes such scores
    with others."""
    workers: int = 1
    """Processes; each loads the model by itself. The numbers are the same, and in the same order."""
    parity: bool = False
    """Keep what the public 4D-Occ code does with odd input (docs/scoring.md)."""
    on_bad_sweep: Literal["raise", "skip"] = "raise"
    """Stop at a sweep that cannot be read, or leave out the windows that touch it and list them."""
    futures: int = 1
    """Futures to forecast. Scores are those of the first; the best, the mean and the spread are printed beside."""
    submission: Literal["evalai"] | None = None
    """Write the answers to a challenge's queries instead of scores: evalai, the Argoverse 2 forecasting challenge."""
    queries: Path | None = None
    """With --submission: the challenge's file of rays."""

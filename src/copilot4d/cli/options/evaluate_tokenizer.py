"""The options of `copilot4d evaluate-tokenizer`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from copilot4d.cli.options.checks import check_data, check_folders


@dataclass(frozen=True, kw_only=True)
class Options:
    """Score how well a tokenizer reconstructs sweeps, and draw some of them.

    Every sweep is encoded, decoded and rendered along its own rays. The result is scored against the sweep, inside the
    tokenizer's region. Example:

        copilot4d evaluate-tokenizer --model runs/tokenizer --data path/to/kitti --drives val_0005 --out scores
    """

    model: Path
    """A run of `copilot4d train tokenizer` (its best checkpoint is used), a checkpoint, or a shared folder."""
    data: Path
    """The data set; its format is recognised."""
    out: Path
    """The folder for scores.json and the pictures."""
    drives: tuple[str, ...] = ()
    """Only these drives."""
    split: str | None = None
    """Only the drives of this split."""
    every: int = 1
    """Only every N-th sweep of a drive."""
    limit: int | None = None
    """Score at most N sweeps."""
    count_all_codes: bool = False
    """Count the codes of all sweeps, including those that --every and --limit leave out."""
    other_scans: Path | None = None
    """The same drives recorded by another sensor (street-v1/val@varied), to measure the stability of tokens."""
    pairs: int = 8
    """Pairs of scans per simulated drive, for the stability of tokens. 0: do not measure it."""
    pictures: int = 4
    """How many sweeps to draw."""
    seed: int = 0
    """The random seed of the noise in spatial skipping."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""

    def check(self) -> None:
        """Checks that need no torch."""
        check_data([self.data])
        check_folders(model=self.model)

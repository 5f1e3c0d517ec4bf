"""The options of `copilot4d train tokenizer`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.checks import check_data
from copilot4d.cli.options.training_options import RunOptions
from copilot4d.tokens.augmentation import AugmentationConfig
from copilot4d.tokens.scans import ScanConfig


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """Learn to turn sweeps into tokens and back. No labels are needed, only sweeps.

    The run's folder holds checkpoints, a log, TensorBoard events and pictures; the same command goes on where an
    interrupted run stopped. Example:

        copilot4d train tokenizer --preset mini --data path/to/kitti --held-out train_0011 --run runs/tokenizer
    """

    data: tuple[Path, ...]
    """One or several data sets; the format of each is recognised."""
    mode: Literal["full", "no_skipping", "voxel_centres"] | None = None
    """The paper's ablations: no_skipping (no coarse branch), voxel_centres (no rendering)."""
    drives: tuple[str, ...] = ()
    """Train only on these drives."""
    split: str | None = None
    """Train only on the drives of this split."""
    held_out: tuple[str, ...] = ()
    """Drives never trained on, on which checkpoints are scored."""
    held_out_sweeps: int = 8
    """How many sweeps of those, evenly spread, each scoring looks at."""
    rays_per_sweep: int | None = None
    """Rays supervised at each visit of a sweep."""
    remake_codebook: bool = False
    """Make the codes of --init-from anew by K-means, as soon as enough encoder outputs are known."""
    decoder_only: bool = False
    """Train the decoder alone, so that tokens keep their meaning; use it with --init-from."""
    other_scans: tuple[Path, ...] = ()
    """Data sets with drives of the same names and times, seen by other sensors, such as street-v1/train@varied."""
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    """Mirrors and turns."""
    scan: ScanConfig = field(default_factory=ScanConfig)
    """Points that the encoder does not get, noise on their ranges, a sensor that sways."""

    def check(self) -> None:
        """What can be told before torch is loaded."""
        check_data((*self.data, *self.other_scans))

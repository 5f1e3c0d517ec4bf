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
    """Train the tokenizer: encode sweeps as tokens, and decode them. It needs sweeps only, no labels and no poses.

    The run's folder gets checkpoints, a log, TensorBoard events and pictures. The same command resumes an interrupted
    run. Example:

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
    """Held-out drives: never trained on; checkpoints are scored on them."""
    held_out_sweeps: int = 8
    """Held-out sweeps per scoring, evenly spread."""
    rays_per_sweep: int | None = None
    """Rays per sweep and update. By default the preset's."""
    remake_codebook: bool = False
    """With --init-from: re-initialise the codes by K-means, as soon as there are enough encoder outputs."""
    decoder_only: bool = False
    """With --init-from: train only the decoder, so that tokens keep their meaning."""
    other_scans: tuple[Path, ...] = ()
    """Data sets with drives of the same names and times, recorded by other sensors, such as street-v1/train@varied."""
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    """Mirroring and rotation."""
    scan: ScanConfig = field(default_factory=ScanConfig)
    """Changes of the encoder's scan: dropped points, noise on ranges, pitch and roll of the sensor."""

    def check(self) -> None:
        """Checks that need no torch."""
        check_data((*self.data, *self.other_scans))

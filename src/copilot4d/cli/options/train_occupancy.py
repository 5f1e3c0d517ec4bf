"""The options of `copilot4d train occupancy-4d`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.checks import check_data
from copilot4d.cli.options.training_options import RunOptions
from copilot4d.tokens.augmentation import AugmentationConfig


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """Train our variant of 4D-Occ: past sweeps -> occupancy of the future -> depths along rays, with an L1 loss.

    One network serves the 1s and the 3s setting. `copilot4d forecast` and `evaluate` take the run's folder as --model.
    The same command resumes an interrupted run. Example:

        copilot4d train occupancy-4d --data street-v1/train:300 --held-out-data street-v1/val --run runs/occupancy
    """

    data: tuple[Path, ...]
    """One or several data sets; the format of each is recognised."""
    drives: tuple[str, ...] = ()
    """Train only on these drives."""
    split: str | None = None
    """Train only on the drives of this split."""
    held_out: tuple[str, ...] = ()
    """Held-out drives of --data: never trained on; checkpoints are scored on them."""
    held_out_data: tuple[Path, ...] = ()
    """Held-out data sets, on which checkpoints are scored."""
    held_out_clips: int = 16
    """Held-out clips per scoring, evenly spread over the settings."""
    settings: tuple[Literal["1s", "3s"], ...] = ("1s", "3s")
    """The protocol's settings to train for."""
    rays_per_frame: int | None = None
    """Rays per future frame and update. By default the preset's."""
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    """Mirroring and rotation."""

    def check(self) -> None:
        """Checks that need no torch."""
        check_data((*self.data, *self.held_out_data))

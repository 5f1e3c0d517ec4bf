"""The options of `copilot4d tokenize`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.checks import check_data, check_folders
from copilot4d.tokens.augmentation import AugmentationConfig


@dataclass(frozen=True, kw_only=True)
class Options:
    """Encode drives with a tokenizer and store the tokens, on which a world model is trained.

    The same command resumes an interrupted run. Under torchrun every process takes its share of the drives. Example:

        copilot4d tokenize --tokenizer runs/tokenizer --data path/to/kitti --held-out train_0011 --out tokens/kitti
    """

    tokenizer: Path
    """A run of `copilot4d train tokenizer` (its best checkpoint is used), a checkpoint, or a shared folder."""
    data: tuple[Path, ...]
    """One or several data sets; the format of each is recognised."""
    out: Path
    """The folder for the tokens."""
    drives: tuple[str, ...] = ()
    """Only these drives."""
    split: str | None = None
    """Only the drives of this split."""
    held_out: tuple[str, ...] = ()
    """Held-out drives: also tokenised, but never trained on."""
    max_drives: int | None = None
    """At most N drives, not counting the held-out ones."""
    token_frame: Literal["own", "reference"] = "reference"
    """own: each sweep in its own frame, as in the paper. reference: all sweeps of a clip in the frame of its reference
    sweep, so that static objects keep their tokens. The world model's mini preset needs reference."""
    intervals: tuple[str, ...] = ("protocol",)
    """Time between two frames of a clip: in seconds (0.2s), in frames of the log (2), or protocol: the spacings of the
    1s and 3s settings at each drive's own rate."""
    reference_every: int = 5
    """Frames of the log between the references of two clips. Not used with --token-frame own."""
    past_frames: int = 5
    """Frames of a clip up to its reference."""
    future_frames: int = 5
    """Frames of a clip after it."""
    gathered_past: bool = False
    """The oldest frame of a clip holds all its past sweeps together, which shows everything observed so far. Needs
    --token-frame reference."""
    columns: bool = True
    """Also find the class of each column, without labels: empty, ground, structure or moving. Training can then give
    moving columns more weight, and scores are split by class."""
    expected: bool = False
    """Also store the tokens that each future frame would have if moving objects kept their velocity. These are found in
    the past sweeps, without labels. A world model with expected_input reads them. Needs --token-frame reference."""
    variants: int = 1
    """Versions of each drive: the first unchanged, the others mirrored and rotated."""
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    """How the other variants are rotated and mirrored."""
    seed: int = 0
    """The random seed of the augmentation."""
    batch: int = 8
    """Sweeps encoded at once."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""
    overwrite: bool = False
    """Replace tokens in the folder that come from another tokenizer, other settings or other drives."""

    def check(self) -> None:
        """Checks that need no torch."""
        check_data(self.data)
        check_folders(tokenizer=self.tokenizer)

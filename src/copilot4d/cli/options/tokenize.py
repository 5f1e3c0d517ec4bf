"""The options of `copilot4d tokenize`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.checks import check_data, check_folders
from copilot4d.tokens.augmentation import AugmentationConfig


@dataclass(frozen=True, kw_only=True)
class Options:
    """Put drives through a tokenizer once, before a world model trains on their tokens.

    An interrupted run goes on with the drives that are missing. Under torchrun every process takes its share. Example:

        copilot4d tokenize --tokenizer runs/tokenizer --data path/to/kitti --held-out train_0011 --out tokens/kitti
    """

    tokenizer: Path
    """A run of `copilot4d train tokenizer` (its best checkpoint is used), a checkpoint, or a shared folder."""
    data: tuple[Path, ...]
    """One or several data sets; the format of each is recognised."""
    out: Path
    """The cache's folder."""
    drives: tuple[str, ...] = ()
    """Only these drives."""
    split: str | None = None
    """Only the drives of this split."""
    held_out: tuple[str, ...] = ()
    """Drives that are tokenised too, but marked: never to be trained on."""
    max_drives: int | None = None
    """At most N drives, not counting the held-out ones."""
    token_frame: Literal["own", "reference"] = "reference"
    """own: each sweep in its own frame, as in the paper; reference: all sweeps of a clip in the frame of its reference
    sweep, so that static things keep their tokens. The mini preset of the world model wants reference."""
    intervals: tuple[str, ...] = ("protocol",)
    """Between two frames of a clip: seconds (0.2s), frames of the log (2), or protocol: those of the 1s and 3s
    settings at each drive's own rate."""
    reference_every: int = 5
    """Frames of the log from one clip's reference to the next one's; tokens in their own frames need none."""
    past_frames: int = 5
    """Frames of a clip up to its reference."""
    future_frames: int = 5
    """Frames of a clip after it."""
    gathered_past: bool = False
    """A clip's oldest frame becomes the tokens of all its past sweeps gathered, so that a world model need not
    remember what only one of them saw; needs --token-frame reference."""
    columns: bool = True
    """Also find, without labels, what each column holds (nothing, ground, structure, something moving). Training can
    then give what moves more weight, and scores are split by class."""
    expected: bool = False
    """Also make the tokens that each future frame would have if what moves went on with constant velocity, found in the
    past sweeps without labels: the input of a world model with expected_input. Needs --token-frame reference."""
    variants: int = 1
    """Versions of each drive: as it is, and mirrored and turned."""
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    """How far the other variants are turned, how often mirrored."""
    seed: int = 0
    """Of the augmentation."""
    batch: int = 8
    """Sweeps that are encoded at once."""
    device: str = "auto"
    """cpu, cuda, cuda:1."""
    overwrite: bool = False
    """Replace tokens of another tokenizer, of other settings or other drives that are in the folder."""

    def check(self) -> None:
        """What can be told before torch is loaded."""
        check_data(self.data)
        check_folders(tokenizer=self.tokenizer)

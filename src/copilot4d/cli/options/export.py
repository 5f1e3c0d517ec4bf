"""The options of `copilot4d export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.checks import check_folders, check_sampling
from copilot4d.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write a trained tokenizer and its world model into one model folder, to share it or to forecast with it. Example:

        copilot4d export --tokenizer runs/tokenizer --world-model runs/world --out models/mine --trained-on "my logs"

    Or the tokenizer alone, without --world-model; or the baseline 4D-Occ:

        copilot4d export --occupancy-4d runs/occupancy --out models/occupancy

    It takes the best checkpoints, averaged weights if there are any, and the depth selector of the world model's run,
    with its occupancy network. Data that only training needs is left out.
    """

    out: Path
    """The model folder to write."""
    tokenizer: Path | None = None
    """The tokenizer's run, checkpoint or folder."""
    world_model: Path | None = None
    """The world model's run, checkpoint or folder; it must have been trained on that tokenizer's tokens."""
    occupancy_4d: Path | None = None
    """Instead of these two: the run, checkpoint or folder of a 4D-Occ baseline."""
    name: str | None = None
    """The model's name in scores and pictures. By default the folder's name."""
    title: str | None = None
    """The heading of its model cards. By default the name."""
    trained_on: tuple[str, ...] = ()
    """The training data, in words, for the model cards."""
    command: tuple[str, ...] = ()
    """The commands that trained it, for the model cards."""
    hardware: str = ""
    """The hardware of the training, for the model cards. By default this machine."""
    license: str = "apache-2.0"
    """The licence of the weights."""
    precision: Literal["fp32", "fp16"] = "fp32"
    """Precision of the weights in the files. fp16 halves the size; a few tokens then differ."""
    guidance: float | None = None
    """Sampling default to store with the model: the strength of classifier-free guidance. Sampling options that are not
    given keep the value that an exported model folder has; otherwise they are guidance 1, 10 steps, paper, top-k 3."""
    sampling_steps: int | None = None
    """Sampling default to store with the model: sampling steps per frame."""
    schedule: Literal["paper", "few_first"] | None = None
    """Sampling default to store with the model: how many tokens each sampling step decodes."""
    top_k: int | None = None
    """Sampling default to store with the model: sample from the k most likely tokens (0: all)."""
    push: str | None = None
    """Also upload the folder to the Hugging Face hub: hf:user/name (pip install 'copilot4d[hub]')."""

    @property
    def stores_sampling(self) -> bool:
        """Whether a flag says how the model is sampled."""
        given = (self.guidance, self.sampling_steps, self.schedule, self.top_k)
        return any(value is not None for value in given)

    def check(self) -> None:
        """Checks that need no torch."""
        check_sampling(steps=self.sampling_steps, guidance=self.guidance, top_k=self.top_k)
        if self.stores_sampling and self.world_model is None:
            raise UsageError(
                "--guidance, --sampling-steps, --schedule and --top-k are stored with a whole model: add --tokenizer "
                "and --world-model, or leave them out"
            )
        check_folders(tokenizer=self.tokenizer, world_model=self.world_model, occupancy_4d=self.occupancy_4d)

"""The options of `copilot4d export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.checks import check_folders, check_sampling
from copilot4d.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Options:
    """Put a trained tokenizer and its world model into one folder that can be shared and forecast with. Example:

        copilot4d export --tokenizer runs/tokenizer --world-model runs/world --out models/mine --trained-on "my logs"

    Or the tokenizer alone, without --world-model; or the baseline 4D-Occ:

        copilot4d export --occupancy-4d runs/occupancy --out models/occupancy

    The best checkpoints are taken, with averaged weights where there are, and the depth selector that lies in the world
    model's run, with its occupancy network. What only training needs stays behind.
    """

    out: Path
    """The model folder to write."""
    tokenizer: Path | None = None
    """The tokenizer's run, checkpoint or folder."""
    world_model: Path | None = None
    """The world model's run, checkpoint or folder; it must have been trained on that tokenizer's tokens."""
    occupancy_4d: Path | None = None
    """Instead of these two: the run, checkpoint or folder of the baseline 4D-Occ."""
    name: str | None = None
    """What scores and pictures call the model; by default the folder's name."""
    title: str | None = None
    """The heading of its model cards; by default the name."""
    trained_on: tuple[str, ...] = ()
    """The data, in words, for the model cards."""
    command: tuple[str, ...] = ()
    """The commands that trained it, for the model cards."""
    hardware: str = ""
    """What it was trained on, for the model cards; by default this machine."""
    license: str = "apache-2.0"
    """Of the weights."""
    precision: Literal["fp32", "fp16"] = "fp32"
    """Of the weights in the files. fp16 halves them; some tokens then differ from those of the training."""
    guidance: float | None = None
    """Store with the model how it is sampled by default: the strength of classifier-free guidance. What no flag names
    is kept where a model folder is exported again, and else 1 for guidance, 10 steps, paper, and 3 for top-k."""
    sampling_steps: int | None = None
    """The same: steps of the sampler per frame."""
    schedule: Literal["paper", "few_first"] | None = None
    """The same: how many tokens each step decides."""
    top_k: int | None = None
    """The same: sample from the k most likely tokens (0: all)."""
    push: str | None = None
    """Also upload the folder to the Hugging Face hub: hf:user/name (pip install 'copilot4d[hub]')."""

    @property
    def stores_sampling(self) -> bool:
        """Whether a flag says how the model is sampled."""
        given = (self.guidance, self.sampling_steps, self.schedule, self.top_k)
        return any(value is not None for value in given)

    def check(self) -> None:
        """What can be told before torch is loaded."""
        check_sampling(steps=self.sampling_steps, guidance=self.guidance, top_k=self.top_k)
        if self.stores_sampling and self.world_model is None:
            raise UsageError(
                "--guidance, --sampling-steps, --schedule and --top-k are stored with a whole model: add --tokenizer "
                "and --world-model, or leave them out"
            )
        check_folders(tokenizer=self.tokenizer, world_model=self.world_model, occupancy_4d=self.occupancy_4d)

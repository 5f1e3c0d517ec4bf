"""The options of `copilot4d train depth-selector`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.checks import check_data, check_folders


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train which depth each ray of a model's forecasts takes: rendered, or measured by the past. Example:

        copilot4d train depth-selector --model runs/world --data street-v1/train:150 --drives train_000120 train_000121

    The model forecasts drives whose future is known; take some that the world model was not trained on. A selector that
    the model already has is fine-tuned, and replaced only where the new one is better on held-out sweeps. The
    selector is written into the run, from where `forecast`, `evaluate`, `view` and `export` use it; a shipped model
    (`--model mini`) is copied to ./mini_tuned first.
    """

    model: Path
    """The run of a world model, a model folder, or mini."""
    data: tuple[Path, ...]
    """One or several data sets; the format of each is recognised."""
    tokenizer: Path | None = None
    """The tokenizer's run or folder, for a run that does not name its own."""
    drives: tuple[str, ...] = ()
    """Train only on these drives."""
    split: str | None = None
    """Train only on the drives of this split."""
    settings: tuple[Literal["1s", "3s"], ...] = ("1s", "3s")
    """The protocol's settings to train for; they differ in their frame rates."""
    forecasts: tuple[int, ...] = (40,)
    """How many at most, spread over the drives: one number for all settings or one for each. Each tenth, or at least
    one, is kept for the score."""
    rays_per_frame: int = 6000
    """Rays of each forecast frame to train on."""
    sampling_steps: int | None = None
    """Of the forecasts. By default as stored with the model."""
    occupancy: str | None = None
    """An occupancy network whose depths can be chosen, too: a run of train occupancy-4d, its folder, or occupancy_4d
    for the one that comes with the package. By default the one that the model has, if any."""
    top_k: int | None = None
    """Sample from the k most likely tokens (0: all). By default as stored with the model."""
    updates: int = 4000
    """Updates of the selector."""
    seed: int = 0
    """Of forecasts, rays and updates."""
    out: Path | None = None
    """A new model folder: a copy of the model with the new selector. By default the selector goes into the run or
    folder of --model."""
    from_scratch: bool = False
    """Do not start from the selector that the model has."""
    device: str = "auto"
    """cpu, cuda, cuda:1: where the model forecasts."""

    def check(self) -> None:
        """What can be told before torch is loaded."""
        check_data(self.data)
        check_folders(tokenizer=self.tokenizer)

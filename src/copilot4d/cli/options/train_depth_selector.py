"""The options of `copilot4d train depth-selector`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot4d.cli.options.checks import check_data, check_folders


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train the network that chooses the depth of each ray: rendered from tokens, or measured by the past. Example:

        copilot4d train depth-selector --model runs/world --data street-v1/train:150 --drives train_000120 train_000121

    The model forecasts drives whose future is known. Use drives that the world model was not trained on. If the model
    already has a selector, it is fine-tuned, and replaced only if the new one is better on held-out sweeps. The
    selector is written into the run; `forecast`, `evaluate`, `view` and `export` use it there. A shipped model
    (`--model mini`) is first copied to ./mini_tuned.
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
    """The protocol's settings to train for."""
    forecasts: tuple[int, ...] = (40,)
    """At most N forecasts, spread over the drives: one number for all settings or one for each. One in ten, and at
    least one, is held out for the score."""
    rays_per_frame: int = 6000
    """Rays of each forecast frame to train on."""
    sampling_steps: int | None = None
    """Sampling steps per frame of the forecasts. By default as stored with the model."""
    occupancy: str | None = None
    """An occupancy network whose depths can also be chosen: a run of train occupancy-4d, its folder, or occupancy_4d
    for the one that comes with the package. By default the model's own, if it has one."""
    top_k: int | None = None
    """Sample from the k most likely tokens (0: all). By default as stored with the model."""
    updates: int = 4000
    """Updates of the selector."""
    seed: int = 0
    """The random seed of forecasts, rays and updates."""
    out: Path | None = None
    """A new model folder: a copy of the model with the new selector. By default the selector goes into the run or
    folder of --model."""
    from_scratch: bool = False
    """Do not start from the model's selector."""
    device: str = "auto"
    """Where the model forecasts: auto, cpu, cuda or cuda:1."""

    def check(self) -> None:
        """Checks that need no torch."""
        check_data(self.data)
        check_folders(tokenizer=self.tokenizer)

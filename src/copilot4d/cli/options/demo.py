"""The options of `copilot4d demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from copilot4d.cli.options.checks import check_sampling


@dataclass(frozen=True, kw_only=True)
class Options:
    """Forecast a street under three ego plans, score the forecasts, and write a page with 3D views.

    Example: copilot4d demo --out demo
    Example, on your own log: copilot4d demo --data path/to/log --drive 08 --frame 120 --out demo

    Without --data it uses a held-out simulated street and writes the drive to OUT/drive for the other verbs.
    """

    out: Path = Path("demo")
    """The folder to write into. The folder of an earlier demo is replaced."""
    model: str | None = None
    """A model folder or a baseline's name. By default mini; if its weights are not installed, the best baseline."""
    data: Path | None = None
    """Your own log, in any format that copilot4d reads."""
    drive: str | None = None
    """Which drive of --data; by default the first with a complete window."""
    frame: int | None = None
    """The newest past sweep. By default a moment where the ego's plan matters (simulated), or the middle of the drive
    (your log)."""
    street: int = 7
    """Which of the 20 simulated test streets."""
    seed: int = 0
    """The random seed: another seed gives another future. Baselines ignore it."""
    guidance: float | None = None
    """Strength of classifier-free guidance. By default as stored with the model. Baselines ignore it."""
    sampling_steps: int | None = None
    """Sampling steps per frame. By default as stored with the model. Baselines ignore it."""

    def check(self) -> None:
        """Checks that need no torch."""
        check_sampling(steps=self.sampling_steps, guidance=self.guidance, top_k=None)

"""The options of `copilot4d demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from copilot4d.cli.options.checks import check_sampling


@dataclass(frozen=True, kw_only=True)
class Options:
    """Forecast a street under three ego plans, score and draw the forecasts, and write one page to open.

    Example: copilot4d demo --out demo
    Example, on your own log: copilot4d demo --data path/to/log --drive 08 --frame 120 --out demo

    Without --data it takes a simulated street that no training has seen; its drive is kept in OUT/drive for the other
    verbs.
    """

    out: Path = Path("demo")
    """The folder to write into. A folder that an earlier demo made is made again."""
    model: str | None = None
    """What forecasts: a model's folder or a baseline's name. By default the shipped weights; where there are none, the
    best baseline, and the page says so."""
    data: Path | None = None
    """A log of your own, in any format that copilot4d opens."""
    drive: str | None = None
    """Which drive of --data; by default the first with a complete window."""
    frame: int | None = None
    """The moment: the newest sweep that the forecast may see. By default one where the ego's plan matters (simulated),
    or the middle of the drive (your log)."""
    street: int = 7
    """Which of the 20 simulated test streets."""
    seed: int = 0
    """Of the model's random draws: another seed is another future. Baselines draw none."""
    guidance: float | None = None
    """Strength of classifier-free guidance. By default as stored with the model; baselines ignore it."""
    sampling_steps: int | None = None
    """Steps of the sampler per frame. By default as stored with the model; baselines ignore it."""

    def check(self) -> None:
        """What can be told before torch is loaded."""
        check_sampling(steps=self.sampling_steps, guidance=self.guidance, top_k=None)

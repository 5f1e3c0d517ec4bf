"""How well a tokenizer reconstructs sweeps that it may never have seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from copilot4d.evaluation.frame_score import FrameScore, score_frame
from copilot4d.geometry import Sweep
from copilot4d.pictures import Cell, Legend, bev_image, panel
from copilot4d.tokenizer.reconstruction import Reconstruction, reconstruct
from copilot4d.tokenizer.tokenizer import Tokenizer

SHOWN = ("chamfer_roi", "roi_l1_median", "roi_l1_mean", "roi_absrel_median", "roi_absrel_mean")


@dataclass(kw_only=True)
class ReconstructionTally:
    """Scores of many sweeps: means over sweeps, and what the codebook was used for over all of them."""

    codes: int
    scores: list[FrameScore] = field(default_factory=list)
    mask_recall: list[float] = field(default_factory=list)
    mask_precision: list[float] = field(default_factory=list)
    samples_per_ray: list[float] = field(default_factory=list)
    counts: NDArray[np.int64] = field(init=False)  # how often each code is a token, over all sweeps
    counted: int = 0  # sweeps whose tokens are in the counts
    not_scored: int = 0  # sweeps with nothing inside the region, in truth or in the reconstruction

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.codes, dtype=np.int64)

    def add(self, tokenizer: Tokenizer, made: Reconstruction) -> FrameScore | None:
        """Score one sweep against itself inside the tokenizer's region."""
        self.count(made.tokens)
        self.mask_recall.append(made.mask_recall)
        self.mask_precision.append(made.mask_precision)
        self.samples_per_ray.append(made.samples_per_ray)
        if len(made.truth) == 0 or len(made.points) == 0:
            self.not_scored += 1
            return None
        score = score_frame(
            made.points.astype(np.float64),
            made.truth.points.astype(np.float64),
            np.zeros(3) if made.truth.origins is None else made.truth.origins.astype(np.float64),
            tokenizer.config.grid.box,
            pairing="ray" if made.on_rays else "nearest",
        )
        if not np.isfinite(score.chamfer_roi):
            self.not_scored += 1
            return None
        self.scores.append(score)
        return score

    def count(self, tokens: NDArray[np.int64]) -> None:
        """Count the codes of one more sweep, (H, W) tokens, scored or not."""
        self.counts += np.bincount(tokens.flatten(), minlength=self.codes)
        self.counted += 1

    def summary(self) -> dict[str, float]:
        """Means by name. `codebook_used` and `perplexity` are over the tokens of all counted sweeps together."""
        nothing = float("nan")
        means = {n: float(np.mean([getattr(s, n) for s in self.scores])) if self.scores else nothing for n in SHOWN}
        share = self.counts / max(1, self.counts.sum())
        used = share[share > 0]
        found = {
            **means,
            "codebook_used": float((self.counts > 0).mean()),
            "perplexity": float(np.exp(-(used * np.log(used)).sum())) if len(used) else nothing,
        }
        for name in ("mask_recall", "mask_precision", "samples_per_ray"):
            values = [v for v in getattr(self, name) if np.isfinite(v)]
            if values:  # a mode without coarse branch has no mask, one without feature grid no samples
                found[name] = float(np.mean(values))
        return found


def score_reconstructions(tokenizer: Tokenizer, sweeps: Iterable[Sweep], *, seed: int | None = 0) -> dict[str, float]:
    """The summary of some sweeps."""
    tally = ReconstructionTally(codes=tokenizer.config.vocabulary)
    for sweep in sweeps:
        tally.add(tokenizer, reconstruct(tokenizer, sweep, seed=seed))
    return tally.summary()


def reconstruction_picture(tokenizer: Tokenizer, made: Reconstruction, *, title: str = "") -> NDArray[np.uint8]:
    """Truth beside reconstruction, from above."""
    box = tokenizer.config.grid.box
    half = float(np.abs(box[[0, 1, 3, 4]]).max())
    inside = ((made.points >= box[:3]) & (made.points <= box[3:])).all(axis=-1)
    heights = (max(float(box[2]), -2.5), min(float(box[5]), 2.5))
    cells = [
        Cell(bev_image(points, half=half, z_range=heights), words, f"{len(points)} points")
        for points, words in ((made.truth.points, "truth"), (made.points[inside], "reconstruction"))
    ]
    return np.asarray(panel([cells], heading=title, legend=Legend.of_height(heights)))

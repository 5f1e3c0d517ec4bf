"""Several futures of one past: how good the best of them is, and how far they are apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from copilot4d.evaluation.chamfer import chamfer_full_and_roi
from copilot4d.evaluation.frame_score import METRICS, FrameScore
from copilot4d.geometry.se3 import FloatArray


@dataclass(frozen=True, kw_only=True)
class SeveralFrame:
    """One future frame of S futures."""

    best: FrameScore  # of the future that is best over the whole window
    mean: FrameScore  # over the futures
    spread: float  # Chamfer distance inside the ROI between two futures, m^2


def several_frames(
    scores: Sequence[Sequence[FrameScore | None]], clouds: Sequence[Sequence[FloatArray]], roi: FloatArray
) -> list[SeveralFrame]:
    """scores[s][i]: future s, frame i (None: not scored); clouds[s][i]: its points in the frame of the ROI.

    The best future has the lowest mean ROI Chamfer over the window's frames: one story, not the best of each frame. The
    spread is the mean over a ring of pairs (future 1 and 2, 2 and 3, ..., the last and the first).
    """
    known = [i for i in range(len(scores[0])) if all(future[i] is not None for future in scores)]
    if not known:
        return []
    chosen = [[score for i in known if (score := future[i]) is not None] for future in scores]
    best = min(chosen, key=lambda future: float(np.mean([score.chamfer_roi for score in future])))
    frames = []
    for k, i in enumerate(known):
        ring = zip(clouds, [*clouds[1:], clouds[0]], strict=True)
        spread = [chamfer_full_and_roi(a[i], b[i], roi).roi for a, b in ring] if len(clouds) > 1 else [0.0]
        mean = {name: float(np.mean([getattr(future[k], name) for future in chosen])) for name in METRICS}
        frames.append(SeveralFrame(best=best[k], mean=FrameScore(**mean), spread=float(np.nanmean(spread))))
    return frames


def summarise_several(frames: Sequence[SeveralFrame], futures: int) -> dict[str, Any]:
    """Means over all frames, as the score file holds them."""
    if not frames:
        return {}

    def means(which: str) -> dict[str, float]:
        return {name: float(np.mean([getattr(getattr(f, which), name) for f in frames])) for name in METRICS}

    return {
        "futures": futures,
        "frames": len(frames),
        "best": means("best"),
        "mean": means("mean"),
        "spread_chamfer_roi": float(np.mean([f.spread for f in frames])),
    }


def several_to_plain(frame: SeveralFrame) -> list[Any]:
    """For the file of an unfinished run."""
    return [list(frame.best.as_dict().values()), list(frame.mean.as_dict().values()), frame.spread]


def several_from_plain(values: Sequence[Any]) -> SeveralFrame:
    """The reverse."""
    best, mean, spread = values

    def score(numbers: Sequence[float]) -> FrameScore:
        named: Mapping[str, float] = dict(zip(METRICS, numbers, strict=True))
        return FrameScore(**named)

    return SeveralFrame(best=score(best), mean=score(mean), spread=float(spread))

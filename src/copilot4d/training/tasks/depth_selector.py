"""Learning a `DepthSelector`: rays whose truth is known, what each candidate would have cost, and the least of it.

A candidate costs what the scores count: its point's distance to the true cloud, and its depth's error, both squared and
capped (beyond that, wrong is wrong). The selector learns to lose least on average: no label says which candidate is
right, for often several are.

    E rays of a frame to learn from, R all of its rays, C candidates, F features
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from pykdtree.kdtree import KDTree
from torch import Tensor

from copilot4d.depth_selection.candidates import Candidates
from copilot4d.depth_selection.neighbours import CELLS, RangeView
from copilot4d.depth_selection.selector import KNOWN, DepthSelector, DepthSelectorConfig
from copilot4d.errors import UsageError
from copilot4d.geometry import Rays
from copilot4d.geometry.se3 import FloatArray

FAR_FROM_CLOUD_M, FAR_FROM_TRUTH_M = 8.0, 3.0  # where costs are capped
MOST_WEIGHT = 20.0  # of a ray in a frame with few points in the region
EVERYWHERE = 0.1  # share of a cost that counts wherever the ray ends
LEARNING_RATE = 2e-3
FRAMES, RAYS = 4, 2000  # of an update, and rays of each of its frames
VIEW_CHANNELS = 32  # of a selector that is learned, unless told otherwise
UNSURE_M2 = 3.0  # what a nat of doubt is worth at first, and nothing at the end: no candidate is given up too early


@dataclass(frozen=True)
class Examples:
    """Rays of one frame to learn from: features (E, F), what each candidate would cost (E, C), where they lie (E,) in
    the view (F + 1, elevations, azimuths) of all the frame's rays.
    """

    features: NDArray[np.float32]
    costs: NDArray[np.float32]
    cells: NDArray[np.int64]
    view: NDArray[np.float16]  # half the memory

    def __len__(self) -> int:
        return len(self.features)

    def thinned(self, count: int, rng: np.random.Generator) -> Examples:
        """At most `count` of them, drawn. The view stays that of all rays."""
        if len(self) <= count:
            return self
        return self._of(rng.choice(len(self), count, replace=False))

    def drawn(self, count: int, rng: np.random.Generator) -> Examples:
        """`count` of them, perhaps some twice."""
        return self._of(rng.integers(len(self), size=count))

    def _of(self, kept: NDArray[np.int64]) -> Examples:
        return replace(self, features=self.features[kept], costs=self.costs[kept], cells=self.cells[kept])


def examples(
    found: Candidates, rays: Rays, true_points: FloatArray, is_scored: NDArray[np.bool_],
    in_region: NDArray[np.bool_], view: RangeView | None = None,
) -> Examples:  # fmt: skip
    """One frame's rays, with the truth (R, 3) on them. view: of other rays than these, where those are looked with.

    Costs count within the region that scores look at, as a share of the frame's points there: is_scored (R,) says which
    true points lie in it, in_region (R, C) which candidates; a candidate in it is compared with what lies in it.
    Elsewhere they count a little.
    """
    true_m = np.linalg.norm(true_points - rays.origins, axis=1)
    everywhere = _tree(true_points)
    scored = _tree(true_points[is_scored]) if is_scored.any() else everywhere
    points = [rays.points_at(depths).astype(np.float32) for depths in found.depths_m.T]
    missed_m2, missed_scored_m2 = (
        np.stack([np.minimum(tree.query(at)[0], FAR_FROM_CLOUD_M) ** 2 for at in points], axis=1)
        for tree in (everywhere, scored)
    )
    wrong_m2 = np.minimum(np.abs(found.depths_m - true_m[:, None]), FAR_FROM_TRUTH_M) ** 2
    weight = min(len(rays) / max(1, int(is_scored.sum())), MOST_WEIGHT)
    in_scores = in_region * missed_scored_m2 + is_scored[:, None] * wrong_m2
    costs = weight * in_scores + EVERYWHERE * (missed_m2 + wrong_m2)
    view = view or RangeView.of(found.features, found.cells)
    return Examples(found.features, costs.astype(np.float32), found.cells, view.values.astype(np.float16))


def _tree(points: FloatArray) -> KDTree:
    return KDTree(np.ascontiguousarray(points, dtype=np.float32))


def fit(
    data: Sequence[Examples], config: DepthSelectorConfig | None = None, *, steps: int = 4000, seed: int = 0,
    start: DepthSelector | None = None,
) -> DepthSelector:  # fmt: skip
    """The selector that loses least on the rays of these frames; learned anew, or fine-tuned from `start`."""
    frames = [frame for frame in data if len(frame)]
    if not frames:
        raise UsageError("there are no rays to learn a depth selector from")
    if steps < 1:
        raise UsageError(f"a depth selector needs at least 1 step of training, got {steps}")
    mean, deviation = _scale(frames)
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        selector = DepthSelector(config or _config_for(frames[0])) if start is None else copy.deepcopy(start).train()
    if start is not None:
        selector.absorb_scale(-mean / deviation, 1 / deviation)  # it read plain features, and reads scaled ones now
    rate, unsure_m2 = (LEARNING_RATE, UNSURE_M2) if start is None else (LEARNING_RATE / 4, 0.0)
    optimizer = torch.optim.AdamW(selector.parameters(), lr=rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.03, total_iters=steps)
    for step in range(steps):
        batch = [frames[i].drawn(RAYS, rng) for i in rng.integers(len(frames), size=FRAMES)]
        features, views, places = _inputs(batch)
        is_there = views[:, -1:]
        scaled = (views[:, :-1] - mean[:, None, None]) / deviation[:, None, None] * is_there
        logits = selector((features - mean) / deviation, torch.cat([scaled, is_there], dim=1), places)
        costs = torch.from_numpy(np.concatenate([frame.costs for frame in batch]))
        loss = expected_cost(logits, costs) - unsure_m2 * (1 - step / steps) * doubt(logits)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    selector.absorb_scale(mean, deviation)
    return selector.eval()


def _config_for(frame: Examples) -> DepthSelectorConfig:
    """Of a selector for rays with as many candidates."""
    ((features, candidates),) = (names for names in KNOWN.values() if len(names[1]) == frame.costs.shape[1])
    return DepthSelectorConfig(view_channels=VIEW_CHANNELS, features=features, candidates=candidates)


def _scale(frames: Sequence[Examples]) -> tuple[Tensor, Tensor]:
    """Mean and deviation (F,) of the features of all rays, without another copy of them all."""
    count = sum(map(len, frames))
    mean = sum(frame.features.sum(axis=0, dtype=np.float64) for frame in frames) / count
    variance = sum(((frame.features - mean) ** 2).sum(axis=0, dtype=np.float64) for frame in frames) / count
    return torch.tensor(mean).float(), torch.tensor(np.sqrt(variance)).float().clamp_min(1e-6)


def _inputs(frames: Sequence[Examples]) -> tuple[Tensor, Tensor, Tensor]:
    """What a selector reads of the rays of several frames: features, views, places."""
    features = np.concatenate([frame.features for frame in frames])
    views = np.stack([frame.view for frame in frames]).astype(np.float32)
    places = np.concatenate([frame.cells + i * CELLS for i, frame in enumerate(frames)])
    return torch.from_numpy(features), torch.from_numpy(views), torch.from_numpy(places)


def expected_cost(logits: Tensor, costs: Tensor) -> Tensor:
    """What rays lose on average where candidates are drawn by their probabilities."""
    return (logits.softmax(dim=1) * costs).sum(dim=1).mean()


def doubt(logits: Tensor) -> Tensor:
    """The mean entropy of rays' choices, in nats."""
    log_p = logits.log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1).mean()


@torch.no_grad()
def costs_of(selector: DepthSelector, data: Sequence[Examples]) -> NDArray[np.float32]:
    """(E,) what the rays of these frames lose by the selector's choices."""
    chosen = [selector(*_inputs([frame])).argmax(dim=1).numpy() for frame in data]
    lost = [
        np.take_along_axis(frame.costs, its[:, None], axis=1)[:, 0] for frame, its in zip(data, chosen, strict=True)
    ]
    return np.concatenate(lost)

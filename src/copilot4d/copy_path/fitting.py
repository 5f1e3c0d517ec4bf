"""Learning a `CopyGate`: rays whose truth is known, what each candidate would have cost, and the least of it.

A candidate costs what the scores count: its point's distance to the true cloud, and its depth's error, both squared and
capped (beyond that, wrong is wrong). The gate learns to lose least on average: no label says which candidate is right,
for often several are.

    E rays of many forecasts, R rays of one, C candidates, F features
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pykdtree.kdtree import KDTree
from torch import Tensor

from copilot4d.copy_path.candidates import Candidates
from copilot4d.copy_path.gate import CopyGate, CopyGateConfig
from copilot4d.errors import UsageError
from copilot4d.geometry import Rays
from copilot4d.geometry.se3 import FloatArray

FAR_FROM_CLOUD_M, FAR_FROM_TRUTH_M = 8.0, 3.0  # where costs are capped
MOST_WEIGHT = 20.0  # of a ray in a frame with few points in the region
EVERYWHERE = 0.1  # share of a cost that counts wherever the ray ends
LEARNING_RATE, BATCH = 3e-3, 8192
UNSURE_M2 = 3.0  # what a nat of doubt is worth at first, and nothing at the end: no candidate is given up too early


@dataclass(frozen=True)
class Examples:
    """Rays to learn from: features (E, F), and what each candidate would cost (E, C)."""

    features: NDArray[np.float32]
    costs: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.features)

    def thinned(self, count: int, rng: np.random.Generator) -> Examples:
        """At most `count` of them, drawn."""
        if len(self) <= count:
            return self
        kept = rng.choice(len(self), count, replace=False)
        return Examples(self.features[kept], self.costs[kept])

    @staticmethod
    def join(parts: Sequence[Examples]) -> Examples:
        """All rays of all parts."""
        return Examples(np.concatenate([p.features for p in parts]), np.concatenate([p.costs for p in parts]))


def examples(
    found: Candidates, rays: Rays, true_points: FloatArray, is_scored: NDArray[np.bool_],
    in_region: NDArray[np.bool_],
) -> Examples:  # fmt: skip
    """One frame's rays, with the truth (R, 3) on them.

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
    return Examples(found.features, costs.astype(np.float32))


def _tree(points: FloatArray) -> KDTree:
    return KDTree(np.ascontiguousarray(points, dtype=np.float32))


def fit(data: Examples, config: CopyGateConfig | None = None, *, steps: int = 4000, seed: int = 0) -> CopyGate:
    """The gate that loses least on these rays."""
    if len(data) == 0:
        raise UsageError("there are no rays to learn a copy gate from")
    if steps < 1:
        raise UsageError(f"a copy gate needs at least 1 step of training, got {steps}")
    features, costs = torch.from_numpy(data.features), torch.from_numpy(data.costs)
    mean, deviation = features.mean(dim=0), features.std(dim=0, unbiased=False).clamp_min(1e-6)
    scaled = (features - mean) / deviation
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        gate = CopyGate(config)
    optimizer = torch.optim.Adam(gate.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.03, total_iters=steps)
    for step in range(steps):
        drawn = torch.randint(len(data), (min(BATCH, len(data)),), generator=generator)
        logits = gate(scaled[drawn])
        loss = expected_cost(logits, costs[drawn]) - UNSURE_M2 * (1 - step / steps) * doubt(logits)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    gate.absorb_scale(mean, deviation)
    return gate.eval()


def expected_cost(logits: Tensor, costs: Tensor) -> Tensor:
    """What rays lose on average where candidates are drawn by their probabilities."""
    return (logits.softmax(dim=1) * costs).sum(dim=1).mean()


def doubt(logits: Tensor) -> Tensor:
    """The mean entropy of rays' choices, in nats."""
    log_p = logits.log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1).mean()


@torch.no_grad()
def costs_of(gate: CopyGate, data: Examples) -> NDArray[np.float32]:
    """(E,) what rays lose by the gate's choices."""
    chosen = gate(torch.from_numpy(data.features)).argmax(dim=1).numpy()
    return np.take_along_axis(data.costs, chosen[:, None], axis=1)[:, 0]

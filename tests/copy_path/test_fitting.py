"""A gate learns to lose least, by costs that are those of the scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from copilot4d.copy_path import CANDIDATES, FEATURES, Candidates, CopyGate, CopyGateConfig
from copilot4d.copy_path.fitting import EVERYWHERE, Examples, costs_of, doubt, examples, expected_cost, fit
from copilot4d.errors import UsageError
from copilot4d.geometry import Rays

TWO_RAYS = Rays.from_origin(np.zeros(3), np.array([[1.0, 0, 0], [0, 1.0, 0]]))


def candidates_of(depths):
    depths = np.asarray(depths, dtype=np.float32)
    return Candidates(depths, np.zeros((len(depths), len(FEATURES)), np.float32), np.zeros(depths.shape, bool))


def test_a_candidate_costs_its_distance_to_the_cloud_and_its_error_along_the_ray():
    """True points at 10 m on x and at 5 m on y, both scored; all candidates of ray 0 and 1 are the same."""
    truth = np.array([[10.0, 0, 0], [0, 5.0, 0]])
    found = candidates_of([[11.0, 10.0, 10.0, 10.0, 10.0, 110.0], [5.0] * 6])
    inside = np.ones((2, 6), bool)
    inside[0, 5] = False  # out of the region: its point is not scored, the true one that it misses is
    made = examples(found, TWO_RAYS, truth, np.ones(2, bool), inside)
    more = 1 + EVERYWHERE
    np.testing.assert_allclose(made.costs[0, :2], [more * (1 + 1), 0], atol=1e-4)
    np.testing.assert_allclose(made.costs[0, 5], more * 9 + EVERYWHERE * 64, rtol=1e-4)  # both capped
    np.testing.assert_allclose(made.costs[1], 0, atol=1e-4)


def test_a_point_in_the_region_is_compared_with_the_truth_in_it():
    """The true point on x lies just outside and is not scored: a candidate in the region, 0.5 m before it, is 3 m from
    the next scored one, though near to the whole cloud."""
    truth = np.array([[10.0, 0, 0], [9.5, 3.0, 0]])
    rays = Rays.from_origin(np.zeros(3), truth / np.linalg.norm(truth, axis=1, keepdims=True))
    found = candidates_of([[9.5] * len(CANDIDATES)] * 2)
    made = examples(found, rays, truth, np.array([False, True]), np.ones((2, len(CANDIDATES)), bool))
    np.testing.assert_allclose(made.costs[0], 2 * 9 + EVERYWHERE * (0.25 + 0.25), rtol=1e-4)


def test_few_scored_points_weigh_more_but_not_without_end():
    rays = Rays.from_origin(np.zeros(3), np.tile([1.0, 0, 0], (100, 1)))
    truth = np.tile([10.0, 0, 0], (100, 1))
    found = candidates_of(np.full((100, len(CANDIDATES)), 11.0))
    for scored, weight in ((50, 2.0), (1, 20.0), (0, 20.0)):
        is_scored = np.arange(100) < scored
        made = examples(found, rays, truth, is_scored, np.ones((100, len(CANDIDATES)), bool))
        expected = weight * (1 + is_scored) + EVERYWHERE * 2
        np.testing.assert_allclose(made.costs[:, 0], expected, rtol=1e-4)


def toy(count, seed):
    """Faint rays should take the recent depth, others what is imagined; features on very unlike scales."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, len(FEATURES))).astype(np.float32) * np.logspace(-2, 3, len(FEATURES))
    opacity = rng.uniform(size=count)
    features[:, FEATURES.index("opacity")] = opacity
    costs = np.full((count, len(CANDIDATES)), 5.0)
    costs[:, CANDIDATES.index("imagined")] = np.where(opacity < 0.5, 4.0, 0.1)
    costs[:, CANDIDATES.index("recent")] = np.where(opacity < 0.5, 0.1, 4.0)
    return Examples(features.astype(np.float32), costs.astype(np.float32))


def test_a_gate_learns_when_to_believe_which():
    gate = fit(toy(4000, 0), steps=400)
    unseen = toy(2000, 1)
    assert costs_of(gate, unseen).mean() < 0.4  # either alone costs 2
    chosen = gate.choose(Candidates(np.zeros_like(unseen.costs), unseen.features, unseen.costs > 0))
    np.testing.assert_array_equal(unseen.costs[np.arange(2000), chosen], costs_of(gate, unseen))


def test_the_same_seed_learns_the_same_and_leaves_other_draws_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two = fit(toy(500, 0), steps=5, seed=3), fit(toy(500, 0), steps=5, seed=3)
    torch.testing.assert_close(torch.rand(3), expected)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_after_training_a_gate_reads_plain_features():
    gate = CopyGate()
    features = torch.randn(7, len(FEATURES)) * 50 + 20
    mean, deviation = features.mean(0), features.std(0)
    before = gate((features - mean) / deviation)
    gate.absorb_scale(mean, deviation)
    torch.testing.assert_close(gate(features), before, rtol=1e-3, atol=1e-4)


def test_the_expected_cost_is_that_of_drawn_candidates():
    logits = torch.log(torch.tensor([[0.25, 0.75], [1.0, 1e-9]]))
    costs = torch.tensor([[4.0, 0.0], [3.0, 100.0]])
    assert float(expected_cost(logits, costs)) == pytest.approx((1.0 + 3.0) / 2, rel=1e-4)


def test_doubt_is_entropy():
    logits = torch.log(torch.tensor([[0.5, 0.5], [1.0, 1e-9]]))
    assert float(doubt(logits)) == pytest.approx(np.log(2) / 2, abs=1e-4)


def test_thinning_keeps_features_with_their_costs():
    data = Examples(np.arange(20, dtype=np.float32)[:, None], 10 * np.arange(20, dtype=np.float32)[:, None])
    kept = data.thinned(5, np.random.default_rng(0))
    assert len(kept) == len(set(kept.features[:, 0].tolist())) == 5
    np.testing.assert_array_equal(kept.costs, 10 * kept.features)
    assert data.thinned(50, np.random.default_rng(0)) is data


def test_a_gate_of_other_features_is_refused():
    config = CopyGateConfig()
    with pytest.raises(UsageError, match="train it again"):
        replace(config, features=("speed", *FEATURES[1:]))
    with pytest.raises(UsageError, match="train it again"):
        replace(config, candidates=CANDIDATES[::-1])
    with pytest.raises(UsageError, match="at least 1"):
        replace(config, widths=(0, 4))


def test_nothing_to_learn_from_is_said():
    with pytest.raises(UsageError, match="no rays"):
        fit(Examples(np.zeros((0, len(FEATURES)), np.float32), np.zeros((0, len(CANDIDATES)), np.float32)))
    with pytest.raises(UsageError, match="at least 1 step"):
        fit(toy(10, 0), steps=0)

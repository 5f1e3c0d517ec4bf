"""A selector learns to lose least, by costs that are those of the scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from copilot4d.depth_selection import CANDIDATES, FEATURES, Candidates, DepthSelector, DepthSelectorConfig, RangeView
from copilot4d.depth_selection.neighbours import AZIMUTHS, CELLS, ELEVATIONS
from copilot4d.errors import UsageError
from copilot4d.geometry import Rays
from copilot4d.training.tasks.depth_selector import (
    EVERYWHERE,
    Examples,
    _inputs,
    costs_of,
    doubt,
    examples,
    expected_cost,
    fit,
)

TWO_RAYS = Rays.from_origin(np.zeros(3), np.array([[1.0, 0, 0], [0, 1.0, 0]]))


def candidates_of(depths):
    depths = np.asarray(depths, dtype=np.float32)
    features, cells = np.zeros((len(depths), len(FEATURES)), np.float32), np.zeros(len(depths), np.int64)
    return Candidates(depths, features, np.zeros(depths.shape, bool), cells)


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
    costs[:, CANDIDATES.index("rendered")] = np.where(opacity < 0.5, 4.0, 0.1)
    costs[:, CANDIDATES.index("recent")] = np.where(opacity < 0.5, 0.1, 4.0)
    return frame_of(features, costs, rng.integers(CELLS, size=count))


def frame_of(features, costs, cells):
    features = features.astype(np.float32)
    return Examples(features, costs.astype(np.float32), cells, RangeView.of(features, cells).values.astype(np.float16))


def chosen_by(selector, frame):
    depths, returns = np.zeros_like(frame.costs), frame.costs > 0
    return selector.choose(Candidates(depths, frame.features, returns, frame.cells))


def test_a_selector_learns_when_to_believe_which():
    selector = fit([toy(4000, 0)], DepthSelectorConfig(), steps=400)
    held_out = toy(2000, 1)
    assert costs_of(selector, [held_out]).mean() < 0.4  # either alone costs 2
    chosen = chosen_by(selector, held_out)
    np.testing.assert_array_equal(held_out.costs[np.arange(2000), chosen], costs_of(selector, [held_out]))


def beside_a_faint_ray(count, seed):
    """Pairs of rays in cells side by side, each right to take the recent depth where the other is faint."""
    rng = np.random.default_rng(seed)
    first = 2 * rng.permutation(CELLS // 2)[: count // 2]
    opacity = rng.uniform(size=count)
    features = np.zeros((count, len(FEATURES)))
    features[:, FEATURES.index("opacity")] = opacity
    other = np.concatenate([opacity[count // 2 :], opacity[: count // 2]])
    costs = np.full((count, len(CANDIDATES)), 5.0)
    costs[:, CANDIDATES.index("rendered")] = np.where(other < 0.5, 4.0, 0.1)
    costs[:, CANDIDATES.index("recent")] = np.where(other < 0.5, 0.1, 4.0)
    return frame_of(features, costs, np.concatenate([first, first + 1]))


def test_a_selector_with_a_view_learns_from_the_rays_beside():
    """What decides is known to the neighbour alone: a selector without a view can only guess, at a cost of about 2."""
    frames, held_out = [beside_a_faint_ray(600, seed) for seed in range(12)], [beside_a_faint_ray(600, 99)]
    small = DepthSelectorConfig(widths=(32, 32), view_channels=8, view_dilations=(1,))
    selector = fit(frames, small, steps=250)
    assert costs_of(selector, held_out).mean() < 1.2
    by_itself = fit(frames, replace(small, view_channels=0), steps=250)
    assert costs_of(by_itself, held_out).mean() > 1.7
    chosen = chosen_by(selector, held_out[0])  # views of forecasts are in single precision, those learned from are not
    assert np.mean(held_out[0].costs[np.arange(600), chosen] == costs_of(selector, held_out)) > 0.99


def test_a_selector_learns_with_a_view_unless_told_otherwise():
    assert fit([toy(50, 0)], steps=1).around is not None
    assert DepthSelector().around is None  # as selectors without a view are written down


def test_the_same_seed_learns_the_same_and_leaves_other_draws_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two = fit([toy(500, 0)], steps=5, seed=3), fit([toy(500, 0)], steps=5, seed=3)
    torch.testing.assert_close(torch.rand(3), expected)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_after_training_a_gate_reads_plain_features():
    """Also in the view, where cells without rays are 0 before and after."""
    selector = DepthSelector(DepthSelectorConfig(view_channels=4))
    features = torch.randn(7, len(FEATURES)) * 50 + 20
    mean, deviation = features.mean(0), features.std(0)
    cells = torch.tensor([0, 1, 2, 2, AZIMUTHS, 7 * AZIMUTHS + 5, CELLS - 1])
    plain = torch.from_numpy(RangeView.of(features.numpy(), cells.numpy()).values)[None]
    scaled_features = (features - mean) / deviation
    scaled = torch.from_numpy(RangeView.of(scaled_features.numpy(), cells.numpy()).values)[None]
    before = selector(scaled_features, scaled, cells)
    selector.absorb_scale(mean, deviation)
    torch.testing.assert_close(selector(features, plain, cells), before, rtol=1e-3, atol=1e-4)


def test_what_is_around_goes_round_in_azimuth_and_not_in_elevation():
    selector = DepthSelector(DepthSelectorConfig(view_channels=4, view_dilations=(1, 2)))
    view = torch.zeros(1, len(FEATURES) + 1, ELEVATIONS, AZIMUTHS)
    changed = view.clone()
    changed[0, 0, ELEVATIONS - 1, 0] = 10.0
    differs = (selector.around(view) != selector.around(changed)).any(dim=1)[0]
    assert differs[ELEVATIONS - 1, AZIMUTHS - 1] or differs[ELEVATIONS - 2, AZIMUTHS - 1]
    assert not differs[:4].any()
    turned = selector.around(changed.roll(50, dims=-1))
    torch.testing.assert_close(turned, selector.around(changed).roll(50, dims=-1))


def test_rays_of_several_frames_look_into_their_own_views():
    selector = DepthSelector(DepthSelectorConfig(view_channels=4))
    frames = [toy(20, seed) for seed in (0, 1)]
    together = costs_of(selector, frames)
    np.testing.assert_array_equal(together, np.concatenate([costs_of(selector, [frame]) for frame in frames]))
    features, views, places = _inputs(frames)
    alone = torch.cat([selector(*_inputs([frame])) for frame in frames])
    torch.testing.assert_close(selector(features, views, places), alone, rtol=1e-3, atol=1e-2)


def test_the_expected_cost_is_that_of_drawn_candidates():
    logits = torch.log(torch.tensor([[0.25, 0.75], [1.0, 1e-9]]))
    costs = torch.tensor([[4.0, 0.0], [3.0, 100.0]])
    assert float(expected_cost(logits, costs)) == pytest.approx((1.0 + 3.0) / 2, rel=1e-4)


def test_doubt_is_entropy():
    logits = torch.log(torch.tensor([[0.5, 0.5], [1.0, 1e-9]]))
    assert float(doubt(logits)) == pytest.approx(np.log(2) / 2, abs=1e-4)


def test_thinning_keeps_features_with_their_costs_and_cells_and_the_view_of_all():
    count = np.arange(20)
    features = np.repeat(count[:, None], len(FEATURES), axis=1)
    data = frame_of(features, 10 * count[:, None], count)
    for kept in (data.thinned(5, np.random.default_rng(0)), data.drawn(5, np.random.default_rng(0))):
        np.testing.assert_array_equal(kept.costs, 10 * kept.features[:, :1])
        np.testing.assert_array_equal(kept.cells, kept.features[:, 0])
        assert kept.view is data.view
        assert len(kept) == 5
    assert len(set(data.thinned(5, np.random.default_rng(0)).cells.tolist())) == 5
    assert data.thinned(50, np.random.default_rng(0)) is data


def test_a_gate_of_other_features_is_refused():
    config = DepthSelectorConfig()
    with pytest.raises(UsageError, match="train it again"):
        replace(config, features=("speed", *FEATURES[1:]))
    with pytest.raises(UsageError, match="train it again"):
        replace(config, candidates=CANDIDATES[::-1])
    with pytest.raises(UsageError, match="at least 1"):
        replace(config, widths=(0, 4))
    with pytest.raises(UsageError, match="dilations of 1 or more"):
        replace(config, view_dilations=(1, 0))


def test_nothing_to_learn_from_is_said():
    with pytest.raises(UsageError, match="no rays"):
        fit([])
    with pytest.raises(UsageError, match="no rays"):
        fit([toy(0, 0)])
    with pytest.raises(UsageError, match="at least 1 step"):
        fit([toy(10, 0)], steps=0)

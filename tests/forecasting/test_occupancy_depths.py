"""A model with occupancy depths: on rays and beams, over a moved reference, on disk, when its selector is trained."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from copilot4d import load_forecaster
from copilot4d.baselines.occupancy_4d import FutureOccupancy, Occupancy4d, Occupancy4dForecaster, occupancy_4d_preset
from copilot4d.checkpoints.depth_parts import OCCUPANCY, DepthParts, save_depth_selector
from copilot4d.checkpoints.model_folder import ModelCards, save_model
from copilot4d.depth_selection import (
    OCCUPANCY_CANDIDATES,
    OCCUPANCY_FEATURES,
    MeasuredPast,
    OccupancyDepths,
    candidates,
)
from copilot4d.errors import DataError, UsageError
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.geometry import BeamPattern, Clip, Rays, se3
from copilot4d.rendering import BEYOND_EXIT_M
from copilot4d.training.tasks import depth_selector_examples
from copilot4d.training.tasks.depth_selector import fit
from tests.checkpoints.test_model_folder import card, depths_of, models  # noqa: F401  (models is a fixture)
from tests.depth_selection.test_candidates import AHEAD, SECOND, at_angle, depth, feature, of, sweep
from tests.forecasting.test_copilot4d import past_of, rays_at_poles, sweep_at, way
from tests.support.selectors import always
from tests.support.stub_models import PillarTokenizer, StandingWorld


def network(seed: int = 0) -> Occupancy4d:
    """2 + 2 frames, +-16 m, every step of time another fog."""
    torch.manual_seed(seed)
    made = Occupancy4d(occupancy_4d_preset("tiny"))
    torch.nn.init.normal_(made.head.weight, std=0.5)
    return made.eval()


def model(candidate, **settings):
    return Copilot4D(
        PillarTokenizer(), StandingWorld("reference"), depth_selector=always(candidate, occupancy=True),
        occupancy=network(), **settings,
    )  # fmt: skip


def with_occupancy_depths(past, occupancy_depths):
    measured = MeasuredPast.of(past).along(AHEAD, se3.identity(), 3 * SECOND)
    return candidates(measured, AHEAD, np.array([20.0]), np.array([0.9]), np.array([32.0]), occupancy_depths)


def test_occupancy_depths_add_candidates_and_change_none_of_the_others():
    past = [sweep([at_angle(0.0, 12.3)], 0), sweep([at_angle(0.1, 25)], 1)]
    occupancy_depths = OccupancyDepths(*(np.array([value], dtype=np.float32) for value in (12.0, 14.0, 0.8)))
    alone, both = of(past, rendered_m=20.0, opacity=0.9), with_occupancy_depths(past, occupancy_depths)
    np.testing.assert_array_equal(both.depths_m[:, :-3], alone.depths_m)
    np.testing.assert_array_equal(both.features[:, : -len(OCCUPANCY_FEATURES)], alone.features)
    added = dict(zip(OCCUPANCY_CANDIDATES, both.depths_m[0, -3:], strict=True))
    assert added["occupancy"] == 12.0
    assert added["occupancy_snapped"] == pytest.approx(12.3, abs=1e-3)  # the measured point that it means
    assert added["occupancy_mean"] == 14.0
    told = dict(zip(OCCUPANCY_FEATURES, both.features[0, -len(OCCUPANCY_FEATURES) :], strict=True))
    assert told["occupancy_log"] == pytest.approx(np.log(12.0))
    assert told["occupancy_opacity"] == pytest.approx(0.8)
    assert told["occupancy_against_rendered"] == pytest.approx(-np.log1p(8.0 / 0.05), rel=1e-5)
    assert told["occupancy_mean_against_occupancy"] == pytest.approx(np.log1p(2.0 / 0.05), rel=1e-5)
    assert both.returns[0, -3:].all()
    assert depth(both, "rendered") == 20.0
    assert feature(both, "opacity") == pytest.approx(0.9)
    faint = OccupancyDepths(occupancy_depths.depths_m, occupancy_depths.means_m, np.array([0.3], dtype=np.float32))
    assert not with_occupancy_depths(past, faint).returns[0, -3:].any()  # mostly let through: no return


def test_a_selector_of_occupancy_depths_alone_is_4d_occ_by_medians():
    """The same rays, poses and steps of time as the baseline's own forecaster."""
    future = way(2, start=2)
    rays = [rays_at_poles(pose)[0] for pose in future]
    expected = Occupancy4dForecaster(network(), depth="median").forecast(past_of(2), future, rays)
    found = model("occupancy").forecast(past_of(2), future, rays, steps=1, futures=2)
    for made in found.futures:
        for a, b in zip(expected.depths, made.depths, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
    assert not np.allclose(found.depths[0], model("rendered").forecast(past_of(2), future, rays, steps=1).depths[0])


def test_a_selector_that_takes_none_forecasts_as_without():
    future = way(2, start=2)
    rays = [rays_at_poles(pose)[0] for pose in future]
    plain = Copilot4D(PillarTokenizer(), StandingWorld("reference")).forecast(past_of(2), future, rays, steps=1)
    both = model("rendered").forecast(past_of(2), future, rays, steps=1)
    for a, b in zip(plain.depths, both.depths, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_after_the_reference_has_moved_they_follow_the_newest_sweeps():
    """A window of four frames: the third future frame begins a new stretch, whose first step the network foresees."""
    turn = np.linspace(0, 2 * np.pi, 90, endpoint=False)
    pattern = BeamPattern(np.stack([np.cos(turn), np.sin(turn), np.zeros_like(turn)], -1), 50.0)
    world = model("occupancy", pattern=pattern).imagine(past_of(2), steps=1)
    future = way(3, start=2)
    shown = [world.step(pose)[0].sweep for pose in future[:2]]
    rays = rays_at_poles(future[2])[0]
    (frame,) = world.step(future[2], rays)
    expected = OccupancyDepths.of(FutureOccupancy.of(network(), shown), rays, future[2], 0)
    np.testing.assert_allclose(frame.depths, expected.depths_m, rtol=1e-5)


def test_steps_that_were_not_predicted_are_answered_behind_the_region():
    future_occupancy = FutureOccupancy.of(network(), past_of(2))
    ray = Rays.from_origin(np.zeros(3), np.array([[1.0, 0.0, 0.0]]))
    late = OccupancyDepths.of(future_occupancy, ray, way(1, start=1)[0], 2)
    assert late.opacity[0] == 0
    assert late.depths_m[0] == pytest.approx(16.0 + BEYOND_EXIT_M, abs=1e-4)
    assert late.means_m[0] == late.depths_m[0]


def test_selector_and_occupancy_network_belong_together():
    parts = (PillarTokenizer(), StandingWorld("reference"))
    with pytest.raises(UsageError, match="trained with occupancy depths"):
        Copilot4D(*parts, depth_selector=always("occupancy"))
    with pytest.raises(UsageError, match="trained without occupancy depths"):
        Copilot4D(*parts, depth_selector=always("recent"), occupancy=network())
    both = model("occupancy")
    assert both.settings["occupancy_depths"] is True
    assert both.without_selector().occupancy is both.occupancy
    assert "occupancy_depths" not in both.tokens_only().settings


def test_a_saved_occupancy_network_forecasts_the_same_and_is_missed_where_it_is_gone(models, tmp_path):  # noqa: F811
    cards = ModelCards(
        tokenizer=card("A"), world_model=card("B"), depth_selector=card("C"), occupancy=card("D")
    )  # fmt: skip
    parts = DepthParts(depth_selector=always("occupancy"), occupancy=network())
    folder = save_model(tmp_path / "toy", *models, cards=cards, depth_parts=parts)
    loaded = load_forecaster(folder)
    made = Copilot4D(*models, depth_selector=parts.depth_selector, occupancy=parts.occupancy)
    assert loaded.fingerprint == made.fingerprint
    np.testing.assert_array_equal(depths_of(loaded), depths_of(made))
    other = Copilot4D(*models, depth_selector=parts.depth_selector, occupancy=network(1))
    assert other.fingerprint != made.fingerprint
    with pytest.raises(UsageError, match="an occupancy network needs a model card"):
        save_model(tmp_path / "other", *models, cards=ModelCards(tokenizer=card("A"), world_model=card("B"),
                   depth_selector=card("C")), depth_parts=parts)  # fmt: skip
    shutil.rmtree(folder / OCCUPANCY)
    with pytest.raises(DataError, match="occupancy network"):
        load_forecaster(folder)
    assert load_forecaster(folder, depth_selection=False).depth_selector is None


def test_an_occupancy_network_that_no_selector_needs_is_left_alone(models, tmp_path):  # noqa: F811
    cards = ModelCards(tokenizer=card("A"), world_model=card("B"), depth_selector=card("C"), occupancy=card("D"))
    folder = save_model(
        tmp_path / "toy",
        *models,
        cards=cards,
        depth_parts=DepthParts(depth_selector=always("occupancy"), occupancy=network()),
    )
    save_depth_selector(folder / "depth_selector", always("recent"), card("C"))
    loaded = load_forecaster(folder)
    assert loaded.depth_selector is not None
    assert loaded.occupancy is None


def test_a_selector_learns_which_depths_are_right():
    """Rays of a standing world: the pillars say where poles are, a random fog does not; with it, costs have columns."""
    sweeps = tuple(sweep_at(pose, t) for t, pose in enumerate(way(3)))
    clip = Clip(drive="a", past=sweeps[:2], future=sweeps[2:], past_frames=(0, 1), future_frames=(2,))
    both = Copilot4D(PillarTokenizer(), StandingWorld("reference"), occupancy=network())
    (made,) = depth_selector_examples.clip_examples(both, clip, 10_000, 1, 0, np.random.default_rng(0))
    assert made.costs.shape[1] == 11
    selector = fit([made], steps=30)
    assert selector.config.needs_occupancy_depths
    column = made.costs.mean(axis=0)
    assert column[selector.config.candidates.index("nearest")] < column[selector.config.candidates.index("occupancy")]

"""A model that hears a second opinion: on rays and beams, over a moved reference, on disk, when its gate is learned."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from copilot4d import copy_learning, load_forecaster
from copilot4d.baselines.occupancy_4d import Foreseen, Occupancy4d, Occupancy4dForecaster, occupancy_4d_preset
from copilot4d.copy_path import SECOND_CANDIDATES, SECOND_FEATURES, MeasuredPast, Opinion, candidates
from copilot4d.copy_path.fitting import fit
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import BeamPattern, Clip, Rays, se3
from copilot4d.model_folder import SECOND_OPINION, CopyParts, ModelCards, save_copy_gate, save_model
from copilot4d.model_forecaster import ModelForecaster
from copilot4d.rendering import BEYOND_EXIT_M
from tests.copy_path.test_candidates import AHEAD, SECOND, at_angle, depth, feature, of, sweep
from tests.support.gates import always
from tests.support.stub_models import PillarTokenizer, StandingWorld
from tests.test_model_folder import card, depths_of, models  # noqa: F401  (models is a fixture)
from tests.test_model_forecaster import past_of, rays_at_poles, sweep_at, way


def network(seed: int = 0) -> Occupancy4d:
    """2 + 2 frames, +-16 m, every step of time another fog."""
    torch.manual_seed(seed)
    made = Occupancy4d(occupancy_4d_preset("tiny"))
    torch.nn.init.normal_(made.head.weight, std=0.5)
    return made.eval()


def model(candidate, **settings):
    return ModelForecaster(
        PillarTokenizer(), StandingWorld("reference"), copy_gate=always(candidate, second_opinion=True),
        second_opinion=network(), **settings,
    )  # fmt: skip


def with_opinion(past, opinion):
    measured = MeasuredPast.of(past).along(AHEAD, se3.identity(), 3 * SECOND)
    return candidates(measured, AHEAD, np.array([20.0]), np.array([0.9]), np.array([32.0]), opinion)


def test_a_second_opinion_adds_candidates_and_changes_none_of_the_others():
    past = [sweep([at_angle(0.0, 12.3)], 0), sweep([at_angle(0.1, 25)], 1)]
    opinion = Opinion(*(np.array([value], dtype=np.float32) for value in (12.0, 14.0, 0.8)))
    alone, both = of(past, imagined_m=20.0, opacity=0.9), with_opinion(past, opinion)
    np.testing.assert_array_equal(both.depths_m[:, :-3], alone.depths_m)
    np.testing.assert_array_equal(both.features[:, : -len(SECOND_FEATURES)], alone.features)
    added = dict(zip(SECOND_CANDIDATES, both.depths_m[0, -3:], strict=True))
    assert added["second"] == 12.0
    assert added["second_snapped"] == pytest.approx(12.3, abs=1e-3)  # the measured point that it means
    assert added["second_mean"] == 14.0
    told = dict(zip(SECOND_FEATURES, both.features[0, -len(SECOND_FEATURES) :], strict=True))
    assert told["second_log"] == pytest.approx(np.log(12.0))
    assert told["second_opacity"] == pytest.approx(0.8)
    assert told["second_against_imagined"] == pytest.approx(-np.log1p(8.0 / 0.05), rel=1e-5)
    assert told["second_mean_against_second"] == pytest.approx(np.log1p(2.0 / 0.05), rel=1e-5)
    assert both.returns[0, -3:].all()
    assert depth(both, "imagined") == 20.0
    assert feature(both, "opacity") == pytest.approx(0.9)
    faint = Opinion(opinion.depths_m, opinion.means_m, np.array([0.3], dtype=np.float32))
    assert not with_opinion(past, faint).returns[0, -3:].any()  # a beam that is mostly let through does not come back


def test_a_gate_that_believes_in_the_second_opinion_alone_is_4d_occ_by_medians():
    """The same rays, poses and steps of time as the baseline's own forecaster."""
    future = way(2, start=2)
    rays = [rays_at_poles(pose)[0] for pose in future]
    expected = Occupancy4dForecaster(network(), depth="median").forecast(past_of(2), future, rays)
    found = model("second").forecast(past_of(2), future, rays, steps=1, futures=2)
    for made in found.futures:
        for a, b in zip(expected.depths, made.depths, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
    assert not np.allclose(found.depths[0], model("imagined").forecast(past_of(2), future, rays, steps=1).depths[0])


def test_a_gate_that_does_not_believe_it_forecasts_as_without():
    future = way(2, start=2)
    rays = [rays_at_poles(pose)[0] for pose in future]
    plain = ModelForecaster(PillarTokenizer(), StandingWorld("reference")).forecast(past_of(2), future, rays, steps=1)
    heard = model("imagined").forecast(past_of(2), future, rays, steps=1)
    for a, b in zip(plain.depths, heard.depths, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_after_the_reference_has_moved_the_opinion_is_on_the_newest_sweeps():
    """A window of four frames: the third future frame begins a new stretch, whose first step the network foresees."""
    turn = np.linspace(0, 2 * np.pi, 90, endpoint=False)
    pattern = BeamPattern(np.stack([np.cos(turn), np.sin(turn), np.zeros_like(turn)], -1), 50.0)
    world = model("second", pattern=pattern).imagine(past_of(2), steps=1)
    future = way(3, start=2)
    shown = [world.step(pose)[0].sweep for pose in future[:2]]
    rays = rays_at_poles(future[2])[0]
    (frame,) = world.step(future[2], rays)
    expected = Opinion.of(Foreseen.of(network(), shown), rays, future[2], 0)
    np.testing.assert_allclose(frame.depths, expected.depths_m, rtol=1e-5)


def test_steps_that_nobody_foresaw_are_answered_behind_the_region():
    foreseen = Foreseen.of(network(), past_of(2))
    ray = Rays.from_origin(np.zeros(3), np.array([[1.0, 0.0, 0.0]]))
    late = Opinion.of(foreseen, ray, way(1, start=1)[0], 2)
    assert late.opacity[0] == 0
    assert late.depths_m[0] == pytest.approx(16.0 + BEYOND_EXIT_M, abs=1e-4)
    assert late.means_m[0] == late.depths_m[0]


def test_gate_and_second_opinion_belong_together():
    parts = (PillarTokenizer(), StandingWorld("reference"))
    with pytest.raises(UsageError, match="learned with a second opinion"):
        ModelForecaster(*parts, copy_gate=always("second"))
    with pytest.raises(UsageError, match="learned without a second opinion"):
        ModelForecaster(*parts, copy_gate=always("recent"), second_opinion=network())
    heard = model("second")
    assert heard.settings["second_opinion"] is True
    assert heard.without_gate().second_opinion is heard.second_opinion
    assert "second_opinion" not in heard.without_copying().settings


def test_a_saved_second_opinion_forecasts_the_same_and_is_missed_where_it_is_gone(models, tmp_path):  # noqa: F811
    cards = ModelCards(
        tokenizer=card("A"), world_model=card("B"), copy_gate=card("C"), second_opinion=card("D")
    )  # fmt: skip
    copying = CopyParts(always("second"), network())
    folder = save_model(tmp_path / "toy", *models, cards=cards, copying=copying)
    loaded = load_forecaster(folder)
    made = ModelForecaster(*models, copy_gate=copying.gate, second_opinion=copying.second_opinion)
    assert loaded.fingerprint == made.fingerprint
    np.testing.assert_array_equal(depths_of(loaded), depths_of(made))
    other = ModelForecaster(*models, copy_gate=copying.gate, second_opinion=network(1))
    assert other.fingerprint != made.fingerprint
    with pytest.raises(UsageError, match="second opinion needs a model card"):
        save_model(tmp_path / "other", *models, cards=ModelCards(tokenizer=card("A"), world_model=card("B"),
                   copy_gate=card("C")), copying=copying)  # fmt: skip
    shutil.rmtree(folder / SECOND_OPINION)
    with pytest.raises(DataError, match="second opinion"):
        load_forecaster(folder)
    assert load_forecaster(folder, copy_path=False).copy_gate is None


def test_a_second_opinion_that_no_gate_hears_is_left_alone(models, tmp_path):  # noqa: F811
    cards = ModelCards(tokenizer=card("A"), world_model=card("B"), copy_gate=card("C"), second_opinion=card("D"))
    folder = save_model(tmp_path / "toy", *models, cards=cards, copying=CopyParts(always("second"), network()))
    save_copy_gate(folder / "copy_gate", always("recent"), card("C"))
    loaded = load_forecaster(folder)
    assert loaded.copy_gate is not None
    assert loaded.second_opinion is None


def test_a_gate_learns_to_hear_who_is_right():
    """Rays of a standing world: the pillars say where poles are, a random fog does not; with it, costs have columns."""
    sweeps = tuple(sweep_at(pose, t) for t, pose in enumerate(way(3)))
    clip = Clip(drive="a", past=sweeps[:2], future=sweeps[2:], past_frames=(0, 1), future_frames=(2,))
    heard = ModelForecaster(PillarTokenizer(), StandingWorld("reference"), second_opinion=network())
    (made,) = copy_learning.clip_examples(heard, clip, 10_000, 1, 0, np.random.default_rng(0))
    assert made.costs.shape[1] == 9
    gate = fit([made], steps=30)
    assert gate.config.hears_second_opinion
    column = made.costs.mean(axis=0)
    assert column[gate.config.candidates.index("nearest")] < column[gate.config.candidates.index("second")]

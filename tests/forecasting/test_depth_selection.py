"""A model that selects rendered or measured depths: in forecasts on rays, in generated sweeps, on disk."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d import load_forecaster
from copilot4d.baselines.ray_tracing import RayTracing
from copilot4d.checkpoints.depth_parts import DEPTH_SELECTOR, DepthParts, save_depth_selector
from copilot4d.checkpoints.model_folder import ModelCards, save_model
from copilot4d.checkpoints.pretrained import save_pretrained
from copilot4d.config import to_mapping
from copilot4d.depth_selection import FEATURES, MeasuredPast
from copilot4d.depth_selection.neighbours import AZIMUTHS
from copilot4d.errors import Copilot4dError, ProtocolError, UsageError
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.geometry import BeamPattern, Clip, Rays, se3
from copilot4d.training.tasks import depth_selector_examples
from tests.checkpoints.test_model_folder import card, depths_of, models  # noqa: F401  (models is a fixture)
from tests.forecasting.test_copilot4d import SECOND, WORLD, past_of, rays_at_poles, sweep_at, way
from tests.support.scenes import make_drive
from tests.support.selectors import always
from tests.support.stub_models import HALF_M, PillarTokenizer, StandingWorld

FAR_POLE = np.array([[HALF_M + 8.0, 1.0, 0.0]])  # beyond all that tokens show


def with_far_pole(count):
    ring = 0.3 * np.stack([np.cos(t := np.linspace(0, 6.2, 40)), np.sin(t), np.zeros(40)], -1)
    return [sweep_at(pose, t, FAR_POLE + ring) for t, pose in enumerate(way(count))]


def model(candidate, **settings):
    selector = None if candidate is None else always(candidate)
    return Copilot4D(PillarTokenizer(), StandingWorld("reference"), depth_selector=selector, **settings)


def test_a_selector_that_takes_nothing_measured_changes_nothing():
    future = way(2, start=2)
    rays = [rays_at_poles(pose)[0] for pose in future]
    plain = model(None).forecast(past_of(2), future, rays, steps=1)
    selected = model("rendered").forecast(past_of(2), future, rays, steps=1)
    for a, b in zip(plain.depths, selected.depths, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_selector_that_takes_measured_depths_alone_is_ray_tracing():
    future = way(2, start=2)
    rays = [rays_at_poles(pose)[0] for pose in future]
    traced = RayTracing().forecast(past_of(2), future, rays)
    selected = model("nearest").forecast(past_of(2), future, rays, steps=1)
    for a, b in zip(traced.depths, selected.depths, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def test_measured_depths_show_what_lies_beyond_the_region_to_rays_and_to_beams():
    past, future = with_far_pole(2), way(1, start=2)
    far = se3.transform_points(se3.relative_motion(future[0], WORLD), FAR_POLE)
    distance_m = float(np.linalg.norm(far))
    ray = Rays.from_origin(np.zeros(3), far / distance_m)
    alone = model(None).forecast(past, future, [ray], steps=1).depths[0][0]
    assert alone < distance_m - 4  # just behind the region's exit
    assert model("recent").forecast(past, future, [ray], steps=1).depths[0][0] == pytest.approx(distance_m, abs=0.4)
    sky = np.array([[0.0, 0.0, 1.0]])
    pattern = BeamPattern(np.concatenate([far / distance_m, sky]), 80.0)
    assert len(model(None, pattern=pattern).forecast(past, future, steps=1).sweeps[0]) == 0
    (generated,) = model("recent", pattern=pattern).forecast(past, future, steps=1).sweeps
    assert len(generated) == 1  # no beam comes back from the sky
    np.testing.assert_allclose(generated.points[0], far[0], atol=0.5)


def test_all_futures_take_measured_depths_and_forks_go_their_own_ways():
    past, future = with_far_pole(2), way(2, start=2)
    forecast = model("recent").forecast(past, future, [rays_at_poles(p)[0] for p in future], steps=1, futures=3)
    for other in forecast.alternatives:
        np.testing.assert_allclose(other.depths[1], forecast.depths[1], rtol=1e-5)  # what was measured is one
    world = model("recent").imagine(past, steps=1)
    fork = world.fork()
    rays = rays_at_poles(future[0])[0]
    (first,) = world.step(future[0], rays)
    (second,) = fork.step(future[0], rays)
    np.testing.assert_array_equal(first.depths, second.depths)


def test_a_model_that_selects_depths_says_so_and_can_be_had_without():
    selecting = model("recent")
    alone = selecting.tokens_only()
    assert selecting.settings["depth_selection"] is True
    assert alone.settings == model(None).settings
    assert "repeats what the past sweeps saw" in selecting.limits
    assert "farther out it predicts nothing" in alone.limits
    assert selecting.with_sampler(top_k=3).depth_selector is selecting.depth_selector


def test_a_saved_selector_forecasts_the_same(models, tmp_path):  # noqa: F811
    cards = ModelCards(tokenizer=card("A"), world_model=card("B"), depth_selector=card("C"))
    folder = save_model(tmp_path / "toy", *models, cards=cards, depth_parts=DepthParts(depth_selector=always("recent")))
    loaded = load_forecaster(folder)
    made = Copilot4D(*models, depth_selector=always("recent"))
    assert loaded.fingerprint == made.fingerprint != Copilot4D(*models).fingerprint
    np.testing.assert_array_equal(depths_of(loaded), depths_of(made))
    assert not np.allclose(depths_of(loaded), depths_of(loaded.tokens_only()))
    with pytest.raises(UsageError, match="model card"):
        save_model(tmp_path / "other", *models, cards=ModelCards(tokenizer=card("A"), world_model=card("B")),
                   depth_parts=DepthParts(depth_selector=always("recent")))  # fmt: skip


def test_a_selector_can_be_added_to_a_model_folder(models, tmp_path):  # noqa: F811
    cards = ModelCards(tokenizer=card("A"), world_model=card("B"))
    folder = save_model(tmp_path / "toy", *models, cards=cards)
    assert load_forecaster(folder).depth_selector is None
    save_depth_selector(folder / DEPTH_SELECTOR, always("recent"), card("C"))
    assert load_forecaster(folder).depth_selector is not None


def test_a_selector_of_another_version_is_refused_and_the_model_can_be_had_without_it(models, tmp_path):  # noqa: F811
    folder = save_model(tmp_path / "toy", *models, cards=ModelCards(tokenizer=card("A"), world_model=card("B")))
    selector = always("recent")
    config = to_mapping(selector.config) | {"candidates": ["rendered", "oldest"]}
    save_pretrained(
        folder / DEPTH_SELECTOR, selector, kind="depth_selector", config=config, card=card("C"), conventions={}
    )
    with pytest.raises(Copilot4dError, match="train it again"):
        load_forecaster(folder)
    assert load_forecaster(folder, depth_selection=False).depth_selector is None


def test_a_beam_does_not_come_back_from_what_nobody_has_seen():
    """To a scored ray a surface may begin there; a beam that is sent there need not meet one."""
    past, future = with_far_pole(2), way(1, start=2)
    sky = np.array([[0.0, 0.0, 1.0]])
    generated = model("unobserved", pattern=BeamPattern(sky, 80.0)).forecast(past, future, steps=1).sweeps[0]
    assert len(generated) == 0
    (depths,) = model("unobserved").forecast(past, future, [Rays.from_origin(np.zeros(3), sky)], steps=1).depths
    assert 0 < depths[0] < 5  # no beam has ever gone up


def test_a_selector_learns_from_the_same_rays_whether_all_beams_are_around_them_or_not(monkeypatch):
    """Costs and features are those of the true rays; only the view is that of the sensor's beams, where it is asked."""
    turn = np.linspace(0, 2 * np.pi, AZIMUTHS, endpoint=False) + 0.01  # one in each column of the view
    pattern = BeamPattern(np.stack([np.cos(turn), np.sin(turn), np.zeros_like(turn)], -1), 50.0)
    poses = way(3)
    sweeps = tuple(sweep_at(pose, t) for t, pose in enumerate(poses))
    clip = Clip(drive="a", past=sweeps[:2], future=sweeps[2:], past_frames=(0, 1), future_frames=(2,))
    made = {}
    for share in (0.0, 1.0):
        monkeypatch.setattr(depth_selector_examples, "AS_SENSOR", share)
        rng = np.random.default_rng(0)
        (made[share],) = depth_selector_examples.clip_examples(model(None, pattern=pattern), clip, 10_000, 1, 0, rng)
    given, sensed = made[0.0], made[1.0]
    np.testing.assert_allclose(given.features, sensed.features, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(given.costs, sensed.costs, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(given.cells, sensed.cells)
    assert np.flatnonzero(given.view[-1]).tolist() == sorted(set(given.cells.tolist()))
    assert sensed.view[-1].sum() == AZIMUTHS  # all round, also where nothing comes back


def test_selectors_learn_from_the_short_pasts_at_the_start_of_a_drive_and_from_whole_futures():
    drive = make_drive(30, rings=2, azimuths=8)
    windows = depth_selector_examples.moments({drive.name: drive}, "1s", 1000)
    assert {len(window.past) for window in windows} == {1, 2, 3, 4, 5}
    assert {len(window.future) for window in windows} == {5}
    assert set(range(19)) <= {window.reference for window in windows} <= set(range(20))  # of those with a whole future
    few = depth_selector_examples.moments({drive.name: drive}, "1s", 4)
    assert [window.reference for window in few] == [2, 7, 11, 16]  # from the middle of each quarter
    with pytest.raises(ProtocolError, match="no drive has a complete window"):
        depth_selector_examples.moments({drive.name: drive[:15]}, "1s", 4)


def test_a_selector_is_told_how_many_past_sweeps_there_are():
    sweeps = past_of(3)
    rays = rays_at_poles(way(1, start=3)[0])[0]
    told = []
    for past in (sweeps, sweeps[-1:]):
        session = model(None).imagine(past, steps=1)
        session.step(way(1, start=3)[0], rays)
        found = session.readings[0].candidates(MeasuredPast.of(past).along(rays, way(1, start=3)[0], SECOND), rays)
        told.append(found.features[0, FEATURES.index("past_sweeps")])
    assert told == [3.0, 1.0]

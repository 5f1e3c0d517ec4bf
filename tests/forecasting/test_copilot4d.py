"""Tokenizer and world model behind the Forecaster door: poses, windows, futures, forks."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

from copilot4d import presets
from copilot4d.errors import ForecastError, UsageError
from copilot4d.forecaster import Forecaster, Imaginative
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.forecasting.repeated import imagine
from copilot4d.geometry import BeamPattern, Rays, Sweep, se3
from copilot4d.tokenizer import Tokenizer
from copilot4d.world_model import WorldModel
from tests.support.stub_models import CELL_M, HALF_M, PillarTokenizer, StandingWorld

# A world that stands still: two poles of different distances, off all axes.
POLES = np.array([[9.3, 4.1, 0.0], [-3.2, 7.4, 0.0]])
POLE_RADIUS_M = 0.6
WORLD = se3.from_yaw(0.7, (120.0, -45.0, 3.0))  # the log's world is not the first lidar frame
SECOND = 1_000_000_000


def pole_points():
    turn = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    ring = POLE_RADIUS_M * np.stack([np.cos(turn), np.sin(turn), np.zeros_like(turn)], -1)
    return (POLES[:, None] + ring * np.linspace(0, 1, 5)[:, None, None, None]).reshape(-1, 3)


def way(count, start=0):
    """The ego drives and turns: poses in the log's world."""
    return np.stack(
        [se3.compose(WORLD, se3.from_yaw(0.12 * t, (0.8 * t, 0.05 * t * t, 0.0))) for t in range(start, start + count)]
    )


def sweep_at(pose, t, points=None):
    lidar_from_scene = se3.relative_motion(pose, WORLD)
    seen = se3.transform_points(lidar_from_scene, pole_points() if points is None else points)
    return Sweep(points=seen.astype(np.float32), world_from_lidar=pose, timestamp_ns=int(t * SECOND // 5))


def past_of(count):
    return [sweep_at(pose, t) for t, pose in enumerate(way(count))]


def rays_at_poles(pose):
    """From the future lidar to both poles, and one that looks the other way."""
    poles = se3.transform_points(se3.relative_motion(pose, WORLD), POLES)
    directions = np.concatenate([poles, -poles[:1]])
    return Rays.from_origin(np.zeros(3), directions / np.linalg.norm(directions, axis=1, keepdims=True)), poles


@pytest.mark.parametrize("token_frame", ["own", "reference"])
def test_rays_of_a_moving_ego_find_what_stands_still(token_frame):
    forecaster = Copilot4D(PillarTokenizer(), StandingWorld(token_frame))
    future = way(2, start=2)
    asked = [rays_at_poles(pose) for pose in future]
    forecast = forecaster.forecast(past_of(2), future, [rays for rays, _ in asked], steps=1)
    assert len(forecast.sweeps) == len(forecast.depths) == 2
    for i, (rays, poles) in enumerate(asked):
        expected = np.linalg.norm(poles, axis=1) - POLE_RADIUS_M
        np.testing.assert_allclose(forecast.depths[i][:2], expected, atol=1.6 * CELL_M)
        assert forecast.depths[i][2] > 12.0  # nothing there: behind the region's exit
        np.testing.assert_allclose(forecast.sweeps[i].points, rays.points_at(forecast.depths[i]), atol=1e-4)
        np.testing.assert_array_equal(forecast.sweeps[i].world_from_lidar, future[i])
        assert forecast.sweeps[i].timestamp_ns == (2 + i) * SECOND // 5


def test_tokens_are_made_in_their_own_frames_or_in_that_of_the_newest_sweep():
    past = past_of(2)
    for token_frame in ("own", "reference"):
        tokenizer = PillarTokenizer()
        Copilot4D(tokenizer, StandingWorld(token_frame)).imagine(past)
        seen_by_newest = past[1].points
        expected = past[0].points if token_frame == "own" else seen_by_newest  # the world stands still
        np.testing.assert_allclose(tokenizer.encoded[0], expected, atol=1e-4)
        np.testing.assert_allclose(tokenizer.encoded[1], seen_by_newest, atol=1e-4)


@pytest.mark.parametrize("token_frame", ["own", "reference"])
def test_generation_gives_the_beams_that_came_back(token_frame):
    turn = np.linspace(0, 2 * np.pi, 180, endpoint=False)
    pattern = BeamPattern(np.stack([np.cos(turn), np.sin(turn), np.zeros_like(turn)], -1), 9.0)
    forecaster = Copilot4D(PillarTokenizer(), StandingWorld(token_frame), pattern=pattern)
    forecast = forecaster.forecast(past_of(2), way(1, start=2), steps=1)
    assert forecast.depths is None
    points = forecast.sweeps[0].points
    poles = se3.transform_points(se3.relative_motion(way(1, start=2)[0], WORLD), POLES)
    near = poles[np.linalg.norm(poles, axis=1) < 9.0]
    assert len(near) > 0
    assert len(points) > 5
    distance = np.linalg.norm(points[:, None] - near, axis=-1).min(axis=1)
    assert distance.max() < POLE_RADIUS_M + 1.5 * CELL_M
    assert np.linalg.norm(points, axis=1).max() <= 9.0


@pytest.mark.parametrize("token_frame", ["own", "reference"])
def test_a_rollout_longer_than_the_window_still_sees_the_world(token_frame):
    """Six frames with a window of four: the ego has driven on, and the common frame with it."""
    tokenizer, world = PillarTokenizer(), StandingWorld(token_frame)
    turn = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    pattern = BeamPattern(np.stack([np.cos(turn), np.sin(turn), np.zeros_like(turn)], -1), 50.0)
    forecaster = Copilot4D(tokenizer, world, pattern=pattern)
    future = way(6, start=2)
    asked = [rays_at_poles(pose) for pose in future]
    forecast = forecaster.forecast(past_of(2), future, [rays for rays, _ in asked], steps=1, futures=2)
    for made in forecast.futures:
        for i, (_, poles) in enumerate(asked):
            expected = np.linalg.norm(poles, axis=1) - POLE_RADIUS_M
            np.testing.assert_allclose(made.depths[i][:2], expected, atol=4 * CELL_M)  # rounded at every frame
    if token_frame == "own":
        assert len(tokenizer.encoded) == 2
    else:  # the newest two sweeps of each future, twice, in the frame of the newest of them
        assert len(tokenizer.encoded) == 2 + 2 * 2 * 2
        newest_lidar_from_scene = se3.relative_motion(future[1], WORLD)
        poles = se3.transform_points(newest_lidar_from_scene, POLES)
        for points in tokenizer.encoded[2:4]:
            assert np.linalg.norm(points[:, None] - poles, axis=-1).min(axis=1).max() < POLE_RADIUS_M + 2 * CELL_M


def straight(*places_m, height_m=0.0):
    return np.stack([se3.compose(WORLD, se3.from_yaw(0.0, (x, 0.0, height_m))) for x in places_m])


def fast_drive(places_m, *, height_m=0.0, window=20, futures=1):
    """Past at -1 and 0 m, then the given places; the tokenizer, which has seen what was tokenised, and the depths."""
    tokenizer = PillarTokenizer()
    turn = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    pattern = BeamPattern(np.stack([np.cos(turn), np.sin(turn), np.zeros_like(turn)], -1), 60.0)
    world = StandingWorld("reference", frames=window)
    past = [sweep_at(pose, t) for t, pose in enumerate(straight(-1.0, 0.0))]
    future = straight(*places_m, height_m=height_m)
    asked = [rays_at_poles(pose) for pose in future]
    forecaster = Copilot4D(tokenizer, world, pattern=pattern)
    forecast = forecaster.forecast(past, future, [rays for rays, _ in asked], steps=1, futures=futures)
    return tokenizer, forecast, [np.linalg.norm(poles, axis=1) - POLE_RADIUS_M for _, poles in asked]


@pytest.mark.parametrize(
    ("places_m", "references_m"),
    [
        ([6.0, 12.0, 18.0, HALF_M - 0.01], [0.0]),  # as long as the ego is in the region: one clip, one reference
        ([6.0, 12.0, 18.0, HALF_M], [0.0, 18.0]),  # the region's upper edge is outside
        ([6.0, 12.0, 18.0, 24.0, 37.9, 38.0], [0.0, 18.0, 37.9]),  # counted from the new reference
        ([-HALF_M, -HALF_M - 0.5], [0.0, -HALF_M]),  # backwards; the lower edge is inside
        ([HALF_M + 1.0], [0.0]),  # nothing newer to refer to than the past's last sweep
        ([HALF_M + 1.0, HALF_M + 2.0], [0.0, HALF_M + 1.0]),
    ],
)
def test_the_reference_moves_when_the_ego_leaves_the_region_and_not_before(places_m, references_m):
    tokenizer, forecast, expected = fast_drive(places_m)
    assert len(tokenizer.encoded) == 2 * len(references_m)
    found_m = [se3.relative_motion(WORLD, newest.world_from_lidar)[0, 3] for newest in tokenizer.newest]
    np.testing.assert_allclose(found_m, references_m, atol=1e-9)
    for k in range(len(places_m) if references_m == [0.0] else 0):  # the nearer pole: it may hide the other
        np.testing.assert_allclose(forecast.depths[k][0], expected[k][0], atol=1.6 * CELL_M)


def test_an_ego_above_or_below_the_region_has_left_it_too():
    assert len(fast_drive([1.0, 2.0], height_m=1.9)[0].encoded) == 2
    assert len(fast_drive([1.0, 2.0], height_m=2.0)[0].encoded) == 4


def test_after_the_reference_moved_each_future_still_sees_what_stands():
    """A pole behind the ego, tokenised anew in the frame of the last place inside the first region."""
    _, forecast, expected = fast_drive([8.0, 16.0, 23.0], futures=2)
    for made in forecast.futures:
        np.testing.assert_allclose(made.depths[2][0], expected[2][0], atol=3 * CELL_M)  # rounded twice


def test_a_longer_past_counts_by_its_newest_sweeps_and_a_shorter_one_is_enough():
    world = StandingWorld("reference")
    long_past = [sweep_at(pose, t, np.full((5, 3), 3.0)) for t, pose in enumerate(way(3))] + [
        sweep_at(pose, t) for t, pose in enumerate(way(2, start=3), start=3)
    ]
    future = way(1, start=5)
    rays, poles = rays_at_poles(future[0])
    for past in (long_past, long_past[-1:]):
        world.remembered.clear()
        forecast = Copilot4D(PillarTokenizer(), world).forecast(past, future, [rays], steps=1)
        assert world.remembered == [min(2, len(past))]
        np.testing.assert_allclose(
            forecast.depths[0][:2], np.linalg.norm(poles, axis=1) - POLE_RADIUS_M, atol=1.6 * CELL_M
        )


def test_what_cannot_be_forecast_is_said():
    forecaster = Copilot4D(PillarTokenizer(), StandingWorld())
    empty = [sweep_at(pose, t + 1, np.zeros((0, 3))) for t, pose in enumerate(way(2, start=1))]
    with pytest.raises(ForecastError, match="newest 2 sweeps"):
        forecaster.imagine([sweep_at(way(1)[0], 0), *empty])
    world = forecaster.imagine(past_of(2))
    with pytest.raises(ForecastError, match=r"\(4, 4\)"):
        world.step(np.eye(3))
    with pytest.raises(ForecastError, match="rigid"):
        world.step(2 * np.eye(4))
    with pytest.raises(ForecastError, match="rigid"):
        world.step(np.full((4, 4), np.nan))
    bad = Rays(np.zeros((1, 3)), np.full((1, 3), np.nan))
    with pytest.raises(ForecastError, match="finite"):
        world.step(way(1, start=2)[0], bad)
    with pytest.raises(ForecastError, match="at least 1"):
        forecaster.forecast(past_of(2), way(1, start=2), futures=0)
    (frame,) = world.step(way(1, start=2)[0])  # none of them was a step
    assert frame.sweep.timestamp_ns == 2 * SECOND // 5


@pytest.mark.parametrize(
    ("token_frame", "where"),
    [("own", "the ego"), ("reference", "the ego's starting position")],
)
def test_it_says_how_far_it_sees(token_frame, where):
    forecaster = Copilot4D(PillarTokenizer(), StandingWorld(token_frame), name="toy")
    assert forecaster.region_half_m == HALF_M
    assert forecaster.limits == f"toy predicts within 20 m of {where}; farther out it predicts nothing."


def test_models_that_do_not_fit_are_refused():
    small = presets.tiny()
    world = WorldModel(small.world_model)
    with pytest.raises(UsageError, match="1024 codes"):
        Copilot4D(Tokenizer(presets.mini().tokenizer), world)


# The real networks, tiny and with random weights.


@pytest.fixture(scope="module")
def tiny():
    from dataclasses import replace

    config = presets.tiny()
    torch.manual_seed(5)
    tokenizer = Tokenizer(config.tokenizer)
    with torch.no_grad():  # random weights see the same fog everywhere: make it patchy, so that rays differ
        tokenizer.coarse_branch.linear.bias.fill_(0.0)
        tokenizer.codebook.weight.mul_(20.0)
        tokenizer.feature_grid.occupancy.weight.mul_(60.0)
        tokenizer.feature_grid.occupancy.bias.fill_(-8.0)
    return {
        frame: Copilot4D(tokenizer, WorldModel(replace(config.world_model, token_frame=frame)))
        for frame in ("own", "reference")
    }


def clip(seed=0, points=300):
    rng = np.random.default_rng(seed)
    cloud = rng.uniform((-14, -14, -1.5), (14, 14, 1.0), (points, 3))
    return [sweep_at(pose, t, cloud) for t, pose in enumerate(way(2))]


def some_rays(count=150, seed=1):
    directions = np.random.default_rng(seed).normal(size=(count, 3)) * (1, 1, 0.1)
    return Rays.from_origin(np.zeros(3), directions / np.linalg.norm(directions, axis=1, keepdims=True))


@pytest.mark.parametrize("token_frame", ["own", "reference"])
def test_it_speaks_both_protocols(tiny, token_frame):
    assert isinstance(tiny[token_frame], Forecaster)
    assert isinstance(tiny[token_frame], Imaginative)


@pytest.mark.parametrize("token_frame", ["own", "reference"])
def test_a_future_is_the_same_alone_and_among_others(tiny, token_frame):
    forecaster, past, future = tiny[token_frame], clip(), way(4, start=2)  # two frames beyond the window
    rays = [some_rays(seed=i) for i in range(4)]
    many = forecaster.forecast(past, future, rays, steps=3, seed=7, futures=3)
    alone = forecaster.forecast(past, future, rays, steps=3, seed=7)
    again = forecaster.forecast(past, future, rays, steps=3, seed=7, futures=2)
    other_seed = forecaster.forecast(past, future, rays, steps=3, seed=8)
    for i in range(4):
        np.testing.assert_allclose(many.depths[i], alone.depths[i], atol=1e-3)
        np.testing.assert_allclose(many.futures[1].depths[i], again.futures[1].depths[i], atol=1e-3)
    assert np.abs(many.depths[0] - many.futures[1].depths[0]).max() > 0.1
    assert np.abs(alone.depths[0] - other_seed.depths[0]).max() > 0.1


@pytest.mark.parametrize("token_frame", ["own", "reference"])
def test_frame_by_frame_is_the_forecast(tiny, token_frame):
    forecaster, past, future = tiny[token_frame], clip(), way(3, start=2)
    rays = [some_rays(seed=i) for i in range(3)]
    whole = forecaster.forecast(past, future, rays, guidance=0.5, steps=2, seed=3, futures=2)
    world = imagine(forecaster, past, guidance=0.5, steps=2, seed=3, futures=2)
    for i in range(3):
        frames = world.step(future[i], rays[i])
        for s, frame in enumerate(frames):
            np.testing.assert_array_equal(frame.depths, whole.futures[s].depths[i])
            np.testing.assert_array_equal(frame.sweep.points, whole.futures[s].sweeps[i].points)
            assert frame.tokens.shape == (16, 16)
            assert frame.opacity.shape == (150,)
            assert frame.opacity.min() >= 0
            assert frame.opacity.max() <= 1


@pytest.mark.parametrize("token_frame", ["own", "reference"])
def test_forks_go_their_own_ways(tiny, token_frame):
    forecaster, past = tiny[token_frame], clip()
    ahead, aside = way(4, start=2), way(4, start=2) @ se3.from_yaw(0.5, (0.0, 2.0, 0.0))
    rays = some_rays()
    world = forecaster.imagine(past, steps=2, seed=3)
    world.step(ahead[0], rays)
    fork, second = world.fork(), world.fork()
    expected = forecaster.forecast(past, ahead, [rays] * 4, steps=2, seed=3)
    diverted = forecaster.forecast(past, np.stack([ahead[0], *aside[1:]]), [rays] * 4, steps=2, seed=3)
    for i in range(1, 4):  # in turns: neither may write into what the other remembers
        np.testing.assert_allclose(fork.step(aside[i], rays)[0].depths, diverted.depths[i], atol=1e-3)
        np.testing.assert_allclose(world.step(ahead[i], rays)[0].depths, expected.depths[i], atol=1e-3)
    for i in range(1, 4):
        np.testing.assert_allclose(second.step(ahead[i], rays)[0].depths, expected.depths[i], atol=1e-3)


def test_each_future_goes_on_from_its_own_frames(tiny, monkeypatch):
    """When the reference moves, what is tokenised anew are the sweeps that this very future showed."""
    forecaster, future = tiny["reference"], way(3, start=2)
    world = forecaster.imagine(clip(), steps=2, seed=3, futures=2)
    shown = [world.step(pose) for pose in future[:2]]  # now the window of four frames is full
    encoded = []
    encode = forecaster.tokenizer.encode
    monkeypatch.setattr(forecaster.tokenizer, "encode", lambda sweeps: encoded.append(sweeps) or encode(sweeps))
    rollout = importlib.import_module("copilot4d.world_model.rollout")
    draws, made = rollout.Draws, []
    monkeypatch.setattr(rollout, "Draws", lambda *a: made.append(a) or draws(*a))
    world.step(future[2])
    assert made == [(3, [0], 2), (3, [1], 2)]  # random numbers go on: seed, future, third frame
    assert len(encoded) == 2
    newest_from_older = se3.relative_motion(future[1], future[0])
    for s, (older, newest) in enumerate(encoded):
        np.testing.assert_allclose(newest.points, shown[1][s].sweep.points, atol=1e-4)
        expected = se3.transform_points(newest_from_older, shown[0][s].sweep.points)
        np.testing.assert_allclose(older.points, expected, atol=1e-4)
    assert len(encoded[0][1]) != len(encoded[1][1]) or np.abs(encoded[0][1].points - encoded[1][1].points).max() > 0.1


def test_the_future_does_not_depend_on_which_rays_were_asked_on_the_way(tiny):
    """A moved reference looks with the sensor's beams, whether those or others were asked for before."""
    future, rays = way(5, start=2), some_rays()
    free, mixed, asked = (tiny["reference"].imagine(clip(), steps=2, seed=3, futures=2) for _ in range(3))
    for k, pose in enumerate(future):
        last = k == len(future) - 1
        seen = free.step(pose, rays if last else None)
        seen_mixed = mixed.step(pose, rays if last or k % 2 else None)
        seen_asked = asked.step(pose, rays)
    for s in range(2):
        np.testing.assert_array_equal(seen[s].tokens, seen_asked[s].tokens)
        np.testing.assert_array_equal(seen[s].depths, seen_asked[s].depths)
        np.testing.assert_array_equal(seen_mixed[s].tokens, seen_asked[s].tokens)


def test_where_the_ego_goes_changes_what_is_forecast(tiny):
    for forecaster in tiny.values():
        straight = forecaster.forecast(clip(), way(1, start=2), steps=2)
        turned = forecaster.forecast(clip(), way(1, start=2) @ se3.from_yaw(1.0), steps=2)
        a, b = straight.sweeps[0].points, turned.sweeps[0].points
        assert len(a) != len(b) or np.abs(a - b).max() > 0.1


def test_no_rays_have_no_depths(tiny):
    nothing = Rays(origins=np.zeros((0, 3)), directions=np.zeros((0, 3)))
    for forecaster in tiny.values():
        forecast = forecaster.forecast(clip(), way(2, start=2), [nothing, some_rays()], steps=1, futures=2)
        for future in forecast.futures:
            assert [len(depths) for depths in future.depths] == [0, 150]
            assert [len(sweep) for sweep in future.sweeps] == [0, 150]


def test_rays_of_several_lidars_start_where_they_start():
    """A lidar that is mounted 2 m aside sees the pole from there."""
    future = way(1, start=2)
    poles = se3.transform_points(se3.relative_motion(future[0], WORLD), POLES)
    origin = np.array([0.0, -2.0, 0.0])
    directions = (poles - origin) / np.linalg.norm(poles - origin, axis=1, keepdims=True)
    rays = Rays.from_origin(origin, directions)
    for token_frame in ("own", "reference"):
        forecast = Copilot4D(PillarTokenizer(), StandingWorld(token_frame)).forecast(
            past_of(2), future, [rays], steps=1
        )
        expected = np.linalg.norm(poles - origin, axis=1) - POLE_RADIUS_M
        np.testing.assert_allclose(forecast.depths[0], expected, atol=1.6 * CELL_M)
        np.testing.assert_allclose(forecast.sweeps[0].origins, rays.origins, atol=1e-6)
        np.testing.assert_allclose(forecast.sweeps[0].points, rays.points_at(forecast.depths[0]), atol=1e-4)


def test_the_fingerprint_tells_weights_and_settings_apart(tiny):
    forecaster = tiny["own"]
    same = Copilot4D(forecaster.tokenizer, forecaster.world_model)
    assert same.fingerprint == forecaster.fingerprint != tiny["reference"].fingerprint
    assert forecaster.with_sampler(schedule="few_first").fingerprint != forecaster.fingerprint
    torch.manual_seed(6)
    other = Copilot4D(Tokenizer(presets.tiny().tokenizer), forecaster.world_model)
    assert other.fingerprint != forecaster.fingerprint
    with pytest.raises(UsageError, match="schedule"):
        forecaster.with_sampler(schedule="nope")

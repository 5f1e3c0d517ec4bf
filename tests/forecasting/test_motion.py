"""Moving objects in a forecast: what the world model expects, and what a depth selector may choose."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d.depth_selection import CANDIDATES, MeasuredPast, candidates
from copilot4d.depth_selection.candidates import MOTION_CANDIDATES, MOTION_FEATURES
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.geometry import BeamPattern, Rays, se3
from copilot4d.motion import extrapolate
from tests.motion.scenes import drive_past
from tests.support.selectors import always
from tests.support.stub_models import PillarTokenizer, StandingWorld

STEP_S = 0.2


def past_and_way(frames, *, ego_m_s=0.0, **options):
    """A car that passes at 8 m/s, and where the ego goes on to."""
    past = drive_past((8.0, 0.0), ego_m_s=ego_m_s, start=(-6.0, 4.0), **options)
    places = [ego_m_s * STEP_S * (len(past) + i) for i in range(frames)]
    return past, np.stack([se3.from_yaw(0.0, (x, 0.0, 0.0)) for x in places])


def ray_to(world_point, pose):
    """Along a ray of a lidar at a pose to a point of the world, and how far it is."""
    there = se3.transform_points(se3.invert(pose), np.array([world_point]))[0]
    distance_m = float(np.linalg.norm(there))
    return Rays.from_origin(np.zeros(3), there[None] / distance_m), distance_m


def side_of_car(frame):
    """A point of the world on the near side, so many frames after the newest of five sweeps."""
    return (-6.0 + 8.0 * STEP_S * (4 + frame) + 2.2, 4.0, -0.5)


@pytest.mark.parametrize("token_frame", ["reference", "own"])
def test_a_model_that_believes_what_is_expected_moves_the_car(token_frame):
    past, way = past_and_way(3, ego_m_s=2.0, with_ground=False)
    world = StandingWorld(token_frame, expected_input=True, past_frames=5, frames=10)
    model = Copilot4D(PillarTokenizer(), world)
    for i, pose in enumerate(way):
        ray, distance_m = ray_to(side_of_car(i + 1), pose)
        rays = [ray if k == i else ray_to((5.0, 9.0, 0.0), way[k])[0] for k in range(3)]
        depth = model.forecast(past, way, rays, steps=1).depths[i][0]
        assert depth == pytest.approx(distance_m, abs=0.8), i
        standing = Copilot4D(PillarTokenizer(), StandingWorld(token_frame, past_frames=5, frames=10))
        if i == 2:  # 5 m on
            assert standing.forecast(past, way, rays, steps=1).depths[i][0] > distance_m + 2


def test_of_a_single_sweep_nothing_is_expected():
    past, _ = past_and_way(1)
    world = StandingWorld("reference", expected_input=True, past_frames=5, frames=10)
    session = Copilot4D(PillarTokenizer(), world).imagine(past[-1:], steps=1)
    assert session._stretches[0].carried_on is None


def test_expectations_are_of_the_time_of_their_frame():
    past, way = past_and_way(2, ego_m_s=1.0, with_ground=False)
    world = StandingWorld("reference", expected_input=True, past_frames=5, frames=10)
    tokenizer = PillarTokenizer()
    session = Copilot4D(tokenizer, world).imagine(past, steps=1)
    for pose in way:
        session.step(pose, ray_to((5.0, 9.0, 0.0), pose)[0])
    carried_on = extrapolate(past)
    for i in range(2):
        sweep = carried_on.sweep_at(STEP_S * (i + 1), past[-1], tokenizer.config.grid.box)
        assert torch.equal(session._stretches[0].rollout.expected[0, 5 + i], tokenizer.encode([sweep])[0])


def test_rays_may_be_answered_with_what_moves_and_what_stands_behind_it():
    past, way = past_and_way(1)
    pose = way[0]
    ray, distance_m = ray_to(side_of_car(5), pose)  # a second later
    measured = MeasuredPast.of(past, extrapolate(past))
    ahead = measured.along(ray, pose, past[-1].timestamp_ns + 1_000_000_000)
    found = candidates(ahead, ray, np.array([20.0]), np.array([0.9]), np.array([32.0]))
    names = CANDIDATES + MOTION_CANDIDATES
    assert found.depths_m[0, names.index("moving")] == pytest.approx(distance_m, abs=0.8)
    assert found.returns[0, names.index("moving")]
    speed = found.features[0, -len(MOTION_FEATURES) :][MOTION_FEATURES.index("moving_speed")]
    assert speed == pytest.approx(8.0, abs=0.6)
    # Where the car is now, a ray meets the wall if the car is gone: the nearest measured point is the car's.
    now, car_m = ray_to((-6.0 + 8.0 * STEP_S * 4 + 0.5, 4.0, -0.5), pose)
    ahead = measured.along(now, pose, past[-1].timestamp_ns + 1_000_000_000)
    found = candidates(ahead, now, np.array([20.0]), np.array([0.9]), np.array([32.0]))
    assert found.depths_m[0, names.index("nearest")] == pytest.approx(car_m, abs=0.5)
    assert found.depths_m[0, names.index("still")] > car_m + 3


def test_where_nothing_moves_the_candidates_are_what_stands():
    past, way = past_and_way(1, with_car=False)
    ray, wall_m = ray_to((5.0, 9.0, 0.0), way[0])
    measured = MeasuredPast.of(past, extrapolate(past))
    found = candidates(
        measured.along(ray, way[0], past[-1].timestamp_ns), ray, np.array([20.0]), np.array([0.9]), np.array([32.0])
    )
    assert found.depths_m[0, -2:] == pytest.approx([wall_m, wall_m], abs=0.5)
    assert not found.returns[0, -1]


def test_a_selector_that_takes_what_moves_moves_the_car_on_rays_and_beams():
    past, way = past_and_way(5)
    ray, distance_m = ray_to(side_of_car(5), way[4])
    pattern = BeamPattern(ray.directions, 60.0)
    model = Copilot4D(
        PillarTokenizer(), StandingWorld("reference", past_frames=5, frames=10), depth_selector=always("moving"),
        pattern=pattern,
    )  # fmt: skip
    assert model.forecast(past, way, [ray] * 5, steps=1).depths[4][0] == pytest.approx(distance_m, abs=0.8)
    assert len(model.forecast(past, way, steps=1).sweeps[4]) == 1

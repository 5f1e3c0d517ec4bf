"""Any forecaster can be imagined with, frame by frame: the same frames as its forecast, forks that do not meddle."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d import load_forecaster
from copilot4d.errors import ForecastError
from copilot4d.forecaster import Forecast, Imaginative, PlainForecaster, Sampling
from copilot4d.forecasting.repeated import RepeatedForecast, imagine
from copilot4d.geometry import Rays, Sweep, se3

CLOUD = np.random.default_rng(0).uniform((-9, -9, -1), (9, 9, 1), (300, 3)).astype(np.float32)


def poses(*steps):
    return np.stack([se3.from_yaw(0.1 * t, (1.0 * t, 0.2 * t * t, 0.0)) for t in steps])


def past():
    return [
        Sweep(points=CLOUD + 0.1 * t, world_from_lidar=p, timestamp_ns=t * 10**8) for t, p in enumerate(poses(0, 1))
    ]


def some_rays(seed):
    directions = np.random.default_rng(seed).normal(size=(20, 3))
    return Rays.from_origin(np.zeros(3), directions / np.linalg.norm(directions, axis=1, keepdims=True))


@pytest.mark.parametrize("name", ["copy_last", "ray_tracing"])
@pytest.mark.parametrize("with_rays", [False, True])
def test_steps_are_the_frames_of_the_forecast(name, with_rays):
    model, future = load_forecaster(name), poses(2, 3, 4)
    assert not isinstance(model, Imaginative)
    rays = [some_rays(i) for i in range(3)] if with_rays else None
    whole = model.forecast(past(), future, rays, futures=2)
    world = imagine(model, past(), futures=2)
    for i in range(3):
        frames = world.step(future[i], rays[i] if rays else None)
        assert len(frames) == world.futures == 2
        for frame in frames:
            np.testing.assert_array_equal(frame.sweep.points, whole.sweeps[i].points)
            np.testing.assert_array_equal(frame.sweep.world_from_lidar, future[i])
            assert frame.sweep.timestamp_ns == (2 + i) * 10**8
            if with_rays:
                np.testing.assert_array_equal(frame.depths, whole.depths[i])
            else:
                assert frame.depths is None
            assert frame.opacity is None
            assert frame.tokens is None


class Recorder(PlainForecaster):
    """Gives nothing but an account of what it was asked."""

    name = "recorder"

    def __init__(self):
        self.asked, self.fails = [], False

    def forecast(self, past, future_poses, rays=None, *, guidance=None, steps=None, seed=0, futures=1):
        if self.fails:
            raise ForecastError("not now")
        self.asked.append((np.array(future_poses), guidance, steps, seed, futures))
        sweeps = tuple(Sweep(points=CLOUD[:1], world_from_lidar=p, timestamp_ns=0) for p in future_poses)
        only = Forecast(sweeps=sweeps)
        return Forecast(sweeps=sweeps, alternatives=(only,) * (futures - 1))


def test_settings_reach_the_forecaster_and_poses_gather():
    model = Recorder()
    world = imagine(model, past(), guidance=2.0, steps=3, seed=9, futures=4)
    assert isinstance(world, RepeatedForecast)
    for pose in poses(2, 3):
        world.step(pose)
    np.testing.assert_array_equal(model.asked[-1][0], poses(2, 3))
    assert model.asked[-1][1:] == (2.0, 3, 9, 4)


def test_what_is_left_open_is_as_stored_with_the_model():
    model = Recorder()
    imagine(model, past()).step(poses(2)[0])
    assert model.asked[-1][1:3] == (1.0, 10)  # it stores nothing
    model.sampling = Sampling(guidance=0.5, steps=3)
    imagine(model, past(), steps=4).step(poses(2)[0])
    assert model.asked[-1][1:3] == (0.5, 4)


def test_forks_do_not_meddle():
    model = Recorder()
    world = imagine(model, past(), seed=5)
    world.step(poses(2)[0])
    fork = world.fork()
    fork.step(poses(7)[0])
    world.step(poses(3)[0])
    np.testing.assert_array_equal(model.asked[-1][0], poses(2, 3))
    fork.step(poses(8)[0])
    np.testing.assert_array_equal(model.asked[-1][0], poses(2, 7, 8))
    assert model.asked[-1][1:] == (1.0, 10, 5, 1)


def test_a_step_that_failed_was_not_taken():
    model = Recorder()
    world = imagine(model, past())
    model.fails = True
    with pytest.raises(ForecastError, match="not now"):
        world.step(poses(2)[0])
    with pytest.raises(ForecastError, match=r"\(4, 4\)"):
        world.step(np.eye(3))
    model.fails = False
    world.step(poses(3)[0])
    np.testing.assert_array_equal(model.asked[-1][0], poses(3))

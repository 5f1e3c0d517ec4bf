"""The library's two doors: sweeps that cannot be, and poses that no drive has, are refused in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from copilot4d import load_forecaster
from copilot4d.errors import Copilot4dWarning, ForecastError, UsageError
from copilot4d.forecasting.repeated import imagine
from copilot4d.geometry import Sweep, se3
from copilot4d.geometry.beam_pattern import MAX_BEAMS, estimate_beam_pattern
from tests.support.shipped import shipped_mini


def sweep(points, t=0, **more):
    return Sweep(
        points=np.asarray(points, dtype=np.float32), world_from_lidar=se3.from_yaw(0.0, (t, 0.0, 0.0)),
        timestamp_ns=t * 200_000_000, **more,
    )  # fmt: skip


def cloud(n=400, seed=0):
    return np.random.default_rng(seed).uniform((-20, -20, -1.5), (20, 20, 2.0), (n, 3)).astype(np.float32)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", ["points", "origins"])
def test_one_number_of_a_sweep_that_is_not_finite_is_refused(value, field):
    arrays = {"points": cloud(50), "origins": np.zeros((50, 3), dtype=np.float32)}
    arrays[field][17, 1] = value
    with pytest.raises(UsageError, match=rf"Sweep\.{field} must be finite: 1 of 50 rows.*row 17"):
        sweep(**arrays)


def test_a_pose_of_a_sweep_must_be_finite():
    pose = se3.identity()
    pose[0, 3] = np.nan
    with pytest.raises(UsageError, match="world_from_lidar must be finite"):
        Sweep(points=cloud(5), world_from_lidar=pose, timestamp_ns=0)


@pytest.mark.parametrize("name", ["copy_last", "ray_tracing", "occupancy_4d", "mini"])
def test_a_future_pose_in_another_world_is_refused(name):
    shipped_mini()
    past = [sweep(cloud(seed=t), t) for t in range(2)]
    with pytest.raises(ForecastError, match="future pose 0 lies 500 m from the newest past sweep"):
        load_forecaster(name).forecast(past, se3.from_yaw(0.0, (501.0, 0.0, 0.0))[None])
    near_then_far = np.stack([se3.from_yaw(0.0, (2.0, 0.0, 0.0)), se3.from_yaw(0.0, (400.0, 0.0, 0.0))])
    with pytest.raises(ForecastError, match="future pose 1 lies 398 m from future pose 0"):
        load_forecaster(name).forecast(past, near_then_far)


@pytest.mark.parametrize("name", ["ray_tracing", "mini"])
def test_a_drive_far_from_the_origin_of_its_world_is_forecast_and_its_jumps_are_refused(name):
    """Logs in city or UTM coordinates: what counts is the distance from the pose before, not from the origin."""
    shipped_mini()
    away = se3.from_yaw(0.0, (5000.0, -3000.0, 0.0))
    past = [
        replace(sweep(cloud(seed=t), t), world_from_lidar=away @ sweep(cloud(5), t).world_from_lidar) for t in (0, 1)
    ]
    imagined = imagine(load_forecaster(name), past, steps=1)
    (frame,) = imagined.step(away @ se3.from_yaw(0.0, (2.0, 0.0, 0.0)))
    assert len(frame.sweep) > 0
    with pytest.raises(ForecastError, match=r"583\d m from"):
        imagined.step(se3.from_yaw(0.0, (3.0, 0.0, 0.0)))


def test_a_frame_outside_the_region_that_has_no_points_says_so():
    shipped_mini()
    past = [sweep(cloud(seed=t), t) for t in range(2)]
    with pytest.warns(Copilot4dWarning, match=r"frame 0 of the forecast has no points.*150 m.*mini sees 32 m"):
        forecast = load_forecaster("mini").forecast(past, se3.from_yaw(0.0, (151.0, 0.0, 0.0))[None], steps=1)
    assert len(forecast.sweeps[0]) == 0


def test_the_beams_of_a_huge_sweep_are_bounded():
    directions = np.random.default_rng(1).normal(size=(MAX_BEAMS + 50_000, 3))
    with pytest.warns(Copilot4dWarning, match=r"250000 beams; 200000 of them"):
        pattern = estimate_beam_pattern([sweep(10 * directions)])
    assert len(pattern.directions) == MAX_BEAMS

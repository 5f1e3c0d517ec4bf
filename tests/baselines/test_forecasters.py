"""What holds for every baseline."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

from copilot4d import load_forecaster
from copilot4d.baselines import BASELINES
from copilot4d.errors import ForecastError, UsageError
from copilot4d.forecaster import Forecaster
from copilot4d.geometry import Rays, Sweep, se3
from copilot4d.geometry.motion import continue_motion
from tests.support.scenes import make_drive

NAMES = sorted(BASELINES)


@pytest.fixture(scope="module")
def past() -> list[Sweep]:
    return list(make_drive(frames=4, rings=16, azimuths=120))


@pytest.mark.parametrize("name", NAMES)
def test_is_loaded_by_its_name_and_speaks_the_protocol(name: str) -> None:
    forecaster = load_forecaster(name)
    assert isinstance(forecaster, Forecaster)
    assert forecaster.name == name
    assert inspect.signature(type(forecaster).forecast) == inspect.signature(Forecaster.forecast)


@pytest.mark.parametrize("name", NAMES)
def test_further_futures_repeat_the_first(name: str, past: list[Sweep]) -> None:
    poses = np.stack([se3.from_yaw(0.1, (3, 0, 1.7)), se3.from_yaw(0.2, (4, 0, 1.7))])
    rays = [past[0].rays()[0], past[1].rays()[0]]
    forecast = load_forecaster(name).forecast(past, poses, rays, futures=3, seed=7)
    assert len(forecast.futures) == 3
    for other in forecast.alternatives:
        assert other.alternatives == ()
        for mine, its in zip(forecast.sweeps, other.sweeps, strict=True):
            np.testing.assert_array_equal(mine.points, its.points)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_time_is_past_then_future_at_the_pasts_rate(name: str, past: list[Sweep]) -> None:
    poses = np.stack([se3.identity()] * 3)
    stamps = [s.timestamp_ns for s in load_forecaster(name).forecast(past, poses).sweeps]
    assert stamps == [400_000_000, 500_000_000, 600_000_000]


@pytest.mark.parametrize("name", NAMES)
def test_a_ray_set_may_be_empty(name: str, past: list[Sweep]) -> None:
    none = Rays(np.zeros((0, 3)), np.zeros((0, 3)))
    depths = load_forecaster(name).forecast(past, se3.identity()[None], [none]).depths
    assert depths is not None
    assert depths[0].shape == (0,)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"past": []}, "at least one past sweep"),
        ({"future_poses": np.eye(4)}, r"\(F, 4, 4\)"),
        ({"future_poses": 2 * np.eye(4)[None]}, "rigid"),
        ({"rays": []}, "one Rays per future pose"),
        ({"futures": 0}, "futures"),
    ],
)
def test_refuses_arguments_that_do_not_fit(name: str, change: dict, message: str, past: list[Sweep]) -> None:
    arguments = {"past": past, "future_poses": se3.identity()[None], **change}
    with pytest.raises(ForecastError, match=message):
        load_forecaster(name).forecast(**arguments)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no model 'copylast'.*copy_last, ray_tracing"):
        load_forecaster("copylast")


def test_a_folder_without_a_known_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a folder.*no model.*copy_last"):
        load_forecaster(tmp_path)


def test_motion_goes_on_round_the_bend() -> None:
    # 1 m forward and 90 degrees left at each step: the four corners of a square, for ever.
    step = se3.from_yaw(np.pi / 2, (1, 0, 0))
    start = se3.from_yaw(0.3, (600_000, 5_000_000, 7))
    future = continue_motion(np.stack([start, se3.compose(start, step)]), 3)
    np.testing.assert_allclose(future[0], se3.compose(start, step, step), atol=1e-9)
    np.testing.assert_allclose(future[2], start, atol=1e-8)
    assert se3.rigidity_error(future).max() < 1e-12


def test_motion_from_one_pose_stands_still_and_none_is_none() -> None:
    np.testing.assert_allclose(continue_motion(se3.from_yaw(1, (1, 2, 3))[None], 2), [se3.from_yaw(1, (1, 2, 3))] * 2)
    assert continue_motion(se3.identity((2,)), 0).shape == (0, 4, 4)

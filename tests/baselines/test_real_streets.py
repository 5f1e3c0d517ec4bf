"""The baselines on a real street: strong, as they should be, and only with the right poses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from copilot4d import load_forecaster, open_dataset
from copilot4d.datasets.windows import read_clip, window_at
from copilot4d.geometry import Clip, se3
from tests.support.real_data import unpack_drive


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Clip:
    root: Path = unpack_drive("train_0011", tmp_path_factory.mktemp("kitti"), sweeps=10)
    drive = open_dataset(root)["train_0011"]
    return read_clip(drive, window_at(drive, 4, "1s"))


def median_error_m(name: str, clip: Clip) -> list[float]:
    """Per horizon, the median over all rays of |predicted depth - true depth|."""
    rays, true_m = zip(*(sweep.rays() for sweep in clip.future), strict=True)
    depths = load_forecaster(name).forecast(clip.past, clip.future_poses, rays).depths
    assert depths is not None
    return [float(np.median(np.abs(d - t))) for d, t in zip(depths, true_m, strict=True)]


def test_depths_are_right_to_centimetres_and_gathering_the_past_helps(clip: Clip) -> None:
    traced, copied = median_error_m("ray_tracing", clip), median_error_m("copy_last", clip)
    assert max(traced) < 0.2
    assert all(t < c for t, c in zip(traced, copied, strict=True))


def test_inverted_poses_would_be_noticed(clip: Clip) -> None:
    def turned(sweeps):
        return tuple(replace(s, world_from_lidar=se3.invert(s.world_from_lidar)) for s in sweeps)

    wrong = replace(clip, past=turned(clip.past), future=turned(clip.future))
    for name in ("ray_tracing", "copy_last"):
        assert median_error_m(name, wrong)[-1] > 3 * median_error_m(name, clip)[-1]

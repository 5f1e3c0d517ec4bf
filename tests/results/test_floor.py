"""The floor: a tokenizer that loses nothing scores zero, in either token frame, and only on the drives it knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import floor
import numpy as np
import pytest
import torch
from causes import explain

from copilot4d.checkpoints.load_tokenizer import LoadedTokenizer
from copilot4d.datasets.windows import read_clip, window_at
from copilot4d.errors import ForecastError, UsageError
from copilot4d.evaluation import Protocol, evaluate_dataset
from copilot4d.evaluation.true_rays import true_frame
from tests.support.scenes import make_drive


class PerfectTokenizer:
    """Its scene is the cloud itself; a ray is answered by the point nearest in direction."""

    def __init__(self, mode="full"):
        self.config = SimpleNamespace(mode=mode)

    def eval(self):
        return self

    def encode(self, sweeps):
        return sweeps

    def decode(self, tokens):
        return [sweep.points.astype(np.float64) for sweep in tokens]

    def render(self, scene, rays, seed):
        (rays,) = rays
        (points,) = scene
        seen = points - rays.origins[0]
        depths = np.linalg.norm(seen, axis=-1)
        nearest = np.concatenate(
            [(part @ (seen / depths[:, None]).T).argmax(axis=1) for part in np.array_split(rays.directions, 16)]
        )
        answered_m = torch.from_numpy(depths[nearest])
        full = torch.ones_like(answered_m)
        return SimpleNamespace(answered_m=answered_m, opacity=full, returned=full.bool(), exit_m=answered_m)


@dataclass(frozen=True)
class Loaded:
    tokenizer: object
    sha256: str = "abc"


def floor_of(drives, *, setting="1s", mode="full", **options) -> floor.TokenizerFloor:
    loaded: LoadedTokenizer = Loaded(PerfectTokenizer(mode))  # type: ignore[assignment]
    return floor.TokenizerFloor(loaded, drives, setting, **options)


@pytest.fixture(scope="module")
def drive():
    return make_drive(24, rings=12, azimuths=90, yaw_rate=0.3)


@pytest.mark.parametrize("token_frame", ["reference", "own"])
def test_a_tokenizer_that_loses_nothing_scores_zero(drive, token_frame):
    protocol = Protocol(roi_half_m=32, every=6)
    perfect = floor_of({"toy": drive}, token_frame=token_frame)
    scores = evaluate_dataset(perfect, {"toy": drive}, setting="1s", protocol=protocol)
    assert max(scores.metrics.values()) < 1e-3
    assert scores.model == "tokenizer_floor"
    assert scores.options["token_frame"] == token_frame


def test_points_and_rays_are_both_in_the_reference_frame(drive):
    """The tokenizer's region is around the reference sweep: a point that the ego has yet to pass keeps its place."""
    perfect = floor_of({"toy": drive})
    seen = []
    perfect.tokenizer.encode = lambda sweeps: seen.append(sweeps[0].points) or sweeps
    clip = read_clip(drive, window_at(drive, 8, "1s"))
    truth = [true_frame(clip, i, Protocol(roi_half_m=32)) for i in range(5)]
    perfect.forecast(clip.past, clip.future_poses, [frame.rays for frame in truth])
    moved = [clip.future[k].points_in(np.linalg.inv(clip.reference.world_from_lidar)) for k in range(5)]
    for k in range(5):
        np.testing.assert_allclose(seen[k], moved[k], atol=1e-4)
    assert np.abs(moved[4] - clip.future[4].points).max() > 1.0


def test_drives_that_start_alike_are_told_apart_by_where_they_go(drive):
    other = make_drive(24, rings=12, azimuths=90, yaw_rate=-0.3, name="other")
    assert np.array_equal(drive.world_from_lidar[0], other.world_from_lidar[0])
    perfect = floor_of({"toy": drive, "other": other})
    clip = read_clip(other, window_at(other, 0, "1s"))
    found = perfect._future(clip.reference, clip.future_poses)
    assert all(np.array_equal(a.points, b.points) for a, b in zip(found, clip.future, strict=True))


def test_what_it_does_not_know_is_refused(drive):
    clip = read_clip(drive, window_at(drive, 8, "1s"))
    rays = [true_frame(clip, i, Protocol()).rays for i in range(5)]
    twin = replace(drive, name="twin")
    for perfect in (
        floor_of({"toy": make_drive(24, rings=4, azimuths=20, speed=3.0)}),
        floor_of({"toy": drive, "twin": twin}),
    ):
        with pytest.raises(ForecastError, match="drives have this moment"):
            perfect.forecast(clip.past, clip.future_poses, rays)
    with pytest.raises(ForecastError, match="given rays only"):
        floor_of({"toy": drive}).forecast(clip.past, clip.future_poses)
    with pytest.raises(UsageError, match="voxel_centres"):
        floor_of({"toy": drive}, mode="voxel_centres")


def test_causes_by_hand():
    """Three rays in the ROI: one passes a mover by 2 m, one stops 1 m before a new wall, one is right."""
    roi = np.array([-50.0, -50, -5, 50, 50, 5])
    true = np.array([[10.0, 0, 0], [0, 20, 0], [0, -30, 0]])
    predicted = np.array([[12.0, 0, 0], [0, 19, 0], [0, -30, 0]])
    seen, moving = np.array([True, False, True]), np.array([True, False, False])
    found = explain(predicted, true, roi, origin=np.zeros(3), seen=seen, moving=moving)
    assert found.moving == pytest.approx(4 / 5)
    assert found.new == pytest.approx(1 / 5)
    assert found.old == pytest.approx(0)
    assert (found.too_far, found.too_near) == pytest.approx((4 / 5, 1 / 5))
    assert found.words().startswith("Of its error 80% on things that move, 20% on places that no past sweep saw, 0% on")
    unknown = explain(predicted, true, roi, origin=np.zeros(3), seen=seen)
    assert unknown.moving is None
    assert unknown.old == pytest.approx(4 / 5)
    assert "move" not in unknown.words()


def test_causes_crop_each_cloud_by_itself():
    """A prediction that leaves the ROI has no share of its own; its true point still has: nearest 3 m away."""
    roi = np.array([-11.0, -11, -5, 11, 11, 5])
    true, predicted = np.array([[10.0, 0, 0], [7.0, 0, 0]]), np.array([[12.0, 0, 0], [7.0, 0, 0]])
    found = explain(predicted, true, roi, origin=np.zeros(3), seen=np.array([True, False]))
    assert (found.old, found.new) == pytest.approx((1.0, 0.0))
    assert found.too_far == pytest.approx(1.0)

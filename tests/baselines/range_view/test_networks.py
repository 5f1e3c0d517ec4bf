"""ST3DCNN, SPFNet and S2Net: sizes as published, equivariance to turns, masks, latents, forecasts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from copilot4d.baselines.range_view import (
    RANGE_VIEW,
    RangeGeometry,
    RangeViewForecaster,
    RangeViewNetwork,
    St3dcnn,
    St3dcnnConfig,
    gaussian_kl,
    past_images,
    range_view_preset,
    sweep_images,
)
from copilot4d.baselines.range_view.config import RangePrediction
from copilot4d.baselines.range_view.losses import chamfer_loss, mask_loss, range_loss
from copilot4d.baselines.range_view.s2net import Gaussian
from copilot4d.errors import ForecastError, UsageError
from copilot4d.geometry import BeamPattern, se3
from tests.support.scenes import beam_directions, make_drive

IMAGE = RangeGeometry.of_pattern(BeamPattern(beam_directions(16, 64), 80.0), columns=64)


def tiny(name: str, **changes) -> RangeViewNetwork:
    torch.manual_seed(0)
    config = dataclasses.replace(range_view_preset(name, "tiny"), geometry=IMAGE, **changes)
    return RANGE_VIEW[name].network(config).eval()


def a_past(clips: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    ranges = 2 + 60 * torch.rand(clips, 2, IMAGE.rows, IMAGE.columns, generator=generator)
    return torch.where(torch.rand(ranges.shape, generator=generator) < 0.8, ranges, 0.0)


def small_drive(frames: int = 8, **properties):
    return make_drive(frames, rings=16, azimuths=64, **properties)


def asked(drive, count: int = 2):
    past = [drive[0], drive[2]]
    futures = [drive[2 + 2 * (i + 1)] for i in range(count)]
    return past, np.stack([s.world_from_lidar for s in futures]), [s.rays()[0] for s in futures]


def test_st3dcnn_has_the_published_number_of_parameters():
    """Level by level, from the published widths: 3 x 3 x 3 convolutions without bias, two numbers per channel of each
    normalisation, 1 x 1 x 1 layers with bias at both ends."""
    widths, kernels = (16, 32, 64, 128, 256, 512), (2, 2, 2, 2, 1)
    expected = (16 + 16) + (2 * 16 + 2)
    for a, b, k in zip(widths, widths[1:], kernels, strict=False):
        expected += 27 * a * a + 2 * a + 8 * k * a * b + 2 * b  # down
        expected += 8 * k * b * b + 2 * b + 27 * b * a + 2 * a  # up
        expected += 0 if b == 512 else 27 * 2 * b * b + 2 * b  # join
    with torch.device("meta"):
        found = sum(p.numel() for p in St3dcnn(St3dcnnConfig()).parameters())
    assert found == expected
    assert round(found / 1e6, 1) == 17.0


@pytest.mark.parametrize("size", ["paper", "mini", "tiny"])
@pytest.mark.parametrize("name", list(RANGE_VIEW))
def test_every_size_predicts_every_future_frame(name, size):
    config = range_view_preset(name, size)
    with torch.device("meta"):
        network = RANGE_VIEW[name].network(config)
        past = torch.zeros(1, config.past_frames, config.geometry.rows, config.geometry.columns)
        predicted = network(past)
    expected = (1, config.future_frames, config.geometry.rows, config.geometry.columns)
    assert predicted.ranges_m.shape == predicted.mask_logits.shape == expected


@pytest.mark.parametrize("name", list(RANGE_VIEW))
def test_a_turn_of_the_past_is_the_same_turn_of_the_future(name):
    network = tiny(name)
    columns = network.config.column_unit
    past = a_past()
    noise = None
    if network.latent_shape is not None:
        noise = torch.randn(1, *network.latent_shape, generator=torch.Generator().manual_seed(1))
    straight = network(past, noise=noise)
    turned = network(past.roll(columns, dims=-1), noise=None if noise is None else noise.roll(1, dims=-1))
    for a, b in zip(straight[:2], turned[:2], strict=True):
        torch.testing.assert_close(a.roll(columns, dims=-1), b, rtol=1e-4, atol=1e-3)
        assert not torch.allclose(a, b, atol=1e-2)


@pytest.mark.parametrize("name", list(RANGE_VIEW))
def test_rows_that_do_not_halve_are_filled_up(name):
    image = dataclasses.replace(IMAGE, elevations_deg=IMAGE.elevations_deg[:15])
    torch.manual_seed(0)
    config = dataclasses.replace(range_view_preset(name, "tiny"), geometry=image)
    predicted = RANGE_VIEW[name].network(config)(torch.ones(2, 2, 15, 64))
    assert predicted.ranges_m.shape == (2, 2, 15, 64)
    assert (predicted.ranges_m > image.min_range_m).all()
    assert (predicted.ranges_m < image.max_range_m).all()


def test_the_latents_divergence_is_zero_for_equal_distributions_and_right_for_a_known_pair():
    same = Gaussian(torch.tensor([[0.3, -1.0]]), torch.tensor([[0.2, 0.5]]))
    assert gaussian_kl(same, same).item() == 0.0
    q = Gaussian(torch.tensor([[1.0]]), torch.tensor([[0.0]]))
    p = Gaussian(torch.tensor([[0.0]]), torch.log(torch.tensor([[2.0]])))
    assert gaussian_kl(q, p).item() == pytest.approx(np.log(2) + (1 + 1) / 8 - 0.5, abs=1e-6)
    drawn = torch.distributions.Normal(1.0, 1.0)
    assert gaussian_kl(q, p).item() == pytest.approx(
        torch.distributions.kl_divergence(drawn, torch.distributions.Normal(0.0, 2.0)).item(), abs=1e-6
    )


def test_s2net_draws_other_futures_by_other_seeds_and_the_same_by_the_same():
    forecaster = RangeViewForecaster(tiny("s2net", mask_threshold=0.01))
    past, poses, rays = asked(small_drive())
    several = forecaster.forecast(past, poses, rays, seed=1, futures=3)
    clouds = [future.sweeps[1].points for future in several.futures]
    assert not np.allclose(clouds[0], clouds[1])
    assert not np.allclose(clouds[1], clouds[2])
    again = forecaster.forecast(past, poses, rays, seed=1)
    np.testing.assert_array_equal(again.sweeps[1].points, clouds[0])
    assert not np.allclose(forecaster.forecast(past, poses, rays, seed=2).sweeps[1].points, clouds[0])
    shown = forecaster.model(a_past(2), future=a_past(2))
    assert shown.kl is not None
    assert shown.kl.shape == (2,)
    assert (shown.kl > 0).all()
    assert forecaster.model(a_past()).kl is None


def test_where_the_mask_is_off_there_is_no_point():
    logits = torch.full((1, 1, IMAGE.rows, IMAGE.columns), -9.0)
    logits[0, 0, 4, 7] = 9.0
    predicted = RangePrediction(torch.full_like(logits, 12.0), logits)
    (point,) = IMAGE.unproject(predicted.masked(0.5)[0, 0].numpy())
    np.testing.assert_allclose(point, 12 * IMAGE.directions()[4, 7], rtol=1e-5)
    network = tiny("st3dcnn")
    torch.nn.init.zeros_(network.exit.weight)
    with torch.no_grad():
        network.exit.bias[1] = -9.0
    past, poses, rays = asked(small_drive())
    assert [len(s) for s in RangeViewForecaster(network).forecast(past, poses).sweeps] == [0, 0]
    with pytest.raises(ForecastError, match="predicts no return at all in future frame 0"):
        RangeViewForecaster(network).forecast(past, poses, rays)


class Copying(RangeViewNetwork):
    """Says the newest image again."""

    def __init__(self, config):
        super().__init__()
        self.config, self.weight = config, torch.nn.Parameter(torch.zeros(1))

    def forward(self, past, *, future=None, noise=None):
        ranges = past[:, -1:].expand(-1, self.config.future_frames, -1, -1)
        return RangePrediction(ranges, torch.where(ranges > 0, 9.0, -9.0))

    def blocks(self):
        return []


def test_without_poses_the_forecast_is_fixed_to_the_sensor_and_with_poses_to_the_world():
    """A network that says the newest image again: without poses the sweep stays around the sensor; with poses its
    points stay where they are in the world."""
    past, poses, rays = asked(small_drive())
    for frame in ("own", "reference"):
        config = dataclasses.replace(range_view_preset("spfnet", "tiny"), geometry=IMAGE, frame=frame)
        forecaster = RangeViewForecaster(Copying(config))
        forecast = forecaster.forecast(past, poses, rays)
        newest = IMAGE.unproject(IMAGE.project(past[-1].points))
        for sweep, pose, depths, its_rays in zip(forecast.sweeps, poses, forecast.depths, rays, strict=True):
            moved = newest if frame == "own" else se3.transform_points(
                se3.relative_motion(pose, past[-1].world_from_lidar), newest
            )  # fmt: skip
            np.testing.assert_allclose(sweep.points, moved, atol=1e-4)
            assert depths.shape == (len(its_rays),)
        assert forecaster.name == {"own": "spfnet", "reference": "spfnet_poses"}[frame]


def test_the_past_is_carried_into_the_reference_frame_only_with_poses():
    """In a street that stands still the ego moves: with poses, the walls' ranges hardly change."""
    drive = make_drive(8, rings=32, azimuths=360, mover=0.0)
    image = RangeGeometry.of_pattern(BeamPattern(beam_directions(32, 360), 80.0), columns=360)
    change = {}
    for frame in ("own", "reference"):
        config = dataclasses.replace(range_view_preset("spfnet", "tiny"), geometry=image, frame=frame)
        older, newest = past_images([drive[0], drive[6]], config).numpy()
        both = (older > 0) & (newest > 0) & (np.array(image.elevations_deg)[:, None] > -2)
        change[frame] = np.abs(older - newest)[both].mean()
    assert change["reference"] < 0.5 * change["own"]
    config = dataclasses.replace(range_view_preset("spfnet", "tiny"), geometry=image, past_frames=4)
    first, second, *_ = past_images([drive[0], drive[6]], config)
    assert not first.any()
    assert not second.any()
    assert len(sweep_images([drive[0]], drive[6], config)) == 1


def test_losses_of_cases_solved_by_hand():
    truth = torch.zeros(1, 1, 2, 2)
    truth[0, 0, 0] = torch.tensor([10.0, 20.0])
    predicted = RangePrediction(torch.full((1, 1, 2, 2), 12.0), torch.tensor([[[[9.0, -9.0], [-9.0, -9.0]]]]))
    assert range_loss(predicted, truth).item() == pytest.approx((2 + 8 + 0 + 0) / 4)
    near, far = np.log1p(np.exp(-9)), 9 + np.log1p(np.exp(-9))
    assert mask_loss(predicted, truth).item() == pytest.approx((3 * near + far) / 4, rel=1e-5)
    directions = torch.tensor([[[1.0, 0, 0], [0, 1.0, 0]], [[0, 0, 1.0], [0, 0, -1.0]]])
    # One predicted point (12, 0, 0); true ones (10, 0, 0) and (0, 20, 0): 4, and the mean of 4 and 144 + 400.
    assert chamfer_loss(predicted, truth, directions, 0.5).item() == pytest.approx(4 + (4 + 544) / 2)
    assert chamfer_loss(predicted, torch.zeros_like(truth), directions, 0.5).item() == 0.0
    ranges = torch.full((1, 1, 2, 2), 12.0, requires_grad=True)
    chamfer_loss(predicted._replace(ranges_m=ranges), truth, directions, 0.5).backward()
    assert ranges.grad is not None
    assert ranges.grad[0, 0, 0, 0].item() == pytest.approx(2 * 2 + (2 * 2 + 2 * 12) / 2)


def test_bad_input_gets_one_clear_error():
    forecaster = RangeViewForecaster(tiny("spfnet"))
    drive = small_drive(12)
    past, poses, _ = asked(drive)
    with pytest.raises(ForecastError, match="at least one past sweep"):
        forecaster.forecast([], poses)
    with pytest.raises(ForecastError, match="forecasts 2 frames, but 3 were asked for"):
        forecaster.forecast(past, np.repeat(poses[:1], 3, axis=0))
    dense = make_drive(4, rings=64, azimuths=360)
    with pytest.raises(ForecastError, match=r"reads 16 beams .* more beams; train one"):
        forecaster.forecast([dense[0]], poses[:1])
    two = dataclasses.replace(past[1], origins=np.full_like(past[1].points, 0.2))
    with pytest.raises(ForecastError, match="two lidars"):
        forecaster.forecast([past[0], two], poses)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("st3dcnn", {"future_frames": 3}, "as many frames as it reads"),
        ("st3dcnn", {"temporal_kernels": (3,)}, "join more frames"),
        ("st3dcnn", {"channels": (8,)}, "two values or more"),
        ("spfnet", {"channels": ()}, "per level"),
        ("spfnet", {"geometry": dataclasses.replace(IMAGE, columns=66)}, "must divide by 4"),
        ("s2net", {"latent": 0}, "latent"),
        ("s2net", {"frame": "ego"}, "range_view.frame"),
        ("s2net", {"mask_threshold": 1.0}, "mask_threshold"),
        ("s2net", {"std_m": 0.0}, "std_m"),
    ],
)
def test_impossible_networks_are_refused(name, change, words):
    with pytest.raises(UsageError, match=words):
        dataclasses.replace(range_view_preset(name, "tiny"), **change)
    with pytest.raises(UsageError, match="range-view networks are"):
        range_view_preset("pointnet", "mini")
    with pytest.raises(UsageError, match="preset"):
        range_view_preset(name, "huge")

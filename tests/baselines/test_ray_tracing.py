from __future__ import annotations

import numpy as np
import pytest

from copilot4d.baselines import RayTracing
from copilot4d.errors import UsageError
from copilot4d.geometry import Drive, Rays, Sweep, rays_through, se3
from tests.support.scenes import make_drive


@pytest.fixture(scope="module")
def still_world() -> Drive:
    return make_drive(frames=8, speed=4.0, yaw_rate=0.2, mover=0.0, rings=48, azimuths=720)


def predicted(past: list[Sweep], future: Sweep) -> np.ndarray:
    rays, _ = future.rays()
    depths = RayTracing().forecast(past, future.world_from_lidar[None], [rays]).depths
    assert depths is not None
    return depths[0]


def test_is_exact_where_the_future_pose_is_the_past_pose(still_world: Drive) -> None:
    seen = still_world[3]
    later = Sweep(points=seen.points, world_from_lidar=seen.world_from_lidar, timestamp_ns=10**10)
    np.testing.assert_allclose(predicted([seen], later), seen.rays()[1], rtol=1e-6)


def test_recovers_the_depths_of_a_still_world_to_the_beam_spacing(still_world: Drive) -> None:
    past, future = [still_world[i] for i in range(5)], still_world[7]
    rays, true_m = future.rays()
    error = np.abs(predicted(past, future) - true_m)
    # Beams are half a degree apart: on the ground, 1.73 m below, that moves a depth d by up to d^2 / 1.73 times it.
    # Ground nearer than 8 m may lie in the disc below the car that no past sweep has seen.
    spacing = np.deg2rad(26 / 47)
    ground = np.abs(rays.points_at(true_m)[:, 2] + 1.73) < 0.01
    far_ground = ground & (true_m > 8)
    assert np.mean(error[far_ground] <= (true_m**2 / 1.73 * spacing)[far_ground]) > 0.995
    # Walls face the car more squarely, and a wrong or inverted pose moves them by metres.
    assert np.quantile(error[~ground], 0.9) < 0.1


def test_uses_every_past_sweep_and_not_only_the_newest(still_world: Drive) -> None:
    # The oldest sweep alone sees the wall to the left; the others look ahead only.
    wall = np.stack([np.zeros(41), np.full(41, 6.0), np.linspace(-1, 1, 41)], axis=1).astype(np.float32)
    ahead = np.array([[30, 0, 0]], dtype=np.float32)
    past = [
        Sweep(points=wall, world_from_lidar=se3.identity(), timestamp_ns=0),
        Sweep(points=ahead, world_from_lidar=se3.from_yaw(0, (1, 0, 0)), timestamp_ns=1),
        Sweep(points=ahead, world_from_lidar=se3.from_yaw(0, (2, 1, 0)), timestamp_ns=2),
    ]
    # From (3, 2) the wall's middle, at (0, 6), is 5 m away.
    ray = Rays.from_origin(np.zeros(3), np.array([[-0.6, 0.8, 0]]))
    forecast = RayTracing().forecast(past, se3.from_yaw(0, (3, 2, 0))[None], [ray])
    assert forecast.depths is not None
    np.testing.assert_allclose(forecast.depths[0], [5], rtol=1e-6)
    np.testing.assert_allclose(forecast.sweeps[0].points, [[-3, 4, 0]], rtol=1e-5, atol=1e-6)


def test_points_lie_on_the_given_rays_also_for_two_lidars() -> None:
    rng = np.random.default_rng(5)
    cloud = (rng.normal(size=(3000, 3)) * [20, 20, 2]).astype(np.float32)
    origins = np.where(rng.random((400, 1)) < 0.5, [[0.0, 0, 0.1]], [[0.2, 0, -0.4]])
    rays, _ = rays_through(rng.normal(size=(400, 3)) * [20, 20, 2], origins)
    forecast = RayTracing().forecast(
        [Sweep(points=cloud, world_from_lidar=se3.identity(), timestamp_ns=0)], se3.identity()[None], [rays]
    )
    assert forecast.depths is not None
    np.testing.assert_allclose(forecast.sweeps[0].points, rays.points_at(forecast.depths[0]), atol=1e-5)
    np.testing.assert_allclose(forecast.sweeps[0].origins, origins, atol=1e-6)


def test_without_rays_the_newest_sweeps_directions_are_the_beams(still_world: Drive) -> None:
    past, pose = [still_world[i] for i in range(4)], still_world[6].world_from_lidar
    forecast = RayTracing().forecast(past, pose[None])
    assert forecast.depths is None
    beams, _ = past[-1].rays()
    asked = RayTracing().forecast(past, pose[None], [beams])
    np.testing.assert_array_equal(forecast.sweeps[0].points, asked.sweeps[0].points)
    assert forecast.sweeps[0].origins is None


def moving_car() -> list[Sweep]:
    """A car side seen 10 m ahead in the older sweep, 14 m ahead in the newer one, by beams that interleave."""
    azimuth = np.deg2rad(np.arange(-5, 5, 0.2))

    def side(offset_deg: float, range_m: float) -> np.ndarray:
        a = azimuth + np.deg2rad(offset_deg)
        return (np.stack([np.cos(a), np.sin(a), np.zeros_like(a)], axis=1) * range_m).astype(np.float32)

    old = Sweep(points=side(0.0, 10), world_from_lidar=se3.identity(), timestamp_ns=0)
    return [old, Sweep(points=side(0.1, 14), world_from_lidar=se3.identity(), timestamp_ns=1)]


def test_age_decides_between_points_of_almost_one_angle() -> None:
    past = moving_car()
    rays, _ = rays_through(past[0].points.astype(float), np.zeros(3))  # exactly where the older sweep looked

    def mean_depth(age_deg: float) -> float:
        depths = RayTracing(age_deg=age_deg).forecast(past, se3.identity()[None], [rays]).depths
        assert depths is not None
        return float(depths[0].mean())

    assert mean_depth(0.0) == pytest.approx(10)  # literal: nearest in angle, however old
    assert mean_depth(0.05) == pytest.approx(10)  # 0.05 degrees older is still nearer than 0.1 degrees off
    assert mean_depth(0.2) == pytest.approx(14)


def test_an_age_shows_in_the_name() -> None:
    assert RayTracing().name == "ray_tracing"
    assert RayTracing(age_deg=0.1).name == "ray_tracing_age_0.1"


def test_age_cannot_be_negative() -> None:
    with pytest.raises(UsageError, match="at least 0"):
        RayTracing(age_deg=-0.1)

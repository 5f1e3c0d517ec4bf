from __future__ import annotations

import numpy as np

from copilot4d.baselines import CopyLast
from copilot4d.geometry import Rays, Sweep, rays_through, se3


def sweep(points: object, pose: np.ndarray, t: int = 0, **extra: np.ndarray) -> Sweep:
    points = np.asarray(points, dtype=np.float32).reshape(-1, 3)
    return Sweep(points=points, world_from_lidar=pose, timestamp_ns=t, **extra)


def test_a_world_fixed_point_lands_where_hand_calculation_puts_it() -> None:
    # The ego stands at (2, 1) facing +x and sees a pole 8 m ahead, 2 m left: in the world at (10, 3).
    # Then it drives to (4, 1) and turns left by 90 degrees: the pole is now 2 m ahead (world y) and 6 m to the right.
    past = [sweep([[1, 1, 1]], se3.identity(), 0), sweep([[8, 2, 0.5]], se3.from_yaw(0, (2, 1, 0)), 200_000_000)]
    future_poses = np.stack([se3.from_yaw(np.pi / 2, (4, 1, 0)), se3.from_yaw(0, (7, -1, 1))])
    forecast = CopyLast().forecast(past, future_poses)
    np.testing.assert_allclose(forecast.sweeps[0].points, [[2, -6, 0.5]], atol=1e-6)
    np.testing.assert_allclose(forecast.sweeps[1].points, [[3, 4, -0.5]], atol=1e-6)
    np.testing.assert_array_equal(forecast.sweeps[0].world_from_lidar, future_poses[0])
    assert [s.timestamp_ns for s in forecast.sweeps] == [400_000_000, 600_000_000]
    assert forecast.depths is None


def test_points_stay_put_in_the_world_for_any_motion() -> None:
    rng = np.random.default_rng(3)
    past_pose = se3.from_quaternion(rng.normal(size=4), rng.normal(size=3) * 20)
    future_poses = se3.from_quaternion(rng.normal(size=(4, 4)), rng.normal(size=(4, 3)) * 20)
    last = sweep(rng.normal(size=(50, 3)) * 30, past_pose)
    for carried in CopyLast().forecast([last], future_poses).sweeps:
        np.testing.assert_allclose(
            se3.transform_points(carried.world_from_lidar, carried.points.astype(np.float64)),
            se3.transform_points(past_pose, last.points.astype(np.float64)),
            atol=1e-4,
        )


def test_stays_exact_where_the_world_frame_is_a_map_grid() -> None:
    far = np.array([600_000.0, 5_000_000, 200])
    last = sweep([[10, 0, 0]], se3.from_yaw(0.3, far))
    ahead = se3.compose(last.world_from_lidar, se3.from_yaw(0, (1, 0, 0)))
    carried = CopyLast().forecast([last], ahead[None]).sweeps[0]
    np.testing.assert_allclose(carried.points, [[9, 0, 0]], atol=1e-5)


def test_answers_rays_by_the_point_nearest_in_angle_and_keeps_the_free_cloud() -> None:
    last = sweep([[10, 0, 0], [0, 5, 0]], se3.identity())
    pose = se3.from_yaw(0, (4, 0, 0))[None]
    rays = Rays.from_origin(np.zeros(3), np.array([[1.0, 0.01, 0], [-0.6, 0.8, 0]]))
    forecast = CopyLast().forecast([last], pose, [rays])
    np.testing.assert_allclose(forecast.sweeps[0].points, [[6, 0, 0], [-4, 5, 0]], atol=1e-6)
    assert forecast.depths is not None
    np.testing.assert_allclose(forecast.depths[0], [6, np.hypot(4, 5)], rtol=1e-6)


def test_rays_of_a_second_lidar_are_answered_from_its_place() -> None:
    last = sweep([[10, 0, 0], [10, 0, 2]], se3.identity())
    rays, _ = rays_through(np.array([[10.0, 0, 0], [10, 0, 2]]), np.array([[0.0, 0, 0], [1, 0, 2]]))
    depths = CopyLast().forecast([last], se3.identity()[None], [rays]).depths
    assert depths is not None
    np.testing.assert_allclose(depths[0], [10, 9], rtol=1e-6)


def test_carries_intensity_and_the_lidars_places_on_the_car() -> None:
    extra = {"intensity": np.array([0.7], np.float32), "origins": np.array([[1, 0, 0.3]], np.float32)}
    carried = CopyLast().forecast([sweep([[9, 9, 0]], se3.identity(), **extra)], se3.from_yaw(1.0)[None]).sweeps[0]
    np.testing.assert_array_equal(carried.intensity, extra["intensity"])
    np.testing.assert_array_equal(carried.origins, extra["origins"])


def test_a_missing_newest_frame_falls_back_to_the_newest_that_has_points() -> None:
    past = [
        sweep([[1, 0, 0]], se3.identity(), 0),
        sweep([[7, 0, 0]], se3.from_yaw(0, (1, 0, 0)), 1),
        sweep([], se3.from_yaw(0, (2, 0, 0)), 2),
    ]
    carried = CopyLast().forecast(past, se3.from_yaw(0, (3, 0, 0))[None]).sweeps[0]
    np.testing.assert_allclose(carried.points, [[5, 0, 0]])

"""What moves in the past sweeps: streets made by hand, laws, a simulated street with its truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from copilot4d.baselines import ConstantVelocity, CopyLast
from copilot4d.datasets.windows import protocol_windows
from copilot4d.evaluation.moving_rays import moving_ray_errors
from copilot4d.geometry import Rays, Sweep, se3
from copilot4d.motion import DepthMap, extrapolate
from copilot4d.simulator.benchmark import street_v1_drive
from tests.motion.scenes import car, drive_past


def mean_velocity(past):
    found = extrapolate(past)
    assert len(found.moving) > 50
    return found.velocities_m_s.mean(axis=0)


@pytest.mark.parametrize("velocity", [(8.0, 0.0), (-5.0, 0.0), (3.0, -2.0)])
def test_a_car_is_found_with_its_velocity(velocity):
    assert mean_velocity(drive_past(velocity)) == pytest.approx(velocity, abs=0.6)


def test_the_egos_own_motion_moves_nothing_and_changes_no_velocity():
    assert len(extrapolate(drive_past(with_car=False, ego_m_s=6.0)).moving) == 0
    assert mean_velocity(drive_past((8.0, 0.0), ego_m_s=3.0)) == pytest.approx((8.0, 0.0), abs=0.6)


def test_a_car_that_stands_does_not_move():
    found = extrapolate(drive_past((0.0, 0.0), ego_m_s=3.0))
    assert len(found.moving) == 0
    assert found.is_still.mean() > 0.99


def test_a_mirrored_street_has_mirrored_velocities():
    there = mean_velocity(drive_past((6.0, -2.0)))
    assert mean_velocity(drive_past((6.0, -2.0), mirrored=True)) == pytest.approx(there * [1.0, -1.0], abs=0.3)


def test_velocities_are_in_the_frame_of_the_newest_sweep():
    turn = se3.from_yaw(np.pi / 2, (3.0, 1.0, 0.0))
    turned = [
        replace(
            sweep, points=se3.transform_points(se3.invert(turn), sweep.points).astype(np.float32),
            world_from_lidar=sweep.world_from_lidar @ turn,
        )
        for sweep in drive_past((8.0, 0.0))
    ]  # fmt: skip
    assert mean_velocity(turned) == pytest.approx((0.0, -8.0), abs=0.8)


def test_what_moves_is_carried_on_and_leaves_nothing_behind():
    past = drive_past((8.0, 0.0))
    found = extrapolate(past)
    for ahead_s in (0.0, 0.2, 1.0):
        there = found.moving_at(ahead_s)
        rear = 6.0 + 8.0 * (0.8 + ahead_s)
        assert there[:, 0].min() == pytest.approx(rear, abs=0.6)
        assert there[:, 0].max() == pytest.approx(rear + 4.4, abs=0.7)
        assert there[:, 2] == pytest.approx(found.moving[:, 2])  # along the ground alone
    # Where the car was first nothing is left, but for what is so low that beams to the ground behind hardly pass it.
    still = found.points[found.is_still]
    old = np.abs(still - [8.2, 4.0, -0.7]).max(axis=1) < 0.5
    assert not old.any()
    newest = found.newest_at(0.5)
    assert np.abs(newest - car(6.0 + 8.0 * 1.3, 4.0)[100]).max(axis=1).min() < 0.7


def test_ages_count_back_from_the_newest_sweep():
    past = drive_past(sweeps=3)
    found = extrapolate(past)
    counts = [int((found.ages == age).sum()) for age in (2, 1, 0)]
    assert counts == [len(sweep) for sweep in past]


def test_of_a_single_sweep_and_of_empty_ones_nothing_moves():
    past = drive_past()
    empty = replace(past[0], points=np.zeros((0, 3), np.float32))
    for sweeps in (past[-1:], [empty], [empty, past[-1]], [*past[:-1], replace(empty, timestamp_ns=800_000_000)]):
        found = extrapolate(sweeps)
        assert len(found.moving) == 0
        assert len(found.points) == sum(map(len, sweeps))


def test_a_depth_map_has_the_nearest_of_its_neighbours_and_says_nothing_where_no_beam_ended():
    points = np.array([[5.0, 0.0, 0.0], [9.0, 9.0 * np.tan(np.radians(1.5)), 0.0]])
    found = DepthMap.of(points, np.zeros(3)).nearest_m
    assert found[0, 30] == pytest.approx(5.0)
    assert found[1, 30] == pytest.approx(5.0)  # its own is 9 m; next to it is 5 m
    assert found[90, 30] == 0.0


def test_a_beam_has_passed_what_is_clearly_nearer_and_not_what_is_hidden():
    seen = DepthMap.of(np.array([[10.0, 0.2, 0.1], [10.0, -0.05, 0.1]]), np.array([0.0, 0.0, 0.0]))
    asked = np.array([[5.0, 0.1, 0.05], [9.8, 0.2, 0.1], [15.0, 0.3, 0.15], [-5.0, 0.0, 0.0]])
    assert seen.passed(asked).tolist() == [True, False, False, False]


def test_a_ray_meets_the_car_where_it_will_be_and_the_wall_where_it_was():
    past = drive_past((8.0, 0.0))
    target = np.array([6.0 + 8.0 * 1.8 + 2.0, 4.0, -0.5])  # on the side, a second later
    before = np.array([6.0 + 8.0 * 0.8, 5.5, -0.5])  # on the rear, now
    directions = np.stack([p / np.linalg.norm(p) for p in (target, before)])
    rays = Rays.from_origin(np.zeros(3), directions)
    poses = np.stack([past[-1].world_from_lidar] * 5)
    depths = ConstantVelocity().forecast(past, poses, [rays] * 5).depths[4]
    assert depths[0] == pytest.approx(np.linalg.norm(target), abs=0.8)
    behind = directions[1] * (9.0 / directions[1][1])
    assert depths[1] == pytest.approx(np.linalg.norm(behind), abs=1.0)
    copied = CopyLast().forecast(past, poses, [rays] * 5).depths[4]
    assert copied[1] == pytest.approx(np.linalg.norm(before), abs=0.5)


def test_without_rays_it_shows_a_point_for_each_of_the_newest_sweep():
    past = drive_past()
    made = ConstantVelocity().forecast(past, np.stack([past[-1].world_from_lidar] * 2))
    assert [len(sweep) for sweep in made.sweeps] == [len(past[-1])] * 2


def test_on_a_simulated_street_it_moves_much_that_copying_leaves_behind():
    drive = street_v1_drive("train", 1)
    windows = [w for w in protocol_windows({"one": drive}, "1s", every=40) if w.complete][:2]
    shares = [
        moving_ray_errors(model, {"one": drive}, windows).summary()["within_1m"]
        for model in (ConstantVelocity(), CopyLast())
    ]
    assert shares[0] > shares[1] + 0.1


def test_the_order_of_points_does_not_matter():
    past = drive_past((8.0, 0.0))
    rng = np.random.default_rng(0)
    shuffled = [replace(sweep, points=sweep.points[rng.permutation(len(sweep))]) for sweep in past]
    assert mean_velocity(shuffled) == pytest.approx(mean_velocity(past), abs=0.4)


def test_far_things_are_left_where_they_are():
    past = [
        Sweep(points=np.full((5, 3), 60.0, np.float32), world_from_lidar=se3.identity(), timestamp_ns=t)
        for t in (0, 10**8)
    ]
    assert extrapolate(past).is_still.all()

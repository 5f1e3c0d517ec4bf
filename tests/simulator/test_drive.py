"""Simulated drives: lazy, repeatable, and with a truth for every point."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from copilot4d.geometry import Drive, se3
from copilot4d.simulator import (
    MOVING_BASE,
    SENSORS,
    EgoPlan,
    StreetOptions,
    branch,
    simulate_drive,
    start,
)
from copilot4d.simulator.drive import drive_of
from copilot4d.simulator.shapes import Shape, box
from copilot4d.simulator.street import moving_bodies

SMALL = StreetOptions(columns=2, rows=2, cars=14, cyclists=3, pedestrians=14)


def test_a_path_through_a_heading_of_half_a_turn_has_no_jump():
    simulation = start(3, SMALL).run(1.0)
    times = np.linspace(0.0, 4.0, 41)
    heading = np.pi - 0.4 + 0.2 * times  # passes 180 degrees after 2 s
    circle = 20.0 * np.stack([np.sin(heading), -np.cos(heading)], axis=-1)
    path = simulation.state.pose[0, :2] + circle - circle[0]
    on_path = branch(simulation, EgoPlan.path(times, path)).run(4.0)
    yaw = np.stack([pose[0, 3] for pose in on_path.poses])
    chords = np.abs(np.diff(yaw[21:]))  # the first step on the path may turn the ego into it
    assert chords.max() < 0.021
    assert np.sin(yaw[22:] - heading[0]) == pytest.approx(np.sin(0.2 * 0.05 * np.arange(1, 80)), abs=0.02)
    drive = drive_of(on_path, "mini32", name="path", rate_hz=10.0, start_s=1.2)
    low, high = drive.ego_box[:3], drive.ego_box[3:]
    for i in range(14, 23):
        own = drive[i].points[drive.truth(i).object_ids == MOVING_BASE]
        assert len(own) > 5
        assert ((own >= low) & (own <= high)).all()


def test_truth_says_where_the_points_are():
    """Points that the truth puts on a moving agent lie inside that agent's box, at its pose, in the world."""
    simulation = start(3, SMALL).run(3.0)
    drive = drive_of(simulation, replace(SENSORS["hdl64"], range_noise_m=0.0), name="x", rate_hz=10.0)
    checked = 0
    for i in (3, 9, 15):
        sweep, truth = drive[i], drive.truth(i)
        world = se3.transform_points(sweep.world_from_lidar, sweep.points.astype(np.float64))
        for agent in np.unique(truth.object_ids[truth.object_ids > MOVING_BASE]) - MOVING_BASE:
            own = world[truth.object_ids == MOVING_BASE + agent]
            x, y, z, yaw = truth.agent_poses[agent]
            local = (own - [x, y, z]) @ se3.from_yaw(yaw)[:3, :3]
            length, width, height = truth.agent_sizes_m[agent]
            slack = 0.05 * truth.agent_speeds_m_s[agent] + 0.05  # it moves during the sweep
            assert np.abs(local[:, 0]).max() <= length / 2 + slack
            assert np.abs(local[:, 1]).max() <= width / 2 + slack
            assert local[:, 2].min() >= -0.05
            assert local[:, 2].max() <= height + 0.1
            moves = truth.agent_speeds_m_s[agent] > 0.2
            assert (truth.moving[truth.object_ids == MOVING_BASE + agent] == moves).all()
            checked += 1
    assert checked > 3
    assert not truth.moving[truth.object_ids < MOVING_BASE].any()


def test_a_drive_is_lazy_repeatable_and_sliceable():
    drive = simulate_drive(seed=5, seconds=1.0, rate_hz=10.0, options=SMALL)
    assert isinstance(drive, Drive)
    assert drive.format == "simulated"
    assert len(drive) == 10
    assert drive.interval_s == pytest.approx(0.1)
    again = simulate_drive(seed=5, seconds=1.0, rate_hz=10.0, options=SMALL, threads=2)
    order = [7, 0, 3]
    for i in order:  # in any order: nothing depends on what was cast before
        np.testing.assert_array_equal(drive[i].points, again[i].points)
        np.testing.assert_array_equal(drive[i].intensity, again[i].intensity)
    part = drive[2:9:3]
    np.testing.assert_array_equal(part[1].points, drive[5].points)
    np.testing.assert_array_equal(part.truth(1).object_ids, drive.truth(5).object_ids)
    assert len(part.truth(-1).object_ids) == len(drive[8])
    assert part.moment_frame is None  # it was never the drive of a plan
    other = simulate_drive(seed=6, seconds=1.0, rate_hz=10.0, options=SMALL)
    assert not np.array_equal(other[0].points, drive[0].points)


def test_the_moment_of_a_plan_moves_with_its_sweep():
    drive = drive_of(start(5, SMALL).run(1.0), "mini32", name="x", rate_hz=10.0, moment_s=0.6)
    assert drive.moment_frame == 6
    assert drive[:].moment_frame == 6
    assert drive[2:].moment_frame == 4
    assert drive[::2].moment_frame == 3
    assert drive[::2][1:].moment_frame == 2
    assert drive[-5:].moment_frame == 1
    for part in (drive[:6], drive[7:], drive[1::2], drive[2:2], drive[:3][1:]):
        assert part.moment_frame is None
    part = drive[::2][1:]
    assert part.timestamps_ns[part.moment_frame] == drive.timestamps_ns[6]


def test_static_things_stay_where_they_are_from_sweep_to_sweep():
    """In the world frame, points on one building lie in the same planes in every sweep: poses and points agree."""
    sensor = replace(SENSORS["hdl64"], range_noise_m=0.0)
    drive = drive_of(start(3, SMALL).run(2.0), sensor, name="x", rate_hz=10.0)
    street = start(3, SMALL).street
    moved = np.linalg.norm(drive.world_from_lidar[-1][:3, 3] - drive.world_from_lidar[0][:3, 3])
    assert moved > 3.0
    for i in (0, 10, 19):
        sweep, ids = drive[i], drive.truth(i).object_ids
        world = se3.transform_points(sweep.world_from_lidar, sweep.points.astype(np.float64))
        for k in np.unique(ids[(ids >= 0) & (ids < MOVING_BASE)]):
            item = street.objects[k]
            if item.shape.name != "building":
                continue
            local = (world[ids == k] - [item.x, item.y, item.z]) @ se3.from_yaw(item.yaw)[:3, :3]
            low = local[local[:, 2] < item.shape.primitives[0].top - 0.01]
            edge = np.minimum(
                np.abs(np.abs(low[:, 0]) - item.shape.length_m / 2), np.abs(np.abs(low[:, 1]) - item.shape.width_m / 2)
            )
            assert edge.max(initial=0.0) < 2e-3


def test_moving_bodies_belong_to_their_owners():
    bodies = moving_bodies(
        [Shape("a", 1, 1, (box(0, 0, 0, 1, 1, 1, "paint"),)), Shape("b", 1, 1, (box(0, 0, 0, 2, 1, 1, "paint"),) * 2)]
    )
    assert bodies.owner.tolist() == [0, 1, 1]
    assert bodies.params[:, 3].tolist() == [1, 2, 2]

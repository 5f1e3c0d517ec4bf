"""What columns hold, found without labels: hand-made scenes, a simulated street with its truth."""

from __future__ import annotations

import numpy as np

from copilot4d.geometry import Drive, Sweep, VoxelGrid, se3
from copilot4d.simulator.benchmark import street_v1_drive
from copilot4d.tokens.columns import EMPTY, GROUND, MOVING, STRUCTURE, MovingPoints, classify_columns
from copilot4d.tokens.yardstick import KnownSweep

GRID = VoxelGrid.from_bounds((-16.0, -16.0, -3.0), (16.0, 16.0, 3.0), shape=(16, 16, 4))  # columns of 2 m


def wall(x_m: float, half_m: float = 3.0) -> np.ndarray:
    """A dense upright patch across x, facing the sensor, as high as it is wide."""
    y, z = np.meshgrid(np.arange(-half_m, half_m, 0.05), np.arange(-half_m, half_m, 0.05))
    return np.c_[np.full(y.size, x_m), y.ravel(), z.ravel()].astype(np.float32)


def log_of(clouds: list[np.ndarray], poses: np.ndarray | None = None, step_s: float = 0.5) -> Drive:
    times = (np.arange(len(clouds)) * step_s * 1e9).astype(np.int64)
    poses = np.stack([se3.identity()] * len(clouds)) if poses is None else poses

    def read(i: int) -> Sweep:
        return Sweep(points=clouds[i], world_from_lidar=poses[i], timestamp_ns=int(times[i]))

    return Drive(name="made", world_from_lidar=poses, timestamps_ns=times, read=read)


def moving_of(drive: Drive, frame: int) -> np.ndarray:
    return MovingPoints(drive, lambda i: drive[i]).of(frame, drive[frame])


def test_what_beams_passed_a_moment_later_moves_and_what_stands_does_not():
    behind = wall(12.0, 6.0)
    near = wall(6.0, 1.0)
    gone = log_of([np.concatenate([near, behind]), behind])
    moving = moving_of(gone, 0)
    assert moving[: len(near)].mean() > 0.9
    assert not moving[len(near) :].any()
    stays = log_of([np.concatenate([near, behind])] * 2)
    assert not moving_of(stays, 0).any()


def test_what_is_hidden_later_does_not_move():
    """Nothing is known of a place that no beam reaches."""
    hidden = log_of([wall(12.0), wall(6.0, 6.0)])
    assert not moving_of(hidden, 0).any()


def test_a_street_that_only_the_ego_moves_through_stands():
    world = wall(12.0, 6.0)
    poses = np.stack([se3.identity(), se3.from_yaw(0.1, (3.0, 0.5, 0.0))])
    seen = [se3.transform_points(se3.invert(pose), world).astype(np.float32) for pose in poses]
    drive = log_of(seen, poses)
    assert not moving_of(drive, 0).any()
    assert not moving_of(drive, 1).any()


def test_sweeps_at_other_times_are_not_asked():
    behind, near = wall(12.0, 6.0), wall(6.0, 1.0)
    drive = log_of([np.concatenate([near, behind]), behind], step_s=3.0)
    assert not moving_of(drive, 0).any()


def test_columns_by_hand():
    ground = np.array([[-15.0, -15.0, -2.0], [-14.5, -15.0, -1.9]], dtype=np.float32)
    post = np.array([[1.0, 1.0, -2.0], [1.0, 1.0, 0.5]], dtype=np.float32)
    car = np.array([[9.0, 9.0, -1.0]] * 3, dtype=np.float32)
    one_point = np.array([[13.0, -13.0, -2.0]], dtype=np.float32)
    outside = np.array([[16.0, 0.0, 0.0]], dtype=np.float32)  # the upper edge is exclusive
    points = np.concatenate([ground, post, car, one_point, outside])
    moving = np.array([False] * 4 + [True] * 3 + [True, True])
    found = classify_columns(points, moving, GRID, (16, 16))
    assert found[0, 0] == GROUND
    assert found[8, 8] == STRUCTURE
    assert found[12, 12] == MOVING
    assert found[14, 1] == GROUND  # a single point that moves is not enough
    assert (found == EMPTY).sum() == 16 * 16 - 4


def test_on_a_simulated_street_most_of_what_moves_is_found_and_little_else():
    drive = street_v1_drive("train", 1)
    reader = MovingPoints(drive, lambda i: drive[i].without_box(drive.ego_box))
    right = named = true = 0
    for frame in (30, 60, 90):
        known = KnownSweep.of(drive, frame)
        moving = reader.of(frame, known.sweep)
        right += int((moving & known.moving).sum())
        named, true = named + int(moving.sum()), true + int(known.moving.sum())
    assert true > 100
    assert right / named > 0.9
    assert right / true > 0.4

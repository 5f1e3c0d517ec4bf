"""`Sweep`, `Drive` and `Clip`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from copilot4d.errors import UsageError
from copilot4d.geometry import Clip, Drive, Sweep, se3
from tests.support.scenes import make_drive


def sweep_at(x: float, timestamp_ns: int = 0, **extra) -> Sweep:
    points = np.array([[1.0, 0, 0], [0, 2, 0], [0, 0, 3]], dtype=np.float32)
    return Sweep(points=points, world_from_lidar=se3.from_yaw(0.0, (x, 0.0, 0.0)), timestamp_ns=timestamp_ns, **extra)


def test_a_drive_reads_only_what_is_asked_for():
    asked = []

    def read(frame: int) -> Sweep:
        asked.append(frame)
        return sweep_at(frame, frame)

    poses = np.stack([se3.from_yaw(0.0, (i, 0.0, 0.0)) for i in range(10)])
    drive = Drive(name="d", world_from_lidar=poses, timestamps_ns=np.arange(10), read=read)
    part = drive[2:9:3]
    assert asked == []
    assert [s.timestamp_ns for s in part] == [2, 5, 8]
    assert_array_equal(part.timestamps_ns, [2, 5, 8])
    assert_allclose(part.world_from_lidar[:, 0, 3], [2, 5, 8])
    assert part[1:][-1].timestamp_ns == 8  # a part of a part still reads the log's own frames
    assert drive[-1].timestamp_ns == 9
    assert asked == [2, 5, 8, 8, 9]
    with pytest.raises(IndexError):
        drive[10]


def test_the_interval_is_the_median_so_that_one_gap_does_not_change_it():
    stamps = np.array([0, 100, 200, 900, 1000, 1100]) * 1_000_000
    drive = Drive.from_sweeps("d", [sweep_at(0, int(t)) for t in stamps])
    assert drive.interval_s == pytest.approx(0.1)
    assert np.isnan(drive[:1].interval_s)


def test_time_must_increase_and_poses_must_match():
    with pytest.raises(UsageError, match="increasing"):
        Drive.from_sweeps("d", [sweep_at(0, 5), sweep_at(1, 5)])
    with pytest.raises(UsageError, match="timestamps"):
        Drive(name="d", world_from_lidar=se3.identity((3,)), timestamps_ns=np.arange(2), read=lambda i: sweep_at(0))


def test_rays_start_at_each_points_own_lidar():
    origins = np.array([[0, 0, 0], [0, 0, 1], [0, 0, 1]], dtype=np.float32)
    rays, depths = sweep_at(0, origins=origins).rays()
    assert_allclose(depths, [1, np.sqrt(5), 2], rtol=1e-6)
    assert_allclose(rays.origins, origins)
    assert_allclose(sweep_at(0).rays()[1], [1, 2, 3])


def test_removing_a_box_keeps_the_columns_together():
    sweep = sweep_at(0, intensity=np.array([7, 8, 9], np.float32), origins=np.eye(3, dtype=np.float32))
    kept = sweep.without_box(np.array([-1, 1, -1, 1, 2, 1]))  # closed: y = 2 is inside
    assert_array_equal(kept.points, sweep.points[[0, 2]])
    assert_array_equal(kept.intensity, [7, 9])
    assert_array_equal(kept.origins, sweep.origins[[0, 2]])
    assert sweep.without_box(None) is sweep


def test_wrong_arrays_are_refused():
    with pytest.raises(UsageError, match="float32"):
        replace(sweep_at(0), points=np.zeros((4, 3)))
    with pytest.raises(UsageError, match="intensity"):
        sweep_at(0, intensity=np.zeros(2, np.float32))
    with pytest.raises(UsageError, match="4, 4"):
        replace(sweep_at(0), world_from_lidar=np.eye(3))


def test_a_clip_places_static_points_in_one_spot_of_the_reference_frame():
    drive = make_drive(12, mover=0.0, rings=8, azimuths=60)
    clip = Clip(
        drive="toy", past=(drive[0], drive[2]), future=(drive[4], drive[6]), past_frames=(0, 2), future_frames=(4, 6)
    )
    assert clip.reference.timestamp_ns == drive[2].timestamp_ns
    wall = np.array([[45.0, 3.0, 2.0]], dtype=np.float32)  # a world point, carried to each sweep's frame and back
    expected = se3.transform_points(se3.invert(clip.reference.world_from_lidar), wall)
    for sweep in (*clip.past, *clip.future):
        in_sweep = se3.transform_points(se3.invert(sweep.world_from_lidar), wall)
        assert_allclose(se3.transform_points(clip.reference_from(sweep), in_sweep), expected, atol=1e-4)
    assert_allclose(clip.future_poses[1], drive[6].world_from_lidar)
    moved = drive[4].points_in(se3.invert(clip.reference.world_from_lidar))
    assert_allclose(moved, se3.transform_points(clip.reference_from(drive[4]), drive[4].points), atol=1e-4)

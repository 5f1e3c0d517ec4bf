"""Augmentation's laws: poses stay rigid, what stands still in the world stands still, and hand-made cases."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from copilot4d.counter import SampleKey
from copilot4d.errors import UsageError
from copilot4d.geometry import Clip, Sweep, se3
from copilot4d.tokens.augmentation import Augmentation, AugmentationConfig
from tests.support.scenes import make_drive

ALL = [
    Augmentation(mirror=m, yaw_rad=y, shift_m=s)
    for m in (False, True)
    for y in (0.0, 0.7, -2.5)
    for s in ((0.0, 0.0), (3.0, -11.0))
]


def static_sweeps(seed: int = 0, frames: int = 4) -> list[Sweep]:
    """Sweeps of the same 50 world points along a bent, tilted path; intensity and origins per point."""
    generator = np.random.default_rng(seed)
    world_points = generator.uniform(-30, 30, (50, 3))
    sweeps = []
    for i in range(frames):
        tilt = se3.from_quaternion(np.array([1.0, 0.03 * i, -0.02 * i, 0.0]), np.zeros(3))
        pose = se3.compose(se3.from_yaw(0.2 * i, (3.0 * i, 0.5 * i * i, 1.7)), tilt)
        points = se3.transform_points(se3.invert(pose), world_points).astype(np.float32)
        origins = np.tile(np.array([[0.1, 0.4, 0.2]], dtype=np.float32), (50, 1))
        sweeps.append(
            Sweep(points=points, world_from_lidar=pose, timestamp_ns=i, origins=origins,
                  intensity=np.arange(50, dtype=np.float32))
        )  # fmt: skip
    return sweeps


@pytest.mark.parametrize("augmentation", ALL)
def test_poses_stay_rigid_and_the_world_stands_still(augmentation):
    sweeps = [augmentation.sweep(s) for s in static_sweeps()]
    poses = np.stack([s.world_from_lidar for s in sweeps])
    assert se3.rigidity_error(poses).max() < 1e-12
    in_world = np.stack([s.points_in(np.eye(4)) for s in sweeps])
    np.testing.assert_allclose(in_world, in_world[:1].repeat(len(sweeps), 0), atol=2e-5)


@pytest.mark.parametrize("augmentation", ALL)
def test_distances_and_origins_follow(augmentation):
    for before in static_sweeps():
        after = augmentation.sweep(before)
        np.testing.assert_allclose(
            np.linalg.norm(after.points - after.origins, axis=1),
            np.linalg.norm(before.points - before.origins, axis=1), rtol=1e-5,
        )  # fmt: skip
        np.testing.assert_allclose(after.points[:, 2], before.points[:, 2], atol=1e-6)
        assert (after.intensity == before.intensity).all()


def test_a_left_bend_becomes_a_right_bend():
    clip = [Augmentation(mirror=True).sweep(s) for s in make_drive(3, yaw_rate=0.5)[0:3]]
    motion = se3.relative_motion(clip[0].world_from_lidar, clip[2].world_from_lidar)
    original = make_drive(3, yaw_rate=0.5)
    true = se3.relative_motion(original.world_from_lidar[0], original.world_from_lidar[2])
    assert float(se3.yaw_of(motion)) == pytest.approx(-float(se3.yaw_of(true)))
    np.testing.assert_allclose(motion[:3, 3], true[:3, 3] * [1, -1, 1], atol=1e-12)
    assert true[1, 3] > 0.01  # the bend was to the left


def test_a_quarter_turn_by_hand():
    """Points turn counter-clockwise: what was ahead is at the left, and the vehicle moves to its left."""
    poses = [np.eye(4), se3.from_yaw(0.0, (2.0, 0.0, 0.0))]
    sweeps = [
        Sweep(points=np.array([[5, 0, 1], [0, 3, 0]], np.float32), world_from_lidar=p, timestamp_ns=i)
        for i, p in enumerate(poses)
    ]
    turned = [Augmentation(yaw_rad=math.pi / 2).sweep(s) for s in sweeps]
    np.testing.assert_allclose(turned[0].points, [[0, 5, 1], [-3, 0, 0]], atol=1e-6)
    motion = se3.relative_motion(turned[0].world_from_lidar, turned[1].world_from_lidar)
    np.testing.assert_allclose(motion, se3.from_yaw(0.0, (0.0, 2.0, 0.0)), atol=1e-12)


def test_mirror_then_turn_by_hand():
    sweep = Sweep(points=np.array([[5, 1, 0]], np.float32), world_from_lidar=np.eye(4), timestamp_ns=0)
    after = Augmentation(mirror=True, yaw_rad=math.pi / 2).sweep(sweep)
    np.testing.assert_allclose(after.points, [[1, 5, 0]], atol=1e-6)


def test_clips_and_drives_are_augmented_alike():
    drive = make_drive(6, rings=8, azimuths=40, ego_box=np.array([-2, -1, -3, 20, 1, 3.0]))
    augmentation = Augmentation(mirror=True, yaw_rad=0.4)
    changed = augmentation.drive(drive)
    assert changed.ego_box is None
    for i in (0, 5):
        expected = augmentation.sweep(drive[i].without_box(drive.ego_box))
        assert len(expected) < len(drive[i])
        np.testing.assert_array_equal(changed[i].points, expected.points)
        np.testing.assert_array_equal(changed[i].world_from_lidar, changed.world_from_lidar[i])
    np.testing.assert_array_equal(changed[2:5][1].points, changed[3].points)
    sent = pickle.loads(pickle.dumps(changed))  # as to a loader worker that is not forked
    np.testing.assert_array_equal(sent[3].points, changed[3].points)
    clip = Clip(drive="d", past=(drive[0], drive[1]), future=(drive[2],), past_frames=(0, 1), future_frames=(2,))
    after = augmentation.clip(clip)
    for before, sweep in zip((*clip.past, *clip.future), (*after.past, *after.future), strict=True):
        np.testing.assert_array_equal(sweep.points, augmentation.sweep(before).points)


def test_draws_follow_the_counter_and_the_config():
    config = AugmentationConfig(mirror_probability=0.25, max_yaw_deg=90)
    keys = [SampleKey(seed=0, step=s, index=0, batch=1) for s in range(2000)]
    draws = [config.draw(k.generator("augmentation")) for k in keys]
    assert draws[:5] == [config.draw(k.generator("augmentation")) for k in keys[:5]]
    assert 0.2 < np.mean([d.mirror for d in draws]) < 0.3
    angles = np.array([d.yaw_rad for d in draws])
    assert np.abs(angles).max() <= math.pi / 2
    assert angles.std() == pytest.approx(math.pi / math.sqrt(12), rel=0.05)
    assert abs(np.corrcoef(angles, [d.mirror for d in draws])[0, 1]) < 0.1


@pytest.mark.parametrize("change", [{"mirror_probability": 1.5}, {"max_yaw_deg": -1.0}, {"max_yaw_deg": 181.0}])
def test_impossible_settings(change):
    with pytest.raises(UsageError, match=r"`augmentation\.m"):
        AugmentationConfig(**change)

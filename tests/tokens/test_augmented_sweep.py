"""One compiled pass over a sweep gives what the numpy functions give one after another, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.geometry import Sweep, inside_box, se3
from copilot4d.tokenizer.reconstruction import MIN_RANGE_M, clean_sweep
from copilot4d.tokens.augmentation import Augmentation
from copilot4d.tokens.augmented_sweep import augmented_sweep, points_inside
from tests.tokens.test_augmentation import ALL

EGO_BOX = np.array([-2.0, -1.55, -np.inf, 3.5, 1.55, np.inf])
POSE = se3.from_yaw(0.4, (3.0, -2.0, 1.7))


def sweep_of(layout: str, count: int = 3000) -> Sweep:
    """Points around the sensor, some on the faces of the box, on their origins and just beside them."""
    generator = np.random.default_rng(7)
    rows = generator.normal(0, 12, (count, 4)).astype(np.float32)
    rows[:40, 1] = np.float32(1.55)  # not the box's 1.55: the nearest float32 lies above it
    rows[:40, 0] = np.linspace(-2, 3.5, 40)
    rows[40:60, :3] = 0
    rows[60:80, :3] = generator.uniform(-1, 1, (20, 3)) * 2 * MIN_RANGE_M
    origins = None
    if layout == "two lidars":
        origins = np.where(rows[:, 3:] > 0, np.array([0.1, 0.2, -0.4]), 0).astype(np.float32)
        rows[80:100, :3] = origins[80:100] + generator.uniform(-1, 1, (20, 3)) * 2 * MIN_RANGE_M
        origins.flags.writeable = False  # as Arrow's are
    points = rows[:, :3] if layout == "rows of four" else np.ascontiguousarray(rows[:, :3])
    return Sweep(points=points, intensity=rows[:, 3], origins=origins, world_from_lidar=POSE, timestamp_ns=5)


def step_by_step(sweep: Sweep, augmentation: Augmentation, ego_box) -> Sweep:
    return clean_sweep(augmentation.sweep(sweep.without_box(ego_box)))


def assert_same(found: Sweep, expected: Sweep) -> None:
    assert found.points.dtype == np.float32
    assert found.points.tobytes() == np.ascontiguousarray(expected.points).tobytes()
    assert (found.origins is None) == (expected.origins is None)
    if expected.origins is not None:
        assert found.origins.tobytes() == np.ascontiguousarray(expected.origins).tobytes()
    assert found.world_from_lidar.tobytes() == expected.world_from_lidar.tobytes()
    assert found.timestamp_ns == expected.timestamp_ns
    assert found.intensity is None


@pytest.mark.parametrize("box", [None, EGO_BOX, EGO_BOX.astype(np.float32)], ids=["no box", "box", "float32 box"])
@pytest.mark.parametrize("layout", ["rows of three", "rows of four", "two lidars"])
@pytest.mark.parametrize("augmentation", ALL)
def test_the_points_are_those_of_the_steps_one_by_one(augmentation, layout, box):
    sweep = sweep_of(layout)
    expected = step_by_step(sweep, augmentation, box)
    assert len(expected) < len(sweep) - 10, "points near their origins are left out"
    assert_same(augmented_sweep(sweep, augmentation, box), expected)


@pytest.mark.parametrize("count", [0, 1])
def test_sweeps_with_hardly_a_point(count):
    whole = sweep_of("two lidars")
    sweep = whole.select(np.arange(200, 200 + count))
    found = augmented_sweep(sweep, ALL[1], EGO_BOX)
    assert_same(found, step_by_step(sweep, ALL[1], EGO_BOX))
    assert found.points.shape == (count, 3)


def test_points_that_leave_the_numbers_are_refused_as_step_by_step():
    far = Sweep(
        points=np.full((4, 3), 3e38, dtype=np.float32), world_from_lidar=POSE, timestamp_ns=0,
    )  # fmt: skip
    turned = Augmentation(yaw_rad=np.pi / 4)
    with pytest.raises(UsageError, match="points must be finite: 4 of 4"), np.errstate(all="ignore"):
        augmented_sweep(far, turned)
    with np.errstate(all="ignore"):
        whole = augmented_sweep(Sweep(points=far.points / 10, world_from_lidar=POSE, timestamp_ns=0), turned)
    assert len(whole) == 0, "finite, and the square of the distance is not"


def test_points_inside_a_box_are_those_of_the_mask():
    points = sweep_of("rows of four").points
    box = np.array([-8, -6, -2, 8, points[5, 1], 3], dtype=np.float32)
    expected = points[inside_box(points, box)]
    assert 40 <= len(expected) < len(points)
    assert points_inside(points, box).tobytes() == expected.tobytes()
    assert points_inside(points[:0], box).shape == (0, 3)

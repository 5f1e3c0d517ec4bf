"""Range images: what goes in comes out within a beam's width; other sensors are refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from copilot4d.baselines.range_view import RangeGeometry
from copilot4d.errors import ForecastError, UsageError
from copilot4d.geometry import BeamPattern, Sweep
from copilot4d.simulator.sensors import firing_table, sensor_named
from tests.support.scenes import beam_directions, cast, make_drive


def pattern_of(sensor: str) -> BeamPattern:
    device = sensor_named(sensor)
    return BeamPattern(firing_table(device).directions, device.max_range_m)


def sweep_of(points: np.ndarray, **properties) -> Sweep:
    return Sweep(points=points.astype(np.float32), world_from_lidar=np.eye(4), timestamp_ns=0, **properties)


@pytest.mark.parametrize(("sensor", "columns"), [("mini32", 640), ("hdl32", 1084), ("hdl64", 2083)])
def test_a_pattern_projected_and_unprojected_is_itself_beam_by_beam(sensor, columns):
    """Every beam gets a cell of its own, and comes back along its own direction at its own range."""
    pattern = pattern_of(sensor)
    geometry = RangeGeometry.of_pattern(pattern, columns=columns)
    ranges = np.random.default_rng(0).uniform(2, 70, len(pattern.directions))
    points = pattern.directions * ranges[:, None]
    again = geometry.unproject(geometry.project(points))
    assert len(again) == len(points)
    row, column, _ = geometry.cells(points)
    matched = geometry.directions()[row, column] * ranges[:, None]
    assert np.abs(np.sort(np.linalg.norm(again, axis=1)) - np.sort(ranges)).max() < 1e-4
    angle_deg = np.rad2deg(np.linalg.norm(matched - points, axis=1) / ranges)
    assert angle_deg.max() < 0.03


def test_any_points_come_back_within_half_a_cell():
    geometry = RangeGeometry(elevations_deg=tuple(np.linspace(10, -20, 31)), columns=360)
    rng = np.random.default_rng(1)
    azimuth, elevation = rng.uniform(-np.pi, np.pi, 50), np.deg2rad(rng.uniform(-20, 10, 50))
    ranges = rng.uniform(5, 60, 50)
    points = ranges[:, None] * np.stack(
        [np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)], axis=1
    )
    for point, range_m in zip(points, ranges, strict=True):
        (again,) = geometry.unproject(geometry.project(point[None]))
        assert np.linalg.norm(again) == pytest.approx(range_m, abs=1e-4)
        apart_deg = np.rad2deg(np.arccos(np.clip(again @ point / (np.linalg.norm(again) * range_m), -1, 1)))
        assert apart_deg <= np.hypot(0.5, 0.5) + 1e-3


def test_the_nearest_of_a_cell_counts_and_what_lies_outside_is_dropped():
    geometry = RangeGeometry(elevations_deg=(10.0, 0.0, -10.0), columns=4, min_range_m=2.0, max_range_m=50.0)
    points = np.array([[9.0, 0, 0], [5.0, 0.1, 0], [0, -7.0, 0], [1.0, 0, 0], [60.0, 0, 0], [1.0, 0, 9.0]])
    image = geometry.project(points)
    expected = np.zeros((3, 4))
    expected[1, 2] = np.hypot(5.0, 0.1)  # column 0 looks back, 1 to the left, 2 ahead, 3 to the right
    expected[1, 3] = 7.0
    np.testing.assert_allclose(image, expected, atol=1e-5)
    assert len(geometry.unproject(np.zeros((3, 4)))) == 0


def test_a_turn_of_one_column_shifts_the_image_by_one():
    directions = beam_directions(16, 90)
    geometry = RangeGeometry.of_pattern(BeamPattern(directions, 80.0), columns=90)
    points = cast(make_drive(1)[0].world_from_lidar, np.zeros((0, 6)), directions)
    points = points[np.random.default_rng(0).random(len(points)) < 0.7]
    angle = np.deg2rad(4.0)
    turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    turned = geometry.project(points @ turn.T)  # counter-clockwise: against the columns
    np.testing.assert_allclose(turned, np.roll(geometry.project(points), -1, axis=1), rtol=1e-5)


def test_the_rows_of_blurred_beams_are_spread_evenly():
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(4000, 3)) * [1, 1, 0.1]
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    geometry = RangeGeometry.of_pattern(BeamPattern(directions, 50.0), columns=100, rows=8)
    assert geometry.rows == 8
    assert np.diff(geometry.elevations_deg, n=2) == pytest.approx(0, abs=1e-3)


def test_sweeps_of_other_sensors_are_refused_with_what_to_do():
    drive = make_drive(1, rings=32, azimuths=360)
    fits = RangeGeometry.of_pattern(BeamPattern(beam_directions(32, 360), 80.0), columns=360)
    fits.check(drive[0])
    sparse = dataclasses.replace(fits, elevations_deg=tuple(np.linspace(2, -24, 96)))
    with pytest.raises(ForecastError, match="fewer beams; train one on this sensor"):
        sparse.check(drive[0])
    dense = dataclasses.replace(fits, elevations_deg=tuple(np.linspace(2, -24, 14)))
    with pytest.raises(ForecastError, match="more beams; train one on this sensor"):
        dense.check(drive[0])
    higher = dataclasses.replace(fits, elevations_deg=tuple(np.linspace(40, -4, 45)))
    with pytest.raises(ForecastError, match="of its points above or below"):
        higher.check(drive[0])


def test_two_lidars_in_one_sweep_are_refused():
    points = np.ones((4, 3))
    origins = np.zeros((4, 3), dtype=np.float32)
    RangeGeometry().check(sweep_of(points, origins=origins))
    origins[2:, 2] = -0.22
    with pytest.raises(ForecastError, match=r"two lidars.*split the sweep by its lidars"):
        RangeGeometry().check(sweep_of(points, origins=origins))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"elevations_deg": (1.0, 2.0)}, "fall from the highest"),
        ({"elevations_deg": (1.0,)}, "rows of a range image"),
        ({"elevations_deg": (95.0, 0.0)}, "between -90 and 90"),
        ({"columns": 2}, "columns"),
        ({"min_range_m": 90.0}, "min_range_m < max_range_m"),
    ],
)
def test_impossible_images_are_refused(change, words):
    with pytest.raises(UsageError, match=words):
        RangeGeometry(**change)
    with pytest.raises(UsageError, match="two beams or more"):
        RangeGeometry.of_pattern(BeamPattern(np.array([[1.0, 0, 0]]), 50.0), columns=8)

"""The lidar: what it measures, what it loses, and where its points are put."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from copilot4d.simulator import (
    MOVING_BASE,
    SENSORS,
    LidarSensor,
    SpinningHead,
    StreetOptions,
    simulate_drive,
    start,
)
from copilot4d.simulator.casting import make_scene
from copilot4d.simulator.drive import drive_of, lidar_pose
from copilot4d.simulator.lidar import scan
from copilot4d.simulator.placing import PlacedObject
from copilot4d.simulator.sensors import firing_table, sensor_named
from copilot4d.simulator.shapes import Shape, block, box
from copilot4d.simulator.street import static_bodies
from tests.simulator.test_casting import flat_ground

SMALL = StreetOptions(columns=2, rows=2, cars=14, cyclists=3, pedestrians=14)
PERFECT = LidarSensor(
    name="perfect", heads=(SpinningHead(elevations_deg=(0.0, -5.0, -10.0), columns=360),), range_noise_m=0.0,
    lost_share=0.0, weak_return=0.0,
)  # fmt: skip


def look(sensor, objects=(), start_pose=None, end_pose=None, **options):
    """A sweep on flat ground by a lidar that moves from one pose to another."""
    first = se3.from_yaw(0.0, (0.0, 0.0, 1.73)) if start_pose is None else start_pose
    last = first if end_pose is None else end_pose
    scene = make_scene(flat_ground(), static_bodies(objects))
    return scan(
        scene, objects, sensor, world_from_lidar_start=first, world_from_lidar_middle=se3.interpolate(first, last, 0.5),
        world_from_lidar_end=last, timestamp_ns=0, key=77, **options,
    )  # fmt: skip


def wall(x: float, height: float = 3.0) -> PlacedObject:
    return PlacedObject(block("wall", 0.5, 60.0, height, "masonry"), x, 0.0, 0.0, 0.0)


def test_presets_are_what_their_names_promise():
    table = firing_table(SENSORS["mini32"])
    assert 19_000 <= SENSORS["mini32"].rays <= 21_000
    assert SENSORS["hdl64"].rays == 64 * 2083
    assert SENSORS["hdl32"].rate_hz == 20.0
    assert len(SENSORS["vls_pair"].heads) == 2
    np.testing.assert_allclose(np.linalg.norm(table.directions, axis=1), 1.0)
    elevation = np.degrees(np.arcsin(firing_table(SENSORS["hdl64"]).directions[:64, 2]))
    assert elevation[0] == pytest.approx(2.0)
    assert elevation[-1] == pytest.approx(-24.33)
    assert len(np.unique(elevation.round(3))) == 64


def test_a_sweep_starts_behind_and_turns_clockwise_through_the_left_side():
    table = firing_table(SENSORS["mini32"])
    azimuth = np.arctan2(table.directions[:, 1], table.directions[:, 0])
    quarter = (np.abs(table.fractions - 0.25) < 1e-9).nonzero()[0][0]
    middle = (np.abs(table.fractions - 0.5) < 1e-9).nonzero()[0][0]
    assert abs(azimuth[0]) == pytest.approx(np.pi)
    assert azimuth[quarter] == pytest.approx(np.pi / 2)
    assert azimuth[middle] == pytest.approx(0.0, abs=1e-9)


def test_a_perfect_lidar_measures_a_wall_and_the_ground_exactly():
    found = look(PERFECT, (wall(10.0),))
    on_wall = found.object_ids == 0
    assert on_wall.any()
    np.testing.assert_allclose(found.sweep.points[on_wall, 0], 9.75, atol=1e-5)
    ground = found.sweep.points[found.object_ids == -1]
    np.testing.assert_allclose(ground[:, 2], -1.73, atol=1e-5)
    # -5 and -10 degrees meet flat ground at 1.73 / tan: nothing else is there.
    expected = [1.73 / np.tan(np.deg2rad(e)) for e in (10.0, 5.0)]
    behind = ground[ground[:, 0] < 0]
    np.testing.assert_allclose(np.unique(np.hypot(behind[:, 0], behind[:, 1]).round(3)), expected, atol=1e-3)


def test_motion_compensation_puts_a_wall_back_into_one_plane():
    first, last = se3.from_yaw(0.0, (0.0, 0.0, 1.73)), se3.from_yaw(0.0, (1.4, 0.0, 1.73))  # 14 m/s for a tenth
    compensated = look(PERFECT, (wall(10.0),), first, last)
    on_wall = compensated.object_ids == 0
    np.testing.assert_allclose(compensated.sweep.points[on_wall, 0], 9.75 - 0.7, atol=1e-4)
    raw = look(PERFECT, (wall(10.0),), first, last, motion_compensated=False)
    x = raw.sweep.points[raw.object_ids == 0]
    left, right = x[x[:, 1] > 2, 0].mean(), x[x[:, 1] < -2, 0].mean()
    assert left - right > 0.15  # the left side is seen first, from further away
    still = look(replace(PERFECT, rotates=False), (wall(10.0),), first, last, motion_compensated=False)
    np.testing.assert_allclose(still.sweep.points[still.object_ids == 0, 0], 9.05, atol=1e-4)


def test_range_noise_has_the_width_that_the_sensor_says():
    found = look(replace(PERFECT, range_noise_m=0.05), (wall(10.0),))
    clean = look(PERFECT, (wall(10.0),))
    error = np.linalg.norm(found.sweep.points, axis=1) - np.linalg.norm(clean.sweep.points, axis=1)
    assert error.std() == pytest.approx(0.05, rel=0.1)
    assert abs(error.mean()) < 0.01


def test_the_range_limit_and_the_blind_zone_hold():
    far = look(replace(PERFECT, max_range_m=12.0), (wall(10.0), wall(-20.0)))
    assert np.linalg.norm(far.sweep.points, axis=1).max() <= 12.0
    assert 1 not in far.object_ids
    near = look(replace(PERFECT, min_range_m=9.9), (wall(10.0),))
    assert np.linalg.norm(near.sweep.points, axis=1).min() >= 9.9


def test_glass_and_grazing_incidence_lose_returns():
    pane = PlacedObject(Shape("pane", 0.5, 60.0, (box(0, 0, 0, 3, 0.5, 60.0, "glass"),)), 10.0, 0.0, 0.0, 0.0)
    seen = {
        name: (look(PERFECT, (thing,)).object_ids == 0).sum() for name, thing in (("wall", wall(10.0)), ("glass", pane))
    }
    assert seen["glass"] == pytest.approx(0.45 * seen["wall"], rel=0.2)
    shy = replace(PERFECT, weak_return=0.02)
    full, faded = look(PERFECT), look(shy)
    steep, flat = (np.hypot(*s.sweep.points[:, :2].T) for s in (full, faded))
    share = [(flat < 12).sum() / (steep < 12).sum(), (flat > 15).sum() / (steep > 15).sum()]
    assert share[0] > share[1] > 0.1  # the ring further out, met more flatly, loses more
    lossy = look(replace(PERFECT, lost_share=0.3))
    assert len(lossy.sweep) == pytest.approx(0.7 * len(full.sweep), rel=0.1)


def test_facades_have_windows():
    house = PlacedObject(Shape("building", 0.5, 60.0, (box(0, 0, -1, 9, 0.5, 60.0, "facade"),)), 10.0, 0.0, 0.0, 0.0)
    sensor = replace(PERFECT, heads=(SpinningHead(elevations_deg=tuple(np.linspace(-8, 12, 30)), columns=1440),))
    walled, glazed = look(sensor, (wall(10.0, 9.0),)), look(sensor, (house,))
    share = (glazed.object_ids == 0).sum() / (walled.object_ids == 0).sum()
    assert 0.75 < share < 0.97


def test_the_ego_sees_its_own_body_and_the_box_holds_those_returns():
    drive = simulate_drive(seed=1, sensor="hdl64", seconds=0.2, options=SMALL)
    own = drive.truth(0).object_ids == MOVING_BASE
    assert 5 < own.sum() < 2000
    sweep = drive[0]
    inside = np.all((sweep.points >= drive.ego_box[:3]) & (sweep.points <= drive.ego_box[3:]), axis=1)
    assert inside[own].all()
    assert not drive.truth(0).moving[own].any()
    assert len(sweep.without_box(drive.ego_box)) == len(sweep) - inside.sum()


def test_the_slowest_lidar_sees_the_whole_of_a_drive():
    drive = drive_of(start(3, SMALL).run(0.2), replace(PERFECT, rate_hz=10.0), name="x")
    assert [len(sweep) > 100 for sweep in drive] == [True, True]


def test_two_lidars_give_an_origin_for_every_point():
    drive = simulate_drive(seed=1, sensor="vls_pair", seconds=0.2, options=SMALL)
    sweep = drive[0]
    assert sweep.origins is not None
    assert {round(float(z), 2) for z in sweep.origins[:, 2]} <= {0.0, -0.22, 0.01, -0.01, -0.21, -0.23}
    assert (sweep.origins[:, 2] < -0.15).mean() == pytest.approx(0.5, abs=0.2)
    assert simulate_drive(seed=1, seconds=0.2, options=SMALL)[0].origins is None


def test_the_lidar_stands_on_the_slope():
    hills = start(3, SMALL).street.ground.hills
    base = np.array([50.0, 60.0, 1.0])
    pose = lidar_pose(hills, SENSORS["mini32"], base, 0.7)
    assert se3.rigidity_error(pose) < 1e-12
    slope = hills.slope(base[:2])
    normal = np.array([-slope[0], -slope[1], 1.0])
    np.testing.assert_allclose(pose[:3, 2], normal / np.linalg.norm(normal))
    np.testing.assert_allclose(pose[:3, 3], base + 1.73 * pose[:3, 2])
    assert np.arctan2(pose[1, 0], pose[0, 0]) == pytest.approx(0.7, abs=0.01)
    nodding = se3.invert(pose) @ lidar_pose(hills, SENSORS["mini32"], base, 0.7, pitch=0.1)
    assert nodding[2, 0] == pytest.approx(-np.sin(0.1))  # nose down


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sensor_named("hdl65"), "hdl65.*hdl64"),
        (lambda: replace(PERFECT, max_range_m=-3.0), "max_range_m"),
        (lambda: replace(PERFECT, min_range_m=-1.0), "min_range_m"),
        (lambda: replace(PERFECT, heads=()), "beam"),
        (lambda: replace(PERFECT, range_noise_m=-0.1), "range_noise_m"),
        (lambda: replace(PERFECT, range_noise_m=np.nan), "range_noise_m"),
        (lambda: replace(PERFECT, range_noise_m=np.inf), "range_noise_m"),
        (lambda: replace(PERFECT, rate_hz=9.9), "at least 10, got 9.9"),
        (lambda: replace(PERFECT, rate_hz=np.nan), "rate_hz"),
        (lambda: replace(PERFECT, lost_share=1.5), "lost_share"),
        (lambda: simulate_drive(seed=0, seconds=0.0), "duration"),
        (lambda: simulate_drive(seed=0, seconds=1.0, rate_hz=40.0, options=SMALL), "turns at 10"),
        (lambda: simulate_drive(seed=0, seconds=0.01, options=SMALL), "no sweep fits"),
    ],
)
def test_bad_parameters_are_refused_by_name(make, message):
    with pytest.raises(UsageError, match=message):
        make()

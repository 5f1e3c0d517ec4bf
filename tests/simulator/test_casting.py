from __future__ import annotations

import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.simulator import StreetOptions, draw_street
from copilot4d.simulator.casting import GROUND_ID, NOTHING_ID, cast, make_scene
from copilot4d.simulator.ground import Ground, Hills
from copilot4d.simulator.placing import PlacedObject
from copilot4d.simulator.shapes import Shape, block, box, cylinder, ellipsoid, vehicle
from copilot4d.simulator.street import moving_bodies, static_bodies
from tests.simulator.reference_caster import reference_depths


def flat_ground(size_m: float = 200.0, height_m: float = 0.0) -> Ground:
    n = int(size_m / 0.25)
    return Ground(
        origin=np.array([-size_m / 2, -size_m / 2]),
        height_m=np.full((n + 1, n + 1), height_m, np.float32),
        use=np.full((n, n), 2, np.uint8),
        top_m=np.full((n // 8, n // 8), height_m, np.float32),
        hills=Hills(wave=np.zeros((0, 2)), phase=np.zeros(0), height_m=np.zeros(0)),
    )


def one(scene, origin, direction, **options):
    direction = np.asarray(direction, float)
    hits = cast(
        scene, np.array([origin], float), direction[None] / np.linalg.norm(direction),
        np.array([options.pop("fraction", 0.0)]), max_range_m=options.pop("max_range_m", 80.0), **options,
    )  # fmt: skip
    return hits.depth[0], hits.owner[0], hits.cosine[0]


def place(*primitives, x=0.0, y=0.0, z=0.0, yaw=0.0):
    return PlacedObject(Shape("thing", 1.0, 1.0, primitives), x, y, z, yaw)


def test_ten_thousand_random_rays_agree_with_the_slow_reference_to_a_millimetre():
    street = draw_street(5, StreetOptions(columns=2, rows=2))
    rng = np.random.default_rng(0)
    bodies = moving_bodies([vehicle("car"), vehicle("bus"), vehicle("cyclist"), vehicle("pedestrian"), vehicle("van")])
    centres = np.concatenate([road.centre for road in street.roads.roads])
    where = centres[rng.integers(len(centres), size=5)]
    start = np.column_stack([where, street.ground.height_at(where), rng.uniform(-3, 3, 5)])
    end = start + np.column_stack([rng.uniform(-1.5, 1.5, (5, 2)), np.zeros(5), rng.uniform(-0.1, 0.1, 5)])
    scene = street.scene.with_moving(bodies, start, end)
    n = 10_000
    # Half of the rays start near the moving things, so that those are met as well.
    base = np.where(
        rng.random((n, 1)) < 0.5, where[rng.integers(5, size=n)], centres[rng.integers(len(centres), size=n)]
    )
    base = base + rng.uniform(-4, 4, (n, 2))
    origins = np.column_stack([base, street.ground.height_at(base) + rng.uniform(0.3, 4.0, n)])
    elevation, azimuth = np.deg2rad(rng.uniform(-30, 15, n)), rng.uniform(-np.pi, np.pi, n)
    directions = np.stack(
        [np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)], axis=-1
    )
    fractions = rng.random(n)
    fast = cast(scene, origins, directions, fractions, max_range_m=80.0)
    slow = reference_depths(scene, origins, directions, fractions, 80.0)
    np.testing.assert_array_equal(np.isfinite(fast.depth), np.isfinite(slow))
    hit = np.isfinite(slow)
    assert hit.mean() > 0.8
    assert np.abs(fast.depth[hit] - slow[hit]).max() < 1e-3
    assert len(set(fast.owner[fast.owner >= 1_000_000].tolist())) == 5
    assert (fast.owner == GROUND_ID).mean() > 0.2


def test_depths_that_can_be_computed_by_hand():
    scene = make_scene(
        flat_ground(),
        static_bodies(
            (
                place(box(0, 0, 0, 2, 4, 2, "paint"), x=10.0),
                place(cylinder(0, 0, 0, 3, 0.5, "bark"), x=-10.0),
                place(ellipsoid(0, 0, 1, 3, 2, 1, "cloth"), y=12.0),
                place(box(0, 0, 0, 2, 4, 2, "paint"), y=-10.0, yaw=np.pi / 4),
            )
        ),
    )
    assert one(scene, (0, 0, 1), (1, 0, 0)) == pytest.approx((8.0, 0, 1.0))
    assert one(scene, (0, 0, 1), (-1, 0, 0)) == pytest.approx((9.5, 1, 1.0))
    assert one(scene, (0, 0, 2), (0, 1, 0)) == pytest.approx((11.0, 2, 1.0))  # the half size along y is 1, along x 2
    depth, owner, cosine = one(scene, (0, 0, 1), (0, -1, 0))
    # A 4 x 2 box turned by 45 degrees: seen along its diagonal direction the long side lies sqrt(2) before its middle.
    assert (depth, owner, cosine) == pytest.approx((10 - np.sqrt(2), 3, np.sqrt(0.5)))
    depth, owner, cosine = one(scene, (0, 0, 2), (3, 4, -1))
    assert (depth, owner, cosine) == pytest.approx((2 * np.sqrt(26), GROUND_ID, 1 / np.sqrt(26)))
    assert one(scene, (0, 0, 2), (1, 1, 0.5))[1] == NOTHING_ID


def test_a_ray_stops_at_its_range():
    scene = make_scene(flat_ground(), static_bodies((place(box(0, 0, 0, 2, 4, 2, "paint"), x=10.0),)))
    assert one(scene, (0, 0, 1), (1, 0, 0), max_range_m=8.01)[0] == pytest.approx(8.0)
    assert one(scene, (0, 0, 1), (1, 0, 0), max_range_m=7.99)[0] == np.inf
    with pytest.raises(UsageError, match="positive range"):
        one(scene, (0, 0, 1), (1, 0, 0), max_range_m=-1.0)


def test_a_moving_body_is_met_where_it_is_at_the_rays_own_moment():
    bodies = moving_bodies([Shape("x", 2, 2, (box(0, 0, 0, 2, 2, 2, "paint"),))])
    start, end = np.array([[10.0, 0, 0, 0]]), np.array([[14.0, 0, 0.5, 0]])
    scene = make_scene(flat_ground(), static_bodies((place(box(0, 0, 0, 1, 1, 1, "paint"), x=50.0),)))
    scene = scene.with_moving(bodies, start, end)
    for fraction in (0.0, 0.25, 1.0):
        depth, owner, _ = one(scene, (0, 0, 1), (1, 0, 0), fraction=fraction, moving_base=700)
        assert (depth, owner) == pytest.approx((9.0 + 4 * fraction, 700))
    # It also rises: a ray just below its top at the start passes below its bottom at the end, and meets the box beyond.
    assert one(scene, (0, 0, 0.2), (1, 0, 0), fraction=1.0, moving_base=700)[:2] == pytest.approx((49.5, 0))


def test_leaves_let_light_in_by_the_law_of_the_mean_free_path():
    hedge = block("hedge", 4.0, 40.0, 3.0, "hedge")
    scene = make_scene(flat_ground(), static_bodies((PlacedObject(hedge, 10.0, 0.0, 0.0, 0.0),)))
    n = 20_000
    origins, directions = np.tile([0.0, 0.0, 1.0], (n, 1)), np.tile([1.0, 0.0, 0.0], (n, 1))
    solid = cast(scene, origins, directions, np.zeros(n), max_range_m=80.0, key=0)
    assert np.all(solid.depth == 8.0)
    porous = cast(scene, origins, directions, np.zeros(n), max_range_m=80.0, key=9)
    again = cast(scene, origins, directions, np.zeros(n), max_range_m=80.0, key=9, threads=2)
    other = cast(scene, origins, directions, np.zeros(n), max_range_m=80.0, key=10)
    np.testing.assert_array_equal(porous.depth, again.depth)
    assert not np.array_equal(porous.depth, other.depth)
    inside = porous.depth - 8.0
    assert inside.min() >= 0.0
    assert inside.mean() == pytest.approx(0.12, rel=0.05)  # an exponential law: mean and deviation are the free path
    assert inside.std() == pytest.approx(0.12, rel=0.05)


def test_any_number_of_threads_gives_the_same_bits():
    street = draw_street(5, StreetOptions(columns=2, rows=2))
    rng = np.random.default_rng(1)
    n = 6000
    centre = street.roads.roads[2].centre[30]
    origins = np.tile([*centre, float(street.ground.height_at(centre)) + 1.7], (n, 1))
    directions = rng.normal(size=(n, 3)) * [1, 1, 0.1]
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    first, second = (
        cast(street.scene, origins, directions, np.zeros(n), max_range_m=80.0, key=4, threads=t) for t in (1, 2)
    )
    for name in ("depth", "owner", "material", "cosine"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.simulator import StreetOptions, draw_street
from copilot4d.simulator.agents import draw_population
from copilot4d.simulator.footprints import overlapping_pairs, rectangles_overlap, solids_overlap
from copilot4d.simulator.ground import GARDEN, PAVEMENT, ROAD
from copilot4d.simulator.lanes import CROSSING, DRIVE, TURN, WALK
from copilot4d.simulator.placing import solids_of
from copilot4d.simulator.roads import draw_roads
from copilot4d.simulator.traffic import begin

SMALL = StreetOptions(columns=2, rows=2)


@pytest.mark.parametrize("seed", [0, 7])
def test_no_object_overlaps_another_at_birth_moving_ones_included(seed):
    street = draw_street(seed)
    world, state = begin(street)
    static = [solids_of(item) for item in street.objects]
    owner = np.repeat(np.arange(len(static)), [len(s) for s in static])
    solids = np.concatenate(static)
    for k, own in enumerate(static):
        near = np.flatnonzero((np.abs(solids[:, :2] - own[0, :2]).max(axis=1) < 40.0) & (owner != k))
        assert not solids_overlap(own[:, None], solids[None, near]).any(), street.objects[k].shape.name
    people = world.people
    height = np.array([s.height_m for s in people.shapes])
    agents = np.column_stack(
        [state.pose[:, :2], people.length_m / 2, people.width_m / 2, state.pose[:, 3], state.pose[:, 2] + 0.05,
         state.pose[:, 2] + height]
    )  # fmt: skip
    assert not len(overlapping_pairs(agents[:, :5]))
    assert not solids_overlap(agents[:, None], solids[None]).any()


def test_a_street_has_everything_that_a_street_has():
    street = draw_street(0)
    names = {item.shape.name for item in street.objects}
    assert {"building", "wall", "fence", "hedge", "tree", "pole", "sign", "car", "bush"} <= names
    kinds = {kind for seed in (0, 1, 2) for kind in draw_population(draw_street(seed))[0].kinds}
    assert kinds == {"car", "van", "bus", "cyclist", "pedestrian"}
    tree = next(item.shape for item in street.objects if item.shape.name == "tree")
    trunk, *crown = tree.primitives
    assert crown
    assert trunk.half_x < 0.4 < crown[0].half_x
    straight = [_bend(road) < 0.01 for road in street.roads.roads + draw_street(1).roads.roads]
    assert any(straight)
    assert not all(straight)


def _bend(road) -> float:
    steps = np.diff(road.centre, axis=0)
    heading = np.unwrap(np.arctan2(steps[:, 1], steps[:, 0]))
    return float(np.ptp(heading))


def test_kerbs_are_steps_and_slopes_are_gentle():
    street = draw_street(3)
    ground = street.ground
    for road in street.roads.roads:
        middle = len(road.centre) // 2
        inside = road.offset(-(road.kerb_right_m - 0.5))[middle]
        outside = road.offset(-(road.kerb_right_m + 0.6))[middle]
        assert ground.use_at(inside) == ROAD
        assert ground.use_at(outside) == PAVEMENT
        step = ground.height_at(outside) - ground.height_at(inside)
        assert 0.05 < step - (ground.hills.at(outside) - ground.hills.at(inside)) < 0.15
    xy = np.random.default_rng(0).uniform(0, 250, (2000, 2))
    assert np.linalg.norm(ground.hills.slope(xy), axis=-1).max() < 0.12
    epsilon = 1e-4
    aside = np.array([epsilon, 0.0])
    numeric = (ground.hills.at(xy + aside) - ground.hills.at(xy - aside)) / (2 * epsilon)
    np.testing.assert_allclose(ground.hills.slope(xy)[:, 0], numeric, atol=1e-6)


def test_buildings_keep_off_roads_and_pavements_and_parked_cars_stand_at_the_kerb():
    street = draw_street(2)
    for item in street.objects:
        use = street.ground.use_at(np.array([item.x, item.y]))
        if item.shape.name in ("building", "hedge", "fence", "wall", "bush"):
            assert use == GARDEN, item.shape.name
        if item.shape.name in ("pole", "sign"):
            assert use == PAVEMENT
    on_road = [i for i in street.objects if street.ground.use_at(np.array([i.x, i.y])) == ROAD]
    assert on_road
    assert {i.shape.name for i in on_road} <= {"car", "van"}
    drive = np.concatenate([street.lanes.line(k) for k in np.flatnonzero(street.lanes.kind == DRIVE)])
    nearest = [np.linalg.norm(drive - [i.x, i.y], axis=1).min() - i.shape.width_m / 2 for i in on_road]
    assert min(nearest) > 1.3  # metres from the middle of any lane: wider than half a bus


def test_lanes_join_without_gaps_and_keep_right():
    lanes = draw_street(1).lanes
    for lane, successors in enumerate(lanes.successors):
        assert successors, f"lane {lane} ends in nothing"
        for following in successors:
            gap = np.linalg.norm(lanes.line(lane)[-1] - lanes.line(following)[0])
            assert gap < 1e-6
    turns = np.flatnonzero(lanes.kind == TURN)
    assert np.abs(lanes.turn[turns]).max() > 1.2  # real turns, not only bends
    street = draw_street(1)
    road = street.roads.roads[0]
    along = lanes.line(int(np.flatnonzero(lanes.kind == DRIVE)[0]))
    offset = (along[0] - road.centre[4]) @ road.normal[4]
    heading = along[1] - along[0]
    assert offset < 0
    assert heading @ (road.centre[1] - road.centre[0]) > 0


def test_crossing_turns_conflict_and_opposite_lanes_do_not():
    lanes = draw_street(1, StreetOptions(curve=0.0)).lanes
    for turn in np.flatnonzero(lanes.kind == TURN):
        for other in lanes.conflicts[turn]:
            assert turn in lanes.conflicts[other]
        for other in np.flatnonzero(lanes.kind == TURN):
            same_target = lanes.successors[turn] == lanes.successors[other]
            if turn != other and same_target and lanes.origin[turn] != lanes.origin[other]:
                assert other in lanes.conflicts[turn]
    assert all(any(lanes.kind[o] == TURN for o in lanes.conflicts[c]) for c in np.flatnonzero(lanes.kind == CROSSING))
    assert (lanes.kind == WALK).any()


def test_the_same_seed_gives_the_same_street_to_the_bit_and_another_seed_another():
    draw_street.cache_clear()
    first = draw_street(11, SMALL)
    draw_street.cache_clear()
    second = draw_street(11, SMALL)
    other = draw_street(12, SMALL)
    assert first is not second
    np.testing.assert_array_equal(first.ground.height_m, second.ground.height_m)
    np.testing.assert_array_equal(first.scene.static.params, second.scene.static.params)
    np.testing.assert_array_equal(first.lanes.xy, second.lanes.xy)
    assert not np.array_equal(first.roads.junctions, other.roads.junctions)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_lanes": 0}, "lanes"),
        ({"columns": 1}, "junctions"),
        ({"spacing_m": (150.0, 95.0)}, "spacing_m"),
        ({"spacing_m": (-5.0, 95.0)}, "spacing_m"),
        ({"cars": -1}, "negative"),
        ({"parked_share": 1.5}, "parked_share"),
        ({"curve": 2.0}, "curve"),
        ({"relief_m": -1.0}, "relief_m"),
    ],
)
def test_bad_options_are_refused_by_name(change, message):
    with pytest.raises(UsageError, match=message):
        replace(StreetOptions(), **change)


def test_a_negative_seed_is_refused():
    with pytest.raises(UsageError, match="seed"):
        draw_street(-1)


def test_more_lanes_make_wider_roads_and_more_lanes_per_direction():
    lanes = {road.lanes for seed in range(6) for road in draw_roads(seed, StreetOptions(max_lanes=3)).roads}
    assert {1, 2} <= lanes <= {1, 2, 3}
    assert {road.lanes for seed in range(6) for road in draw_roads(seed, StreetOptions(max_lanes=1)).roads} == {1}


def test_rectangles_overlap_by_hand():
    unit = np.array([0.0, 0.0, 1.0, 1.0, 0.0])
    others = np.array(
        [
            [1.9, 0.0, 1.0, 1.0, 0.0],
            [2.1, 0.0, 1.0, 1.0, 0.0],
            [2.3, 0.0, 1.0, 1.0, np.pi / 4],  # its corner reaches sqrt(2) towards us
            [2.5, 0.0, 1.0, 1.0, np.pi / 4],
            [2.2, 2.2, 1.0, 1.0, np.pi / 4],  # corners near, sides apart: only the second pair of axes separates them
        ]
    )
    assert rectangles_overlap(unit, others).tolist() == [True, False, True, False, False]
    assert rectangles_overlap(unit, others[1:2], margin_m=0.2).all()

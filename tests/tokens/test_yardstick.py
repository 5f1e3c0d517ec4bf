"""Tokens that stay when only the scan changes: classes of columns, pairs of scans, shares."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from copilot4d.geometry import VoxelGrid
from copilot4d.presets import tiny
from copilot4d.simulator import simulate_drive
from copilot4d.tokenizer import Tokenizer
from copilot4d.tokens.yardstick import (
    KnownSweep,
    TokenYardstick,
    column_classes,
    evenly,
    measure_tokens,
    scan_pairs,
    standing_pairs,
)
from tests.support.scenes import make_drive
from tests.tokenizer.clouds import sweep_of

GRID = VoxelGrid.from_bounds((-4.0, -4.0, -2.0), (4.0, 4.0, 2.0), shape=(16, 16, 8))


def test_a_column_has_the_class_of_its_most_telling_point():
    points = [
        (-3.0, -3.0, -1.5),
        (-1.0, 1.0, -1.5),
        (-1.0, 1.1, 0.0),
        (3.0, 3.0, 0.0),
        (3.1, 3.0, -1.0),
        (9.0, 0.0, 0.0),
    ]
    ground = np.array([True, True, False, False, True, False])
    moving = np.array([False, False, False, True, False, True])
    classes = column_classes(KnownSweep(sweep=sweep_of(points), ground=ground, moving=moving), GRID, (4, 4))
    expected = np.zeros((4, 4), dtype=int)
    expected[0, 0], expected[1, 2], expected[3, 3] = 1, 2, 3
    assert classes.tolist() == expected.tolist()


def test_shares_and_codes_by_class_are_counted_by_the_first_scan():
    yardstick = TokenYardstick(codes=8)
    classes = np.array([[0, 0], [1, 2]])
    yardstick.add("standing", classes, np.array([[0, 0], [3, 4]]), np.array([[0, 5], [3, 6]]))
    yardstick.add("standing", classes, np.array([[0, 0], [2, 4]]), np.array([[0, 0], [3, 4]]))
    found = yardstick.summary()
    assert found["kept_standing_empty"] == 0.75
    assert found["kept_standing_ground"] == 0.5
    assert found["kept_standing_structure"] == 0.5
    assert "kept_standing_moving" not in found  # nobody asked
    assert (found["codes_empty"], found["codes_ground"], found["codes_structure"], found["codes_moving"]) == (
        1,
        2,
        1,
        0,
    )
    assert TokenYardstick(codes=8).summary() == {}


def test_pairs_while_standing_are_a_fifth_of_a_second_apart():
    drive = make_drive(8, rings=2, azimuths=4)
    times = np.arange(8) * 100_000_000
    poses = np.tile(np.eye(4), (8, 1, 1))
    poses[:, 0, 3] = [0.0, 0.0, 0.005, 0.005, 1.0, 2.0, 3.0, 3.01]
    standing = dataclasses.replace(drive, timestamps_ns=times, world_from_lidar=poses, frames=None)
    assert standing_pairs(standing) == [(0, 2), (1, 3)]
    assert evenly([(0, 2), (1, 3), (2, 4)], 2) == [(0, 2), (2, 4)]
    assert evenly([], 2) == evenly([(0, 2)], 0) == []


@pytest.fixture(scope="module")
def street():
    return tuple(simulate_drive(seed=5, sensor=s, seconds=0.4, rate_hz=10.0, name="a") for s in ("mini32", "varied"))


def test_the_same_scan_keeps_every_token_and_another_sensor_does_not(street):
    own, other = street
    torch.manual_seed(0)
    config = tiny().tokenizer
    tokenizer = Tokenizer(
        dataclasses.replace(config, codebook=dataclasses.replace(config.codebook, empty_columns="reserved"))
    ).eval()
    with torch.no_grad():
        tokenizer.codebook.weight[1:].mul_(30.0)
    same = measure_tokens(tokenizer, [own], {"a": own}, pairs_per_drive=2)
    assert all(value == 1.0 for name, value in same.items() if name.startswith("kept_sensors"))
    assert same["codes_empty"] == 1.0
    assert min(same["codes_ground"], same["codes_structure"]) >= 1.0
    changed = measure_tokens(tokenizer, [own], {"a": other}, pairs_per_drive=2)
    assert changed["kept_sensors_empty"] < 1.0


def test_the_other_scan_is_brought_into_the_first_ones_frame(street):
    own, other = street
    pairs = [(known, second) for question, known, second in scan_pairs([own], {"a": other}, 2) if question == "sensors"]
    assert len(pairs) == 2
    for known, second in pairs:
        near = [p[np.linalg.norm(p[:, :2], axis=-1) < 10] for p in (known.sweep.points, second.points)]
        lowest = [np.percentile(p[:, 2], 5) for p in near]
        assert abs(lowest[0] - lowest[1]) < 0.1  # the road, not the other sensor's height above it


def test_drives_without_truth_are_not_asked():
    drive = make_drive(4, rings=4, azimuths=20)
    torch.manual_seed(0)
    assert measure_tokens(Tokenizer(tiny().tokenizer), [drive], {}) == {}

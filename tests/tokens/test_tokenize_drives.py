"""Drives to tokens: which sweeps are read, moved and encoded, and what the cache says of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.tokens.token_cache import open_token_cache
from copilot4d.tokens.token_clips import TokenClips
from copilot4d.tokens.tokenize_drives import ClipEncoder, log_intervals, moved_sweep
from copilot4d.tokens.write_token_cache import write_token_cache
from tests.tokens.moving_drives import (
    BONNET,
    CONFIG,
    LANDMARKS,
    clock,
    make,
    moving_drive,
    occupied,
)
from tests.training.processes import run_ranks


def test_two_ranks_make_the_same_clips(tmp_path):
    drives = [moving_drive(16, name="a"), moving_drive(14, name="b"), moving_drive(15, name="c")]
    config = replace(CONFIG, variants=2)
    alone = make(tmp_path / "alone", drives, occupied, config)

    def work(rank):
        from copilot4d.training import open_world

        seen = []

        def noted(sweeps):
            seen.extend(sweeps)
            return occupied(sweeps)

        with open_world("cpu") as world:
            write_token_cache(tmp_path / "two", drives, ClipEncoder(noted, config, batch=5), config, world)
        return len(seen)

    counts = run_ranks(2, work)
    encoder = ClipEncoder(occupied, config)
    assert counts == [2 * (encoder.count(drives[0]) + encoder.count(drives[2])), 2 * encoder.count(drives[1])]
    for file in alone.glob("*.safetensors"):
        assert (tmp_path / "two" / file.name).read_bytes() == file.read_bytes()


def test_every_sweep_is_read_once_and_each_view_encoded_once(tmp_path):
    drive = moving_drive(24)
    read = []
    counted = replace(drive, read=lambda frame: (read.append(frame), drive.read(frame))[1])
    encoder = ClipEncoder(clock, CONFIG, batch=4)
    steps = list(encoder.encode(counted))
    assert sorted(read) == sorted(set(read))
    # interval 2: references 4..18, interval 3: 6..16; both look at the reference alone, plus 4 others each
    assert len(steps) == encoder.count(drive) == 8 * 5 + 6 * 5 - 6
    own = ClipEncoder(clock, replace(CONFIG, token_frame="own"))
    assert own.count(drive) == 24


def test_points_outside_and_on_the_ego_are_not_encoded():
    drive = moving_drive(24, ego_box=BONNET)
    seen = []

    def noted(sweeps):
        seen.extend(sweeps)
        return occupied(sweeps)

    list(ClipEncoder(noted, CONFIG).encode(drive))
    assert seen
    for sweep in seen:
        assert (np.abs(sweep.points[:, :2]) <= 8).all()
        back = sweep.points_in(np.eye(4))  # each point is a landmark, none is the bonnet
        nearest = np.linalg.norm(back[:, None] - LANDMARKS[None], axis=-1).min(axis=1)
        assert nearest.max() < 1e-4


def test_a_moved_sweep_keeps_its_place_in_the_world():
    sweep, other = moving_drive()[3], moving_drive()[9]
    moved = moved_sweep(sweep, sweep.world_from_lidar, other.world_from_lidar)
    assert np.allclose(moved.points_in(np.eye(4)), sweep.points_in(np.eye(4)), atol=1e-5)
    assert np.allclose(moved.rays()[1], sweep.rays()[1], atol=1e-5)  # depths: the sensor moved along
    assert not np.allclose(moved.points, sweep.points, atol=1)


def test_intervals_of_a_log():
    ten_hz = moving_drive(10)
    assert log_intervals(ten_hz, ["protocol"]) == (2, 6)
    assert log_intervals(ten_hz, ["0.6s", "0.2s", "2"]) == (2, 6)
    keyframes = replace(ten_hz, timestamps_ns=np.arange(10) * 500_000_000, format="nuscenes")
    assert log_intervals(keyframes, ["protocol"]) == (1,)
    with pytest.raises(UsageError, match=r"0\.2s.*a sweep each 0\.5 s.*nearest is 0\.5s"):
        log_intervals(keyframes, ["0.2s"])
    slow = replace(ten_hz, timestamps_ns=np.arange(10) * 900_000_000)
    with pytest.raises(UsageError, match=r"Or name other intervals, such as `intervals` 0\.9s"):
        log_intervals(slow, ["protocol"])
    for text in ("0", "0s", "-1", "two", "0.2", "1e3s"):
        with pytest.raises(UsageError, match="`intervals` takes"):
            ClipEncoder(clock, replace(CONFIG, intervals=(text,)))


def test_the_manifest_says_what_was_cached(tmp_path):
    cache = open_token_cache(make(tmp_path / "c", [moving_drive(24)]))
    assert cache.config == CONFIG
    assert cache.drives["a"].clips == 14
    assert cache.read("a", 0, "tokens").dtype == torch.int16
    assert cache.read("a", 0, "references").tolist() == [4, *sorted([*range(6, 17, 2)] * 2), 18]


def test_codes_that_int16_cannot_hold_are_kept_all_the_same(tmp_path):
    big = replace(CONFIG, vocabulary=40_000)
    folder = make(tmp_path / "c", [moving_drive(24)], lambda sweeps: clock(sweeps) + 39_000, big)
    clip = TokenClips.open([folder], past_frames=3, future_frames=2).clip(0, 0)
    assert clip.tokens[:, 0, 0].tolist() == [39_000, 39_002, 39_004, 39_006, 39_008]

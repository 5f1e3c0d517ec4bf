"""A clip whose oldest frame is of all past sweeps together: when it is tokenised, trained on and forecast from."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from copilot4d import presets
from copilot4d.errors import DataError, UsageError
from copilot4d.forecasting import stages
from copilot4d.geometry import Sweep, gathered_sweep, se3
from copilot4d.tokenizer import Tokenizer
from copilot4d.tokens.token_cache import TokenCacheConfig, open_token_cache
from copilot4d.tokens.token_clips import TokenClips
from copilot4d.tokens.tokenize_drives import ClipEncoder
from copilot4d.training.tasks.world_model import check_clips
from copilot4d.world_model import WorldModelConfig
from tests.tokens.moving_drives import CONFIG, clock, make, moving_drive, occupied
from tests.world_model.models import small_config

GATHERED = replace(CONFIG, gathered_past=True)


def moving_landmark_drive():
    """Besides what stands, one thing that is at a place of its own in each sweep."""
    drive = moving_drive(24, yaw=0.0)

    def read(frame):
        sweep = drive.read(frame)
        moving = np.array([[-6.0 + frame % 6, 6.5, 0.0]], dtype=np.float32)
        return replace(sweep, points=np.concatenate([sweep.points, moving]))

    return replace(drive, read=read)


def returned_by(generator):
    while True:
        try:
            next(generator)
        except StopIteration as stopped:
            return stopped.value


def test_gathering_keeps_every_point_and_where_its_ray_began():
    one = Sweep(points=np.ones((2, 3), np.float32), world_from_lidar=se3.identity(), timestamp_ns=5)
    two = replace(one, points=np.full((1, 3), 2, np.float32), timestamp_ns=9, origins=np.full((1, 3), 7, np.float32))
    both = gathered_sweep([one, two])
    assert both.points[:, 0].tolist() == [1, 1, 2]
    assert both.point_origins[:, 0].tolist() == [0, 0, 7]
    assert both.timestamp_ns == 5
    assert gathered_sweep([one, one]).origins is None
    assert gathered_sweep([two]) is two


def test_the_oldest_frame_shows_what_any_past_frame_shows_and_no_other_frame_changes(tmp_path):
    drives = [moving_landmark_drive()]
    plain = TokenClips.open([make(tmp_path / "plain", drives, occupied)], past_frames=3, future_frames=2)
    folder = make(tmp_path / "gathered", drives, occupied, GATHERED)
    gathered = TokenClips.open([folder], past_frames=3, future_frames=2)
    assert len(gathered) == len(plain) == 14
    more = 0
    for i in range(len(plain)):
        before, after = plain.clip(i, 0), gathered.clip(i, 0)
        assert torch.equal(after.tokens[0], before.tokens[:3].amax(0))  # of the past, never of the future
        assert torch.equal(after.tokens[1:], before.tokens[1:])
        np.testing.assert_array_equal(after.world_from_lidar, before.world_from_lidar)
        more += int((after.tokens[0] != before.tokens[0]).sum())
    assert more > 0


def test_each_sweep_is_still_read_once():
    drive, read = moving_drive(24), []
    counted = replace(drive, read=lambda frame: (read.append(frame), drive.read(frame))[1])
    encoder = ClipEncoder(clock, GATHERED, batch=4)
    assert len(list(encoder.encode(counted))) == encoder.count(drive)
    assert sorted(read) == sorted(set(read))


def test_a_forecast_reads_the_tokens_that_training_read():
    config = presets.preset("tiny")
    tokenizer = Tokenizer(config.tokenizer).eval()
    cached = TokenCacheConfig(
        tokenizer_sha256="a" * 64, vocabulary=tokenizer.config.vocabulary, token_shape=tokenizer.config.tokens,
        grid=tokenizer.config.grid, token_frame="reference", gathered_past=True, intervals=("2",), past_frames=3,
        future_frames=1, augmentation=CONFIG.augmentation,
    )  # fmt: skip
    drive = moving_landmark_drive()
    with torch.inference_mode():
        made = returned_by(ClipEncoder(tokenizer.encode, cached).encode(drive))
    frames = made["clip_frames"][1, :3].tolist()
    past = [drive[frame] for frame in frames]
    with torch.inference_mode():
        found = stages.encode(tokenizer, past, past[-1].world_from_lidar, gathered_past=True)
        alone = stages.encode(tokenizer, past[-1:], past[-1].world_from_lidar, gathered_past=True)
    assert torch.equal(found, made["tokens"][1, :3].long())
    assert torch.equal(alone[0], found[-1])  # a past of one sweep is that sweep


def test_a_cache_without_it_is_the_same_as_before_it_could_be_asked_for(tmp_path):
    drive = moving_drive(24)
    assert "gathered_past" not in json.loads(CONFIG.identity(drive, (2,)))
    assert json.loads(GATHERED.identity(drive, (2,)))["gathered_past"] is True
    folder = make(tmp_path / "c", [drive], config=GATHERED)
    assert open_token_cache(folder).config.gathered_past


def test_what_does_not_fit_is_refused(tmp_path):
    plain = make(tmp_path / "plain", [moving_drive(14)])
    gathered = make(tmp_path / "gathered", [moving_drive(14, name="b")], config=GATHERED)
    with pytest.raises(DataError, match="gathered_past: expected False"):
        TokenClips.open([plain, gathered], past_frames=3, future_frames=2)
    with pytest.raises(DataError, match=r"expected 2 past frames, the oldest.*--past-frames 2"):
        TokenClips.open([gathered], past_frames=2, future_frames=2)
    with pytest.raises(UsageError, match="`gathered_past` needs `token_frame` reference"):
        replace(GATHERED, token_frame="own")
    with pytest.raises(UsageError, match="gathered_past needs the token frame"):
        WorldModelConfig(gathered_past=True)
    clips = TokenClips.open([gathered], past_frames=3, future_frames=2)
    config = replace(small_config(token_frame="reference"), vocabulary=300, tokens=(8, 8), past_frames=3, frames=5)
    with pytest.raises(UsageError, match="gathered_past False, but the tokens were made with True"):
        check_clips(config, clips)
    check_clips(replace(config, gathered_past=True), clips)

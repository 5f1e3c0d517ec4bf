"""Token caches of what is expected: the past carried on to each future frame, from the past alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.geometry import Drive
from copilot4d.motion import extrapolate
from copilot4d.tokens.token_clips import TokenClips
from copilot4d.training.clip_batch import batch_of, newest_past
from tests.motion.scenes import drive_past
from tests.tokens.moving_drives import CONFIG, make
from tests.world_model.models import small_config

P, F = 3, 2
EXPECTED = replace(CONFIG, expected=True, intervals=("1",), reference_every=1)


def standing(sweeps):
    """A stand-in for a tokenizer: 1 where a cell of 2 m holds points above the ground."""
    tokens = torch.zeros(len(sweeps), 8, 8, dtype=torch.int64)
    for n, sweep in enumerate(sweeps):
        cells = np.floor((sweep.points[sweep.points[:, 2] > -1.6, :2] + 8) / 2).astype(int)
        cells = cells[((cells >= 0) & (cells < 8)).all(axis=1)]
        tokens[n, cells[:, 0], cells[:, 1]] = 1
    return tokens


def car_drive(frames=7):
    """A car that passes at 6 m/s, in a region of 16 m."""
    return Drive.from_sweeps("car", drive_past((6.0, 0.0), sweeps=frames, start=(-4.0, 3.0)))


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = make(tmp_path_factory.mktemp("expected"), [car_drive()], standing, EXPECTED)
    return TokenClips.open([folder], past_frames=P, future_frames=F)


def test_past_frames_expect_nothing_and_future_frames_what_the_past_says(clips):
    drive, first = car_drive(), clips.clip(0, 0)
    assert (first.expected[:P] == CONFIG.vocabulary).all()
    past = [drive[i] for i in range(P)]
    carried_on = extrapolate(past)
    for f in range(F):
        sweep = carried_on.sweep_at(0.2 * (f + 1), past[-1], CONFIG.grid.box)
        assert torch.equal(first.expected[P + f], standing([sweep])[0])
    assert not torch.equal(first.expected[P], first.expected[P + 1])


def test_nothing_of_the_future_is_known(tmp_path, clips):
    """The same past before another future gives the same expectation."""
    drive = car_drive()
    other = replace(drive, read=lambda frame: drive.read(frame if frame < P else 0))
    folder = make(tmp_path, [other], standing, EXPECTED)
    changed = TokenClips.open([folder], past_frames=P, future_frames=F).clip(0, 0)
    assert torch.equal(changed.expected, clips.clip(0, 0).expected)
    assert not torch.equal(changed.tokens[P:], clips.clip(0, 0).tokens[P:])


def test_batches_carry_it_and_a_single_past_sweep_expects_nothing(clips):
    config = small_config(past_frames=P, frames=P + F, token_frame="reference")
    batch = batch_of([clips.clip(0, 0), clips.clip(1, 0)], "reference")
    assert torch.equal(batch.actions.expected[1], clips.clip(1, 0).expected)
    shorter = newest_past(batch, config, 2)
    assert torch.equal(shorter.actions.expected, batch.actions.expected[:, 1:])
    assert newest_past(batch, config, 1).actions.expected is None


def test_mirrored_drives_expect_mirrored_streets(tmp_path, clips):
    config = replace(EXPECTED, variants=2, augmentation=replace(CONFIG.augmentation, max_yaw_deg=0.0))
    both = TokenClips.open([make(tmp_path, [car_drive()], standing, config)], past_frames=P, future_frames=F)
    plain, mirrored = both.clip(0, 0).expected[P:], both.clip(0, 1).expected[P:].flip(2)
    assert (plain == mirrored).float().mean() > 0.95
    assert (plain == both.clip(0, 1).expected[P:]).float().mean() < 0.95


def test_without_it_clips_have_none_and_own_frames_cannot(tmp_path):
    folder = make(tmp_path, [car_drive()], standing, replace(EXPECTED, expected=False))
    assert TokenClips.open([folder], past_frames=P, future_frames=F).clip(0, 0).expected is None
    with pytest.raises(UsageError, match="token_frame"):
        replace(CONFIG, token_frame="own", expected=True)

"""Clips of tokens: the right frames, in the right frame, with the poses that belong to them."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import se3
from copilot4d.tokens import clip_index, token_cache
from copilot4d.tokens.token_clips import TokenClips
from tests.tokens.moving_drives import (
    BONNET,
    CONFIG,
    LANDMARKS,
    make,
    moving_drive,
    occupied,
)


@pytest.fixture(autouse=True, params=["in memory", "on disk"])
def indexes(request, tmp_path, monkeypatch):
    """Everything here holds for few drives and, with an index on disk of caches and of clips, for many."""
    monkeypatch.setenv("COPILOT4D_CACHE", str(tmp_path / "cache"))
    if request.param == "on disk":
        monkeypatch.setattr(clip_index, "FEW_DRIVES", 0)
        monkeypatch.setattr(token_cache, "LARGE_MANIFEST_BYTES", 0)


def map_of(landmarks, world_from_lidar):
    """The tokens of `occupied` for points in the world, by hand."""
    seen = se3.transform_points(se3.invert(world_from_lidar), landmarks)
    seen = seen[(np.abs(seen[:, :2]) < 8).all(axis=1)]
    tokens = torch.zeros(8, 8, dtype=torch.int64)
    tokens[tuple(np.floor((seen[:, :2] + 8) / 2).astype(int).T)] = 1
    return tokens


def items(clips):
    return [clips.clip(i, 0) for i in range(len(clips))]


def test_a_static_scene_keeps_its_tokens_in_the_reference_frame_alone(tmp_path):
    drive = moving_drive(ego_box=BONNET)
    clips = {}
    for frame in ("own", "reference"):
        config = replace(CONFIG, token_frame=frame)
        folder = make(tmp_path / frame, [drive], occupied, config)
        clips[frame] = TokenClips.open([folder], past_frames=3, future_frames=2, intervals=[2])
    for clip in items(clips["reference"]):
        expected = map_of(LANDMARKS, drive.world_from_lidar[clip.reference])
        assert all(torch.equal(frame, expected) for frame in clip.tokens)
    changed = [bool((clip.tokens != clip.tokens[2]).any()) for clip in items(clips["own"])]
    assert np.mean(changed) > 0.9
    for frame in clips:  # the same moment is the same in both: the reference sweep itself is not moved
        assert clips[frame].token_frame == frame
    own = {clip.reference: clip.tokens[2] for clip in items(clips["own"])}
    assert all(torch.equal(clip.tokens[2], own[clip.reference]) for clip in items(clips["reference"]))


@pytest.mark.parametrize("frame", ["own", "reference"])
def test_clips_hold_the_frames_of_their_interval(frame, tmp_path):
    folder = make(tmp_path / "c", [moving_drive(24)], config=replace(CONFIG, token_frame=frame))
    clips = TokenClips.open([folder], past_frames=3, future_frames=2)
    found = {}
    for clip in items(clips):
        expected = [clip.reference + k * clip.interval for k in (-2, -1, 0, 1, 2)]
        assert clip.tokens.dtype == torch.int64
        assert clip.tokens[:, 0, 0].tolist() == expected
        assert clip.tokens.shape == (5, 8, 8)
        assert clip.past_frames == 3
        assert clip.world_from_lidar.dtype == np.float64
        assert (clip.world_from_lidar == moving_drive(24).world_from_lidar[expected]).all()
        found.setdefault(clip.interval, []).append(clip.reference)
    every = 1 if frame == "own" else 2
    # the first reference has 2 intervals before it, the last 2 behind it: 23 - 4 = 19, 23 - 6 = 17
    assert found == {2: [r for r in range(4, 20) if r % every == 0], 3: [r for r in range(6, 18) if r % every == 0]}
    assert clips.intervals_s == (0.2, 0.3)  # the log has 10 sweeps a second
    assert TokenClips.open([folder], past_frames=2, future_frames=1, intervals=[3]).intervals_s == (0.3,)
    with pytest.raises(IndexError):
        clips.clip(len(clips), 0)
    with pytest.raises(IndexError):
        clips.clip(-1, 0)


@pytest.mark.parametrize("frame", ["own", "reference"])
def test_shorter_clips_are_cut_around_the_reference(frame, tmp_path):
    folder = make(tmp_path / "c", [moving_drive(24)], config=replace(CONFIG, token_frame=frame))
    for clip in items(TokenClips.open([folder], past_frames=2, future_frames=1, intervals=[3])):
        assert clip.interval == 3
        assert clip.past_frames == 2
        assert clip.tokens[:, 0, 0].tolist() == [clip.reference - 3, clip.reference, clip.reference + 3]
        assert clip.world_from_lidar.shape == (3, 4, 4)
        assert clip.world_from_lidar[1, 0, 3] == 0.5 * clip.reference


def test_longer_clips_and_other_intervals_are_refused_with_the_command(tmp_path):
    folder = make(tmp_path / "c", [moving_drive(24)])
    with pytest.raises(DataError, match=r"expected 4 \+ 2 frames, found 3 \+ 2.*--past-frames 4 --future-frames 2"):
        TokenClips.open([folder], past_frames=4, future_frames=2)
    with pytest.raises(DataError, match=rf"interval 5.*{folder} --intervals 2 3 5 --overwrite"):
        TokenClips.open([folder], past_frames=3, future_frames=2, intervals=[3, 5])
    with pytest.raises(UsageError, match="no drive b"):
        TokenClips.open([folder], past_frames=3, future_frames=2, drives=["b"])
    too_short = make(tmp_path / "short", [moving_drive(6), moving_drive(24, name="b")], held_out=["b"])
    with pytest.raises(UsageError, match=r"no drive has a clip of 3 \+ 2 frames.*looked at: a"):
        TokenClips.open([too_short], past_frames=3, future_frames=2)
    with pytest.raises(DataError, match=r"none of the 1 drives is long enough; the longest, a, has 6"):
        make(tmp_path / "none", [moving_drive(6)])
    own = make(tmp_path / "own", [moving_drive(24)], config=replace(CONFIG, token_frame="own"))
    longer = TokenClips.open([own], past_frames=6, future_frames=3, intervals=[1])
    assert longer.clip(0, 0).tokens[:, 0, 0].tolist() == list(range(9))


@pytest.mark.parametrize("frame", ["own", "reference"])
def test_no_clip_spans_a_missing_sweep(frame, tmp_path):
    drive = moving_drive(30, missing=(15,))
    folder = make(tmp_path / "c", [drive], config=replace(CONFIG, token_frame=frame, reference_every=1))
    clips = items(TokenClips.open([folder], past_frames=3, future_frames=2, intervals=[2]))
    assert clips
    for clip in clips:
        times = clip.tokens[:, 0, 0]
        assert set(times.diff().tolist()) == {2}
        assert 15 not in times
    # even moments alone span 15: the frames behind it have moved up by one, the times have not
    assert any(clip.tokens[0, 0, 0] < 15 < clip.tokens[-1, 0, 0] for clip in clips)


def test_augmentation_comes_before_the_reference_frame_and_poses_follow(tmp_path):
    config = replace(CONFIG, variants=3)
    drive = moving_drive(ego_box=BONNET)
    folder = make(tmp_path / "c", [drive], occupied, config)
    clips = TokenClips.open([folder], past_frames=3, future_frames=2)
    assert clips.variants == 3
    for variant in range(3):
        turned = config.variant("a", variant)
        assert turned.mirror == (variant > 0)
        augmented = turned.drive(drive)
        world = LANDMARKS * [1, -1, 1] if turned.mirror else LANDMARKS
        clip = clips.clip(4, variant)
        frames = [clip.reference + k * clip.interval for k in (-2, -1, 0, 1, 2)]
        assert (clip.world_from_lidar == augmented.world_from_lidar[frames]).all()
        expected = map_of(world, clip.world_from_lidar[2])
        assert all(torch.equal(frame, expected) for frame in clip.tokens)
    with pytest.raises(UsageError, match="variants 0 to 2"):
        clips.clip(0, 3)


def test_several_folders_are_one_list_and_must_agree(tmp_path):
    a = make(tmp_path / "a", [moving_drive(14, name="a"), moving_drive(13, name="b")], held_out=["b"])
    c = make(tmp_path / "c", [moving_drive(12, name="c")], config=replace(CONFIG, variants=2))
    both = TokenClips.open([a, c], past_frames=3, future_frames=2, intervals=[2])
    assert both.drives == ("a", "c")
    assert both.held_out == ("b",)
    assert [clip.drive for clip in items(both)] == ["a"] * 3 + ["c"] * 2
    assert [clip.reference for clip in items(both)] == [4, 6, 8, 4, 6]
    assert both.variants == 2
    assert torch.equal(both.clip(0, 1).tokens, both.clip(0, 0).tokens)  # a has one variant alone
    named = TokenClips.open([a, c], past_frames=3, future_frames=2, drives=["b"])
    assert named.drives == ("b",)
    other = make(tmp_path / "o", [moving_drive(14)], config=replace(CONFIG, tokenizer_sha256="b" * 64))
    with pytest.raises(DataError, match=rf"tokenizer_sha256: expected aaaaaaaaaaaa.*copilot4d tokenize --out {other}"):
        TokenClips.open([a, other], past_frames=3, future_frames=2)
    own = make(tmp_path / "own", [moving_drive(14)], config=replace(CONFIG, token_frame="own"))
    with pytest.raises(DataError, match="token_frame: expected reference"):
        TokenClips.open([a, own], past_frames=3, future_frames=2)
    with pytest.raises(UsageError, match="`tokens`"):
        TokenClips.open([], past_frames=3, future_frames=2)


def test_the_fingerprint_knows_tokens_and_selection(tmp_path):
    drives = [moving_drive(14), moving_drive(14, name="b")]
    one = make(tmp_path / "one", drives)
    same = make(tmp_path / "same", drives)
    other = make(tmp_path / "other", drives, occupied)

    def fingerprint(folder, past=3, **choice):
        return TokenClips.open([folder], past_frames=past, future_frames=2, **choice).fingerprint

    assert fingerprint(one) == fingerprint(same)
    different = [fingerprint(one), fingerprint(other), fingerprint(one, past=2), fingerprint(one, drives=["a"]),
                 fingerprint(one, intervals=[2])]  # fmt: skip
    assert len(set(different)) == 5


def test_loader_workers_get_a_copy(tmp_path):
    clips = TokenClips.open([make(tmp_path / "c", [moving_drive(14)])], past_frames=3, future_frames=2)
    copy = pickle.loads(pickle.dumps(clips))
    assert len(copy) == len(clips)
    assert torch.equal(copy.clip(1, 0).tokens, clips.clip(1, 0).tokens)

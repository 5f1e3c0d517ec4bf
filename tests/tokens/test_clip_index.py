"""The index of token clips: made once, the clips of a process without it, and what happens when it is gone or wrong."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from copilot4d.errors import Copilot4dWarning, DataError
from copilot4d.tokens import clip_index, token_cache
from copilot4d.tokens.drive_table import DriveTable, write_rows
from copilot4d.tokens.index_file import IndexFile, index_in_memory, kept_index
from copilot4d.tokens.token_cache import open_token_cache
from copilot4d.tokens.token_clips import TokenClips
from tests.tokens.moving_drives import CONFIG, make, moving_drive, occupied

CLIPS = {"past_frames": 3, "future_frames": 2}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COPILOT4D_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "index"


@pytest.fixture
def many(monkeypatch):
    """What is few counts as many."""
    monkeypatch.setattr(clip_index, "FEW_DRIVES", 0)
    monkeypatch.setattr(token_cache, "LARGE_MANIFEST_BYTES", 0)


def some_tokens(folder: Path, frame: str = "reference") -> Path:
    drives = [moving_drive(n, name=f"drive {n}") for n in (24, 6, 18, 15)]  # one too short for a clip
    return make(folder, drives, occupied, replace(CONFIG, token_frame=frame, variants=2), held_out=["drive 15"])


def everything(clips: TokenClips) -> list[object]:
    found = [clips.clip(i, v) for i in range(len(clips)) for v in range(clips.variants)]
    return [
        (c.drive, c.reference, c.interval, c.interval_s, c.past_frames, c.tokens.tolist(), c.world_from_lidar.tobytes())
        for c in found
    ]


@pytest.mark.parametrize("frame", ["own", "reference"])
def test_many_drives_give_the_clips_of_few_in_their_order(frame, tmp_path, cache, monkeypatch):
    folder = some_tokens(tmp_path / "t", frame)
    few = TokenClips.open([folder], **CLIPS)
    assert not cache.exists(), "of few drives nothing is kept"
    monkeypatch.setattr(clip_index, "FEW_DRIVES", 0)
    monkeypatch.setattr(token_cache, "LARGE_MANIFEST_BYTES", 0)
    made = TokenClips.open([folder], **CLIPS)
    assert sorted(p.name.split("-")[0] for p in cache.glob("*.index")) == ["clips", "drives"]
    for name in ("read", "opened"):  # whoever comes next reads no drive's times
        monkeypatch.setattr(token_cache.TokenCache, name, None)
    again = TokenClips.open([folder], **CLIPS)
    monkeypatch.undo()
    assert few.fingerprint == made.fingerprint == again.fingerprint
    assert few.drives == made.drives == again.drives == ("drive 24", "drive 18")
    assert few.held_out == again.held_out == ("drive 15",)
    assert everything(few) == everything(made) == everything(again)


def test_fingerprints_and_clips_are_those_of_before_there_was_an_index(tmp_path, cache, many):
    """The fingerprint is in checkpoints: a run whose clips have another one would not go on."""
    clips = TokenClips.open([some_tokens(tmp_path / "t")], **CLIPS)
    assert clips.fingerprint == GOLDEN


GOLDEN = "0f1d07a2813c89b576cae90e666cb40f4d7a907d4bcfbe18e752a3e65c620766"


def test_another_selection_and_other_tokens_have_another_index(tmp_path, cache, many):
    folder = some_tokens(tmp_path / "t")
    first = TokenClips.open([folder], **CLIPS)
    named = TokenClips.open([folder], **CLIPS, drives=["drive 15"])
    shorter = TokenClips.open([folder], **CLIPS, intervals=[2])
    assert len({len(first), len(named), len(shorter)}) == 3
    make(folder, [moving_drive(20, name="drive 24")], occupied, replace(CONFIG, variants=2), overwrite=True)
    changed = TokenClips.open([folder], **CLIPS)
    assert changed.drives == ("drive 24",)
    assert len(changed) < len(first)


def test_a_damaged_index_is_made_anew_and_a_damaged_row_is_noticed(tmp_path, cache, many):
    folder = some_tokens(tmp_path / "t")
    whole = TokenClips.open([folder], **CLIPS)
    expected = everything(whole)
    (path,) = cache.glob("clips-*.index")
    good = path.read_bytes()
    for damaged in (b"", good[:-40], good[:-30] + b"?" + good[-29:], b"x" * 200):
        path.write_bytes(damaged)
        assert everything(TokenClips.open([folder], **CLIPS)) == expected
    assert path.read_bytes() == good
    path.write_bytes(good[:20] + b"\x7f" + good[21:])  # within the first clip's frames
    clips = TokenClips.open([folder], **CLIPS)
    with pytest.raises(DataError, match=r"clip 0: expected the row that was written.*delete the file"):
        clips.clip(0, 0)
    clips.clip(1, 0)


def test_an_index_that_was_deleted_says_how_to_go_on(tmp_path, cache, many):
    clips = TokenClips.open([some_tokens(tmp_path / "t")], **CLIPS)
    sent = pickle.dumps(clips)
    assert len(sent) < 5000
    first = clips.clip(0, 0)
    for path in cache.glob("*.index"):
        path.unlink()
    assert torch.equal(clips.clip(0, 0).tokens, first.tokens), "who has it open keeps it"
    with pytest.raises(DataError, match="start the same command again"):
        pickle.loads(sent).clip(0, 0)


def test_a_file_of_tokens_that_is_gone_is_told_at_the_start(tmp_path, cache, many):
    folder = some_tokens(tmp_path / "t")
    TokenClips.open([folder], **CLIPS)
    file = folder / open_token_cache(folder).drives["drive 18"].file
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(DataError, match=rf"{file.name}.*bytes: expected"):
        TokenClips.open([folder], **CLIPS)
    file.unlink()
    with pytest.raises(DataError, match="found none"):
        TokenClips.open([folder], **CLIPS)


def test_where_nothing_can_be_kept_each_process_holds_its_own(tmp_path, monkeypatch, many):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COPILOT4D_CACHE", str(tmp_path / "file"))
    folder = some_tokens(tmp_path / "t")
    with pytest.warns(Copilot4dWarning, match="COPILOT4D_CACHE"):
        clips = TokenClips.open([folder], **CLIPS)
    copy = pickle.loads(pickle.dumps(clips))
    assert everything(copy) == everything(clips)


def _make(path: Path, started: object, results: object) -> None:
    os.environ["COPILOT4D_CACHE"] = str(path)

    def write(writer):
        results.put("made")  # type: ignore[attr-defined]
        writer.add("rows", b"abc")
        return {"n": 1}

    started.wait()  # type: ignore[attr-defined]
    results.put(kept_index("test", "key", write).read("rows", 1, 2))  # type: ignore[attr-defined]


def test_of_processes_that_start_together_one_makes_the_index(tmp_path):
    context = multiprocessing.get_context("fork")
    started, results = context.Barrier(4), context.Queue()
    ranks = [context.Process(target=_make, args=(tmp_path, started, results)) for _ in range(4)]
    for rank in ranks:
        rank.start()
    found = [results.get(timeout=30) for _ in range(5)]
    for rank in ranks:
        rank.join()
    assert sorted(found, key=str) == [b"bc"] * 4 + ["made"]


def test_a_table_finds_rows_by_name_and_keeps_their_order(tmp_path):
    names = [f"drive {n * 7919 % 1000}" for n in range(1000)] + ["ö", 'a"b\n']

    def write(writer):
        write_rows(writer, ({"name": name, "n": n} for n, name in enumerate(names)))
        return {}

    index = index_in_memory(write)
    table = DriveTable(index, _number)
    assert (len(table), list(table)) == (1002, names)
    assert list(table.rows()) == list(range(1002)) == [table[name] for name in names]
    assert "drive" not in table
    assert pickle.loads(pickle.dumps(table))["ö"] == 1000
    empty = index_in_memory(lambda writer: write_rows(writer, iter(())) or {})
    assert list(DriveTable(empty, _number)) == []


def _number(row):
    return row["n"]


def test_names_whose_digests_are_equal_are_told_apart(monkeypatch):
    monkeypatch.setattr("copilot4d.tokens.drive_table._digest", lambda name: np.uint64(len(name)))
    index = index_in_memory(
        lambda writer: write_rows(writer, iter([{"name": n, "n": n} for n in ("bb", "a", "aa")])) or {}
    )
    table = DriveTable(index, _number)
    assert [table[name] for name in ("aa", "bb", "a")] == ["aa", "bb", "a"]
    assert "cc" not in table


def test_a_block_is_written_in_one_go():
    def write(writer):
        writer.add("a", b"1")
        writer.add("b", b"2")
        writer.add("a", b"3")
        return {}

    with pytest.raises(ValueError, match="finished before"):
        index_in_memory(write)


def test_an_index_needs_all_its_bytes():
    with pytest.raises(ValueError, match="3 bytes"):
        IndexFile(b"abc")

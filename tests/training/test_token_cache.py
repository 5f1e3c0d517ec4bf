"""The token cache: what the encoder gave comes back, for the right tokenizer and data only."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from copilot4d.errors import DataError, TrainingError, UsageError
from copilot4d.geometry import se3
from copilot4d.training import SampleKey, World
from copilot4d.training import sealed_folder as sealed
from copilot4d.training.augmentation import Augmentation, AugmentationConfig
from copilot4d.training.token_cache import (
    KIND,
    TokenCacheConfig,
    open_token_cache,
    write_token_cache,
)
from tests.support.scenes import make_drive
from tests.training.processes import run_ranks

ALONE = World(device=torch.device("cpu"))
COMMAND = "copilot4d tokenize --data D --tokenizer T --out O"
CONFIG = TokenCacheConfig(
    tokenizer_sha256="a" * 64, data_fingerprint="f", variants=3, augmentation=AugmentationConfig(), seed=5
)
DRIVES = [
    make_drive(4, name="2011_09_26/../drive 1", rings=4, azimuths=24),
    make_drive(6, name="08", rings=4, azimuths=24, yaw_rate=0.2),
]


def encode(drive):
    """A stand-in for a tokenizer: a 2x2 map of how many points lie in each quadrant."""
    counts = []
    for sweep in drive:
        x, y = sweep.points[:, 0] > 0, sweep.points[:, 1] > 0
        counts.append([[int((x & y).sum()), int((x & ~y).sum())], [int((~x & y).sum()), int((~x & ~y).sum())]])
    return {"tokens": torch.tensor(counts, dtype=torch.int32)}


def open_it(folder, **changes):
    expected = {"tokenizer_sha256": "a" * 64, "data_fingerprint": "f", "command": COMMAND}
    return open_token_cache(folder, **(expected | changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_token_cache(tmp_path_factory.mktemp("cache"), DRIVES, encode, CONFIG, ALONE)


def test_tokens_poses_and_times_of_every_variant_come_back(folder):
    cache = open_it(folder)
    cache.verify()
    assert cache.drives == ("2011_09_26/../drive 1", "08")
    assert cache.frames["08"] == 6
    for drive in DRIVES:
        for variant in range(3):
            augmented = CONFIG.variant(drive.name, variant).drive(drive)
            tokens = cache.read(drive.name, variant, "tokens")
            assert torch.equal(tokens, encode(augmented)["tokens"])
            poses = cache.read(drive.name, variant, "world_from_lidar").numpy()
            assert poses.dtype == np.float64
            assert (poses == augmented.world_from_lidar).all()
            assert se3.rigidity_error(poses).max() < 1e-12
            assert (cache.read(drive.name, variant, "timestamps_ns").numpy() == drive.timestamps_ns).all()


def test_some_frames_are_read_alone(folder):
    cache = open_it(folder)
    whole = cache.read("08", 1, "tokens")
    assert torch.equal(cache.read("08", 1, "tokens", slice(2, 5)), whole[2:5])


def test_variants_differ_and_the_first_is_the_drive_itself():
    assert CONFIG.variant("08", 0) == Augmentation()
    drawn = [CONFIG.variant(name, v) for name in ("08", "09") for v in (1, 2)]
    assert len({d.yaw_rad for d in drawn}) == 4
    assert CONFIG.variant("08", 1) == drawn[0]


def test_the_counter_chooses_the_variant(folder):
    cache = open_it(folder)
    keys = [SampleKey(seed=1, step=s, index=i, batch=4) for s in range(100) for i in range(4)]
    chosen = [cache.variant_of(key) for key in keys]
    assert chosen == [cache.variant_of(key) for key in keys]
    assert all(95 < chosen.count(v) < 175 for v in range(3))


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"tokenizer_sha256": "b" * 64}, "tokens of tokenizer bbbbbbbbbbbb"), ({"data_fingerprint": "g"}, "the data g")],
)
def test_stale_and_foreign_caches_are_refused_with_the_command(changes, words, folder):
    with pytest.raises(DataError, match=words) as caught:
        open_it(folder, **changes)
    assert COMMAND in str(caught.value)


def test_unfinished_and_damaged_caches_are_refused(folder, tmp_path):
    victim = tmp_path / "c"
    shutil.copytree(folder, victim)
    file = victim / "drive_00001.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    with pytest.raises(DataError, match=r"drive_00001.*bytes"):
        open_it(victim)
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DataError, match="sha256"):
        open_it(victim).verify()
    (victim / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"no manifest.*copilot4d tokenize"):
        open_it(victim)


def test_an_interrupted_run_does_only_what_is_missing(tmp_path):
    calls = []

    def dying(drive):
        calls.append(drive.name)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return encode(drive)

    with pytest.raises(KeyboardInterrupt):
        write_token_cache(tmp_path, DRIVES, dying, CONFIG, ALONE)
    with pytest.raises(DataError, match="no manifest"):
        open_it(tmp_path)
    calls.clear()
    write_token_cache(tmp_path, DRIVES, lambda d: (calls.append(d.name), encode(d))[1], CONFIG, ALONE)
    assert calls == ["08"] * 3
    open_it(tmp_path).verify()


def test_another_tokenizer_overwrites_all_drives(tmp_path):
    write_token_cache(tmp_path, DRIVES, encode, CONFIG, ALONE)
    other = TokenCacheConfig(tokenizer_sha256="c" * 64, data_fingerprint="f", augmentation=AugmentationConfig())
    calls = []
    write_token_cache(tmp_path, DRIVES[1:], lambda d: (calls.append(d.name), encode(d))[1], other, ALONE)
    assert calls == ["08"]
    cache = open_it(tmp_path, tokenizer_sha256="c" * 64)
    cache.verify()
    assert cache.drives == ("08",)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["drive_00000.safetensors", "manifest.json"]


def test_two_ranks_make_the_same_cache(folder, tmp_path):
    def work(rank):
        from copilot4d.training import open_world

        calls = []
        with open_world("cpu") as world:
            write_token_cache(tmp_path, DRIVES, lambda d: (calls.append(d.name), encode(d))[1], CONFIG, world)
        return calls

    first, second = run_ranks(2, work)
    assert (set(first), set(second)) == ({DRIVES[0].name}, {"08"})
    for file in folder.iterdir():
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_wrong_questions(folder):
    cache = open_it(folder)
    with pytest.raises(UsageError, match="no drive '09'"):
        cache.read("09", 0, "tokens")
    with pytest.raises(UsageError, match="variants 0 to 2"):
        cache.read("08", 3, "tokens")
    with pytest.raises(DataError, match="0/colours"):
        cache.read("08", 0, "colours")
    with pytest.raises(UsageError, match="same name"):
        write_token_cache(folder, [DRIVES[0], DRIVES[0]], encode, CONFIG, ALONE)
    with pytest.raises(UsageError, match="--variants"):
        TokenCacheConfig(tokenizer_sha256="", data_fingerprint="", variants=0, augmentation=AugmentationConfig())


@pytest.mark.parametrize("name", ["../x.safetensors", "/x.safetensors", "x.pt"])
def test_hostile_manifests(name, folder, tmp_path):
    victim = tmp_path / "c"
    shutil.copytree(folder, victim)
    body = json.loads((victim / "manifest.json").read_text())
    body["content"]["drives"][0]["file"] = name
    sealed.seal(victim, kind=KIND, version=1, content=body["content"])
    with pytest.raises(DataError, match="file name"):
        open_it(victim)
    body["content"]["drives"] = [{"_target_": "os.system"}]
    sealed.seal(victim, kind=KIND, version=1, content=body["content"])
    with pytest.raises(DataError, match="_target_"):
        open_it(victim)


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    import errno
    import os

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TrainingError, match="disk is full"):
        write_token_cache(tmp_path, DRIVES, encode, CONFIG, ALONE)
    assert list(tmp_path.iterdir()) == []

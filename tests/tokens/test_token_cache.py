"""The token cache: what the encoder gave comes back, for the right tokenizer and data only."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from copilot4d.checkpoints import sealed_folder as sealed
from copilot4d.errors import DataError, TrainingError, UsageError
from copilot4d.geometry import VoxelGrid, se3
from copilot4d.tokens.augmentation import Augmentation, AugmentationConfig
from copilot4d.tokens.token_cache import KIND, TokenCacheConfig, open_token_cache
from copilot4d.tokens.write_token_cache import file_name, write_token_cache
from copilot4d.training import SampleKey, World
from tests.support.scenes import make_drive
from tests.training.processes import run_ranks

ALONE = World(device=torch.device("cpu"))
COMMAND = "copilot4d tokenize --data D --tokenizer T --out O"
GRID = VoxelGrid.from_bounds((-8.0, -8.0, -2.0), (8.0, 8.0, 2.0), shape=(16, 16, 4))
CONFIG = TokenCacheConfig(
    tokenizer_sha256="a" * 64,
    vocabulary=5000,
    token_shape=(2, 2),
    grid=GRID,
    variants=3,
    augmentation=AugmentationConfig(),
    seed=5,
)
DRIVES = [
    make_drive(4, name="2011_09_26/../drive 1", rings=4, azimuths=24),
    make_drive(6, name="08", rings=4, azimuths=24, yaw_rate=0.2),
]


def quadrants(drive):
    """A stand-in for a tokenizer: a 2x2 map of how many points lie in each quadrant."""
    counts = []
    for sweep in drive:
        x, y = sweep.points[:, 0] > 0, sweep.points[:, 1] > 0
        counts.append([[int((x & y).sum()), int((x & ~y).sum())], [int((~x & y).sum()), int((~x & ~y).sum())]])
    return torch.tensor(counts, dtype=torch.int16)


class Encoder:
    """A `DriveEncoder` that notes its calls and may die."""

    def __init__(self, dies_at=None):
        self.calls = []
        self.dies_at = dies_at

    def intervals(self, drive):
        return (2, 6)

    def count(self, drive):
        return len(drive)

    def encode(self, drive):
        self.calls.append(drive.name)
        if len(self.calls) == self.dies_at:
            raise KeyboardInterrupt
        yield from [None] * len(drive)
        return {"tokens": quadrants(drive)}


def write(folder, drives=DRIVES, encoder=None, config=CONFIG, world=ALONE, **options):
    return write_token_cache(folder, drives, encoder or Encoder(), config, world, command=COMMAND, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("cache")).folder


def test_tokens_poses_and_times_of_every_variant_come_back(folder):
    cache = open_token_cache(folder, tokenizer_sha256="a" * 64)
    cache.verify()
    assert tuple(cache.drives) == ("2011_09_26/../drive 1", "08")
    assert (cache.drives["08"].frames, cache.drives["08"].clips, cache.drives["08"].intervals) == (6, 0, (2, 6))
    assert cache.config == CONFIG
    for drive in DRIVES:
        for variant in range(3):
            augmented = CONFIG.variant(drive.name, variant).drive(drive)
            tokens = cache.read(drive.name, variant, "tokens")
            assert tokens.dtype == torch.int16
            assert torch.equal(tokens, quadrants(augmented))
            poses = cache.read(drive.name, variant, "world_from_lidar").numpy()
            assert poses.dtype == np.float64
            assert (poses == augmented.world_from_lidar).all()
            assert se3.rigidity_error(poses).max() < 1e-12
            assert (cache.read(drive.name, variant, "timestamps_ns").numpy() == drive.timestamps_ns).all()


def test_some_frames_are_read_alone(folder):
    cache = open_token_cache(folder)
    whole = cache.read("08", 1, "tokens")
    assert torch.equal(cache.read("08", 1, "tokens", slice(2, 5)), whole[2:5])


def test_variants_differ_and_the_first_is_the_drive_itself():
    assert CONFIG.variant("08", 0) == Augmentation()
    drawn = [CONFIG.variant(name, v) for name in ("08", "09") for v in (1, 2)]
    assert len({d.yaw_rad for d in drawn}) == 4
    assert CONFIG.variant("08", 1) == drawn[0]


def test_the_counter_chooses_the_variant(folder):
    cache = open_token_cache(folder)
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
        open_token_cache(folder, **changes)
    assert COMMAND in str(caught.value)
    with pytest.raises(DataError, match="copilot4d other"):
        open_token_cache(folder, **changes, command="copilot4d other")


def test_unfinished_and_damaged_caches_are_refused(folder, tmp_path):
    victim = tmp_path / "c"
    shutil.copytree(folder, victim)
    file = victim / file_name("08")
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    with pytest.raises(DataError, match=rf"{file.name}.*bytes"):
        open_token_cache(victim)
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DataError, match="sha256"):
        open_token_cache(victim).verify()
    (victim / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"no manifest.*copilot4d tokenize"):
        open_token_cache(victim)


def test_an_interrupted_run_does_only_what_is_missing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, encoder=Encoder(dies_at=4))
    with pytest.raises(DataError, match="no manifest"):
        open_token_cache(tmp_path)
    encoder = Encoder()
    written = write(tmp_path, encoder=encoder)
    assert encoder.calls == ["08"] * 3
    assert (written.made, written.kept, written.sweeps) == (("08",), (DRIVES[0].name,), 18)
    open_token_cache(tmp_path).verify()


def test_a_longer_list_of_drives_keeps_those_that_are_there(folder, tmp_path):
    write(tmp_path, DRIVES[1:])
    encoder = Encoder()
    write(tmp_path, encoder=encoder)
    assert set(encoder.calls) == {DRIVES[0].name}
    for file in folder.iterdir():
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_a_damaged_file_is_made_again(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "c")
    (tmp_path / "c" / file_name("08")).write_bytes(b"half of a file")
    assert write(tmp_path / "c").made == ("08",)
    open_token_cache(tmp_path / "c").verify()


def test_intervals_of_tokens_in_their_own_frames_change_without_encoding(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "c")
    assert write(tmp_path / "c", config=replace(CONFIG, intervals=("0.2s",), past_frames=3)).made == ()
    assert open_token_cache(tmp_path / "c").config.intervals == ("0.2s",)


OTHER = replace(CONFIG, tokenizer_sha256="c" * 64, variants=1)


def test_tokens_of_another_kind_are_replaced_only_when_told(tmp_path):
    write(tmp_path)
    with pytest.raises(DataError, match=r"tokenizer_sha256 cccccccccccc, variants 1.*found 2 drives") as caught:
        write(tmp_path, config=OTHER)
    assert f"{COMMAND} --overwrite" in str(caught.value)
    with pytest.raises(DataError, match=r"also 1 others \(2011"):
        write(tmp_path, DRIVES[1:])
    open_token_cache(tmp_path, tokenizer_sha256="a" * 64).verify()  # nothing was touched
    encoder = Encoder()
    write(tmp_path, DRIVES[1:], encoder, OTHER, overwrite=True)
    assert encoder.calls == ["08"]
    cache = open_token_cache(tmp_path, tokenizer_sha256="c" * 64)
    cache.verify()
    assert tuple(cache.drives) == ("08",)
    assert sorted(p.name for p in tmp_path.iterdir()) == [file_name("08"), "manifest.json"]


def test_other_data_under_the_same_name_is_noticed(tmp_path):
    write(tmp_path, DRIVES[1:])
    moved = make_drive(6, name="08", rings=4, azimuths=24, yaw_rate=0.3)
    with pytest.raises(DataError, match=r"data [0-9a-f]{12}"):
        write(tmp_path, [moved])


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.md").write_text("years of work")
    with pytest.raises(UsageError, match=r"thesis\.md"):
        write(tmp_path, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.md"]


def test_two_ranks_make_the_same_cache(folder, tmp_path):
    def work(rank):
        from copilot4d.training import open_world

        encoder = Encoder()
        with open_world("cpu") as world:
            written = write(tmp_path, encoder=encoder, world=world)
        return [sorted(set(encoder.calls)), written.sweeps]

    first, second = run_ranks(2, work)
    assert (first, second) == ([[DRIVES[0].name], 30], [["08"], 30])
    for file in folder.iterdir():
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_wrong_questions(folder):
    cache = open_token_cache(folder)
    with pytest.raises(UsageError, match="no drive '09'"):
        cache.read("09", 0, "tokens")
    with pytest.raises(UsageError, match="variants 0 to 2"):
        cache.read("08", 3, "tokens")
    with pytest.raises(DataError, match="0/colours"):
        cache.read("08", 0, "colours")
    with pytest.raises(UsageError, match="same name"):
        write(folder, [DRIVES[0], DRIVES[0]])
    for name in ("variants", "past_frames", "reference_every"):
        with pytest.raises(UsageError, match=f"`{name}`"):
            replace(CONFIG, **{name: 0})


@pytest.mark.parametrize("name", ["../x.safetensors", "/x.safetensors", "x.pt"])
def test_hostile_manifests(name, folder, tmp_path):
    victim = tmp_path / "c"
    shutil.copytree(folder, victim)
    body = json.loads((victim / "manifest.json").read_text())
    body["content"]["drives"][0]["file"] = name
    sealed.seal(victim, kind=KIND, version=1, content=body["content"])
    with pytest.raises(DataError, match="file name"):
        open_token_cache(victim)
    body["content"]["drives"] = [{"_target_": "os.system"}]
    sealed.seal(victim, kind=KIND, version=1, content=body["content"])
    with pytest.raises(DataError, match="_target_"):
        open_token_cache(victim)


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    import errno
    import os

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TrainingError, match="disk is full"):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []

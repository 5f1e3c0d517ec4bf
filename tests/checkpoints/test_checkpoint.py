"""Checkpoints: whole or not there, and never anything but tensors and JSON."""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import shutil

import pytest
import torch

from copilot4d.checkpoints import sealed_folder as sealed
from copilot4d.checkpoints.checkpoint import KIND, RunIdentity
from copilot4d.checkpoints.sealed_folder import DamagedError
from copilot4d.errors import DataError, TrainingError
from copilot4d.training import CheckpointStore, open_checkpoint, train
from tests.training.toy import Heard, ToyTask, toy_config

IDENTITY = RunIdentity(task="t", config={"a": {"b": 1.5}}, data_fingerprint="f", conventions={"grid": [1, 2]})


def tensors(step: int) -> dict[str, dict[str, torch.Tensor]]:
    return {
        "model": {"w": torch.full((3, 2), float(step)), "count": torch.tensor(step), "empty": torch.zeros(0, 3)},
        "optimizer": {"w/exp_avg": torch.arange(6.0).reshape(3, 2).T},  # not contiguous
    }


def save(store: CheckpointStore, step: int, score: float | None = None):
    return store.save(IDENTITY, {"step": step, "score": score}, tensors(step))


def test_what_is_saved_is_loaded(tmp_path):
    path = save(CheckpointStore(folder=tmp_path), 12, 0.5)
    checkpoint = open_checkpoint(path)
    assert checkpoint.step == 12
    for file, values in tensors(12).items():
        loaded = checkpoint.tensors(file)
        assert loaded.keys() == values.keys()
        assert all(torch.equal(loaded[n], values[n]) and loaded[n].dtype == values[n].dtype for n in values)
    content = json.loads((path / "manifest.json").read_text())["content"]
    assert content["config"] == {"a": {"b": 1.5}}
    assert content["data_fingerprint"] == "f"
    assert content["conventions"]["grid"] == [1, 2]
    assert content["conventions"]["axes"].startswith("x forward, y left, z up")
    assert not checkpoint.has("ema")
    with pytest.raises(DataError, match="ema"):
        checkpoint.tensors("ema")


def test_the_last_and_the_best_are_kept(tmp_path):
    store = CheckpointStore(folder=tmp_path, keep_last=2)
    for step, score in enumerate([0.9, 0.2, 0.2, 0.5, float("inf"), None]):
        save(store, step, score)
    assert store.steps() == [1, 4, 5]
    assert (store.best_step(), store.best_score()) == (1, 0.2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_000000001", "step_000000004", "step_000000005"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A real checkpoint of the toy model."""
    run = tmp_path_factory.mktemp("run")
    return train(ToyTask(), toy_config(run, max_steps=2)).checkpoint


def test_500_flips_and_truncations_are_all_detected(folder, tmp_path):
    victim = tmp_path / "step_000000002"
    shutil.copytree(folder, victim)
    rng = random.Random(0)
    files = sorted(victim.iterdir())
    assert {f.name for f in files} == {"manifest.json", "model.safetensors", "optimizer.safetensors", "state.json"}
    originals = {f: f.read_bytes() for f in files}
    for i in range(500):
        file = files[i % len(files)]
        data = bytearray(originals[file])
        if i % 5 == 4:
            data = data[: rng.randrange(len(data))]
        else:
            where = rng.randrange(len(data))
            data[where] ^= rng.randrange(1, 256)
        file.write_bytes(data)
        with pytest.raises(DamagedError):
            open_checkpoint(victim)
        file.write_bytes(originals[file])
    open_checkpoint(victim)


def test_every_byte_of_the_manifest_counts(folder, tmp_path):
    """All of them, blanks too."""
    victim = tmp_path / "c"
    shutil.copytree(folder, victim)
    path = victim / "manifest.json"
    data = path.read_bytes()
    for where in range(len(data)):
        changed = bytearray(data)
        changed[where] ^= 1 if where % 2 else 0x2A
        path.write_bytes(changed)
        with pytest.raises(DamagedError):
            open_checkpoint(victim)
    for changed in (data + b" ", data.rstrip(), b"", b"[]", b"[" * 100_000):
        path.write_bytes(changed)
        with pytest.raises(DamagedError):
            open_checkpoint(victim)


@pytest.mark.parametrize("name", ["model.safetensors", "state.json", "manifest.json"])
def test_missing_files_are_damage(folder, name, tmp_path):
    shutil.copytree(folder, tmp_path / "c")
    (tmp_path / "c" / name).unlink()
    with pytest.raises(DamagedError):
        open_checkpoint(tmp_path / "c")


def test_a_damaged_one_is_reported_and_the_one_before_is_used(tmp_path):
    train(ToyTask(), toy_config(tmp_path, save_every=2, max_steps=6))
    damaged = tmp_path / "checkpoints" / "step_000000006" / "optimizer.safetensors"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 4
    damaged.write_bytes(data)
    heard = Heard()
    result = train(ToyTask(), toy_config(tmp_path, save_every=2, max_steps=8), heard)
    assert any("step 6 is damaged" in m and "optimizer.safetensors" in m for m in heard.messages)
    assert any("going on from step 4" in m for m in heard.messages)
    assert [r.step for r in heard.records] == [5, 6, 7, 8]
    assert (tmp_path / "checkpoints" / "damaged_step_000000006").is_dir()
    straight = train(ToyTask(), toy_config(tmp_path / "straight", max_steps=8))
    for file in ("model", "optimizer"):
        a, b = open_checkpoint(result.checkpoint).tensors(file), open_checkpoint(straight.checkpoint).tensors(file)
        assert all(torch.equal(a[n], b[n]) for n in a)


def test_only_damage_makes_it_look_further_back(tmp_path):
    """A folder from a newer version is no damage: going back silently would lose work."""
    store = CheckpointStore(folder=tmp_path)
    save(store, 1)
    path = save(store, 2)
    sealed.seal(path, kind=KIND, version=99, content={})
    with pytest.raises(DataError, match="update copilot4d"):
        store.newest()
    sealed.seal(path, kind="copilot4d.tokens", version=1, content={})
    with pytest.raises(DataError, match=r"copilot4d\.tokens"):
        store.newest()


def test_leftovers_of_killed_saves_are_not_checkpoints(tmp_path):
    store = CheckpointStore(folder=tmp_path)
    save(store, 1)
    (tmp_path / ".writing-step_000000002-77").mkdir()
    (tmp_path / "step_5").mkdir()
    (tmp_path / "step_000000009").write_text("a file")
    assert store.steps() == [1]
    assert store.newest().step == 1
    save(store, 3)
    assert not list(tmp_path.glob(".writing*"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_failed_write_leaves_what_was_there(code, tmp_path, monkeypatch):
    store = CheckpointStore(folder=tmp_path)
    save(store, 1)

    def full(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(TrainingError, match=r"disk is full.*step_000000001, is intact"):
            save(store, 2)
    assert [p.name for p in tmp_path.iterdir()] == ["step_000000001"]
    assert store.newest().step == 1


def test_all_is_on_the_disk_before_the_name_is_given(tmp_path, monkeypatch):
    """Every file, the folder, then the rename, then the parent."""
    events = []
    real_fsync, real_rename = sealed.fsync, type(tmp_path).rename
    monkeypatch.setattr(sealed, "fsync", lambda p: (events.append(p.name), real_fsync(p)))
    monkeypatch.setattr(type(tmp_path), "rename", lambda s, t: (events.append(f"-> {t.name}"), real_rename(s, t))[1])
    save(CheckpointStore(folder=tmp_path / "c"), 1)
    assert set(events[:4]) == {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"}
    assert events[4].startswith(".writing-step_000000001")
    assert events[5:] == ["-> step_000000001", "c"]


class Bomb:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


HOSTILE_NAMES = [
    "../evil.json", "/etc/passwd", "a/b.json", "..", ".", "", "model.pt", "pytorch_model.bin", "x.pkl", "x.ckpt",
    "x.npy", ".hidden.json", "evil.json\x00", "~.json", "C:\\x.json", "a\nb.json", "evil.json ", "-rf.json",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_manifest_names_cannot_leave_the_folder(name, folder, tmp_path):
    victim = tmp_path / "in" / "c"
    shutil.copytree(folder, victim)
    (tmp_path / "in" / "evil.json").write_text("{}")
    body = json.loads((victim / "manifest.json").read_text())
    del body["sha256"]
    body["files"][name] = {"bytes": 2, "sha256": sealed.sha256_of(tmp_path / "in" / "evil.json")}
    (victim / "manifest.json").write_bytes(sealed._sealed_bytes(body))
    with pytest.raises(DataError, match="file name"):
        open_checkpoint(victim)


def test_symbolic_links_are_not_followed(folder, tmp_path):
    victim = tmp_path / "c"
    shutil.copytree(folder, victim)
    (victim / "state.json").rename(tmp_path / "outside.json")
    (victim / "state.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(DataError, match="symbolic link"):
        open_checkpoint(victim)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "step_000000002").symlink_to(folder)
    assert CheckpointStore(folder=tmp_path / "run").newest() is None


USUAL_NAMES = [
    "model.pt", "model.pth", "pytorch_model.bin", "checkpoint.ckpt", "optimizer.pt", "training_args.bin", "state.pkl",
    "data.pkl", "rng_state.pth", "scheduler.pt", "model.npy", "archive.npz", ".metadata", "__0_0.distcp",
]  # fmt: skip


def test_pickles_under_usual_names_are_never_opened(folder, tmp_path):
    victim = tmp_path / "run" / "checkpoints" / "step_000000002"
    shutil.copytree(folder, victim)
    for name in USUAL_NAMES:
        (victim / name).write_bytes(pickle.dumps(Bomb(tmp_path / "owned")))
    checkpoint = open_checkpoint(victim)
    checkpoint.tensors("model")
    result = train(ToyTask(), toy_config(tmp_path / "run", max_steps=3))
    assert result.step == 3
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("form", ["protocol 0", "protocol 4", "torch"])
def test_pickles_in_the_place_of_our_files_do_not_execute(name, form, folder, tmp_path):
    """Even when the manifest vouches for them."""
    victim = tmp_path / "c"
    shutil.copytree(folder, victim)
    bomb = Bomb(tmp_path / "owned")
    if form == "torch":
        torch.save({"w": torch.zeros(2), "x": bomb}, victim / name)
    else:
        (victim / name).write_bytes(pickle.dumps(bomb, protocol=int(form[-1])))
    sealed.seal(victim, kind=KIND, version=1, content={})
    with pytest.raises(DataError):  # noqa: PT012  (whichever of the two opens the file)
        checkpoint = open_checkpoint(victim)
        checkpoint.tensors(name.split(".")[0])
    assert not (tmp_path / "owned").exists()


def test_a_hostile_safetensors_header_is_an_error(folder, tmp_path):
    victim = tmp_path / "c"
    shutil.copytree(folder, victim)
    for data in (b"\xff" * 8 + b"{}", (2**40).to_bytes(8, "little") + b"{", b"", b"\x02" + b"\0" * 7 + b"[]"):
        (victim / "model.safetensors").write_bytes(data)
        sealed.seal(victim, kind=KIND, version=1, content={})
        with pytest.raises(DataError, match="safetensors"):
            open_checkpoint(victim).tensors("model")

"""Checkpoints at a URL: copied manifest last, fetched where there are none, refused where they are another run's."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

from copilot4d.checkpoints.checkpoint import CheckpointStore, open_checkpoint
from copilot4d.checkpoints.remote_checkpoints import RemoteCheckpoints
from copilot4d.checkpoints.sealed_folder import seal
from copilot4d.errors import DataError, TrainingError, UsageError
from copilot4d.training import train
from tests.training.toy import Heard, ToyTask, toy_config

STEPS = 6


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    if request.param == "file":
        yield f"file://{tmp_path}/store/runs/a"
        return
    fsspec.filesystem("memory").store.clear()
    yield "memory://bucket/runs/a"
    fsspec.filesystem("memory").store.clear()


def config_of(run: Path, url: str | None, **changes):
    return toy_config(run, checkpoints_to=url, **({"save_every": 2, "keep_last": 2, "max_steps": STEPS} | changes))


def weights(run: Path) -> dict[str, torch.Tensor]:
    return CheckpointStore(folder=run / "checkpoints").newest().tensors("model")


def names(url: str) -> list[str]:
    files, root = fsspec.core.url_to_fs(url)
    return sorted(path.removeprefix(root).strip("/") for path in files.find(root))


def test_a_machine_without_the_run_goes_on_from_the_url_to_the_same_bits(url, tmp_path):
    train(ToyTask(), config_of(tmp_path / "whole", None), Heard())
    train(ToyTask(), config_of(tmp_path / "one", url, max_steps=4), Heard())
    assert RemoteCheckpoints(url).steps() == [2, 4]
    heard = Heard()
    done = train(ToyTask(), config_of(tmp_path / "two", url), heard)
    assert done.step == STEPS
    assert any("fetching the checkpoint of step 4" in message for message in heard.messages)
    expected = weights(tmp_path / "whole")
    assert all(torch.equal(value, expected[name]) for name, value in weights(tmp_path / "two").items())
    assert RemoteCheckpoints(url).steps() == [4, 6], "what the run deletes is deleted there"
    assert {name.split("/")[0] for name in names(url)} == {"step_000000004", "step_000000006"}


def test_the_manifest_is_written_last_and_deleted_first(tmp_path, monkeypatch):
    order = []
    real_put, real_rm = MemoryFileSystem.put_file, MemoryFileSystem.rm_file

    def put(self, local, remote, *args, **options):
        order.append(("put", remote))
        return real_put(self, local, remote, *args, **options)

    def remove(self, path):
        order.append(("rm", path))
        return real_rm(self, path)

    monkeypatch.setattr(MemoryFileSystem, "put_file", put)
    monkeypatch.setattr(MemoryFileSystem, "rm_file", remove)
    fsspec.filesystem("memory").store.clear()
    train(ToyTask(), config_of(tmp_path / "run", "memory://b/a", keep_last=1), Heard())
    written = [path for what, path in order if what == "put"]
    for step in (2, 4, 6):
        of_step = [path for path in written if f"step_{step:09d}" in path]
        assert of_step[-1].endswith("manifest.json")
        assert len(of_step) > 3
    gone = [path for what, path in order if what == "rm"]
    assert gone[0].split("/")[-2:] == ["step_000000002", "manifest.json"]
    fsspec.filesystem("memory").store.clear()


def test_what_was_not_finished_or_is_damaged_is_not_used(url, tmp_path):
    train(ToyTask(), config_of(tmp_path / "one", url, keep_last=3), Heard())
    files, root = fsspec.core.url_to_fs(url)
    files.rm_file(f"{root}/step_000000006/manifest.json")  # as a writer that was killed leaves it
    data = files.cat_file(f"{root}/step_000000004/model.safetensors")
    files.pipe_file(f"{root}/step_000000004/model.safetensors", data[:-1] + b"?")
    heard = Heard()
    store = CheckpointStore(folder=tmp_path / "two" / "checkpoints")
    RemoteCheckpoints(url, report=heard.on_message).bring(store)
    assert store.steps() == [2]
    assert any("step 4" in message and "damaged" in message for message in heard.messages)
    done = train(ToyTask(), config_of(tmp_path / "two", url), Heard())
    assert done.step == STEPS
    assert open_checkpoint(tmp_path / "two" / "checkpoints" / "step_000000006").step == 6
    for step in RemoteCheckpoints(url).steps():
        folder = tmp_path / "check" / str(step)
        files.get(f"{root}/step_{step:09d}/", f"{folder}/", recursive=True)
        assert open_checkpoint(folder).step == step, "what was damaged there was replaced"


def test_the_best_checkpoint_comes_along(url, tmp_path):
    run = tmp_path / "one"
    train(ToyTask(), config_of(run, url, keep_last=1, save_every=1), Heard())
    store = CheckpointStore(folder=run / "checkpoints", keep_last=9)
    remote = RemoteCheckpoints(url)
    assert remote.steps() == [6]
    source = store.path(6)
    for step, score in ((3, 0.5), (4, 0.25), (5, None)):  # as scorings would have left them
        files, root = fsspec.core.url_to_fs(url)
        state = json.loads((source / "state.json").read_text()) | {"step": step, "score": score}
        folder = tmp_path / "made" / str(step)
        folder.mkdir(parents=True)
        for name in ("model.safetensors", "optimizer.safetensors"):
            (folder / name).write_bytes((source / name).read_bytes())
        (folder / "state.json").write_text(json.dumps(state))
        seal(folder, kind="copilot4d.checkpoint", version=1, content=dict(open_checkpoint(source).content))
        files.makedirs(f"{root}/step_{step:09d}", exist_ok=True)
        for file in folder.iterdir():
            files.put_file(str(file), f"{root}/step_{step:09d}/{file.name}")
    other = CheckpointStore(folder=tmp_path / "two" / "checkpoints")
    RemoteCheckpoints(url).bring(other)
    assert other.steps() == [4, 6]
    assert other.best_score() == 0.25


def test_another_runs_checkpoints_are_refused_and_left_alone(url, tmp_path):
    train(ToyTask(), config_of(tmp_path / "one", url, max_steps=4), Heard())
    before = names(url)
    with pytest.raises(UsageError, match=rf"{url}, step 4, is from a run with other settings: config.seed differ"):
        train(ToyTask(), config_of(tmp_path / "two", url, seed=99), Heard())
    assert names(url) == before
    assert not (tmp_path / "two" / "checkpoints").exists()


def test_a_store_that_fails_does_not_end_the_training_and_is_told_at_the_end(tmp_path, monkeypatch):
    fsspec.filesystem("memory").store.clear()

    def full(self, *args, **options):
        raise OSError("503 slow down")

    run = tmp_path / "run"
    monkeypatch.setattr(MemoryFileSystem, "put_file", full)
    heard = Heard()
    with pytest.raises(TrainingError, match=r"on this machine alone.*503 slow down.*same command tries again"):
        train(ToyTask(), config_of(run, "memory://b/a"), heard)
    assert CheckpointStore(folder=run / "checkpoints").steps() == [4, 6]
    assert sum("could not be copied" in message for message in heard.messages) == 4  # three saves, and the end
    monkeypatch.undo()
    assert train(ToyTask(), config_of(run, "memory://b/a"), Heard()).step == STEPS
    assert RemoteCheckpoints("memory://b/a").steps() == [4, 6]
    monkeypatch.setattr(MemoryFileSystem, "exists", full)
    with pytest.raises(DataError, match=r"memory://b/a: checkpoints: expected a place.*credentials"):
        RemoteCheckpoints("memory://b/a").steps()
    monkeypatch.undo()
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("runs/a", r"must be a URL such as s3://.*file://"),
        ("nothing://b/a", r"fsspec knows no nothing://"),
        ("s3://b/a", r"s3fs.*install that package"),
    ],
)
def test_addresses_that_cannot_be_are_refused_before_training(url, match, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UsageError, match=match):
        train(ToyTask(), config_of(tmp_path / "run", url), Heard())
    assert not (tmp_path / "run" / "checkpoints").exists()

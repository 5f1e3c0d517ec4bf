"""What ends a run early: each with a clear message, a documented code and the last checkpoint intact."""

from __future__ import annotations

import json
import os
import resource
import signal

import pytest
import torch

from copilot4d.errors import DataError, TrainingError
from copilot4d.training import CheckpointStore, SampleKey, open_checkpoint, train
from copilot4d.training.data import Batches
from copilot4d.training.distributed import World
from copilot4d.training.faults import is_out_of_memory
from copilot4d.training.run_lock import run_held
from tests.training.processes import child, exit_code
from tests.training.toy import Heard, ToyTask, toy_config, toy_recipe


def poisoned_item(step: int, index: int) -> int:
    return SampleKey(seed=7, step=step, index=index, batch=8).item(37)


def test_nan_in_the_loss_stops_before_the_update(tmp_path):
    item = poisoned_item(step=3, index=5)
    with pytest.raises(TrainingError, match=r"step 3: .*not finite.*step_000000002"):
        train(ToyTask(poison=item), toy_config(tmp_path, save_every=2))
    report = json.loads((tmp_path / "faults" / "step_000000003_rank_0.json").read_text())
    assert (report["step"], report["seed"], report["batch"]) == (3, 7, 8)
    assert report["indices"] == list(range(8))
    assert report["samples"][5] == {"item": item}
    assert report["losses"]["total"] == "nan"
    assert "head.weight" in report["parameters_with_bad_gradients"]
    assert CheckpointStore(folder=tmp_path / "checkpoints").steps() == [2]


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_bad_gradient_under_a_finite_loss_is_found_too(value, tmp_path):
    weights = []

    class BadGradient(ToyTask):
        def loss(self, model, batch, counter):
            losses = super().loss(model, batch, counter)
            if counter.step == 2:
                weights.append((model, model.head.weight.detach().clone()))
                model.head.weight.register_hook(lambda gradient: torch.full_like(gradient, value))
            return losses

    with pytest.raises(TrainingError, match=r"step 2: .*gradient norm"):
        train(BadGradient(), toy_config(tmp_path, accumulation=2))
    model, before = weights[0]
    assert torch.equal(model.head.weight, before)
    report = json.loads((tmp_path / "faults" / "step_000000002_rank_0.json").read_text())
    assert report["parameters_with_bad_gradients"] == ["head.weight"]


def test_a_dead_worker_is_told_and_the_checkpoint_is_intact(tmp_path):
    with pytest.raises(TrainingError, match=r"loader worker died.*training.workers"):
        train(ToyTask(die=6), toy_config(tmp_path, workers=1, save_every=2, keep_last=9))
    assert CheckpointStore(folder=tmp_path / "checkpoints").newest().step in (2, 4)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_file_keeps_its_own_message(workers, tmp_path):
    class BadFile(ToyTask):
        def sample(self, key):
            if key.step == 1 and key.index == 3:
                raise DataError("000003.bin", "points", expected="16 n", found="17", remedy="copy it again")
            return super().sample(key)

    with pytest.raises(DataError, match=r"000003\.bin: points: expected 16 n, found 17") as caught:
        train(BadFile(), toy_config(tmp_path, workers=workers))
    assert caught.value.field == "points"


@pytest.mark.parametrize("kind", [RuntimeError, FileNotFoundError, ConnectionResetError])
def test_a_bug_in_a_sample_is_not_called_a_dead_worker(kind, tmp_path):
    class Bug(ToyTask):
        def sample(self, key):
            if key.step == 1:
                raise kind("DataLoader worker: a message that looks like it")
            return super().sample(key)

    with pytest.raises(kind, match="looks like it"):
        train(Bug(), toy_config(tmp_path, workers=1))


@pytest.mark.parametrize("error", [ConnectionResetError(104, "reset"), ConnectionRefusedError(), EOFError()])
def test_a_worker_that_dies_while_its_batch_is_fetched(error, tmp_path, monkeypatch):
    """The batch lies in the dead worker's memory: the transfer fails before the death is noticed."""
    real = Batches.__enter__

    class Breaking:
        def __init__(self, iterator) -> None:
            self.iterator, self.fetched = iterator, 0
            self._shutdown_workers = iterator._shutdown_workers

        def __next__(self):
            self.fetched += 1
            if self.fetched > 1:
                raise error
            return next(self.iterator)

    def enter(self):
        real(self)
        self._iterator = Breaking(self._iterator)
        return self

    monkeypatch.setattr(Batches, "__enter__", enter)
    with pytest.raises(TrainingError, match="loader worker died"):
        train(ToyTask(), toy_config(tmp_path, workers=1))


def test_a_full_disk_in_a_real_process(tmp_path):
    """The system itself refuses to write files beyond a limit."""
    train(ToyTask(), toy_config(tmp_path, max_steps=5))

    def work(tell):
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
        try:
            train(ToyTask(), toy_config(tmp_path))
        except TrainingError as error:
            tell(str(error))
            return 1
        return 0

    with child(work) as (pid, lines):
        said = lines.read()
    assert exit_code(pid) == 1
    assert "the disk is full" in said
    assert "step_000000005, is intact" in said
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step_000000005"]
    heard = Heard()
    assert train(ToyTask(), toy_config(tmp_path), heard).finished
    assert any("going on from step 5" in message for message in heard.messages)


def test_out_of_memory_says_what_to_change(tmp_path):
    class Hungry(ToyTask):
        def loss(self, model, batch, counter):
            if counter.step == 1:
                torch.empty(2**58)
            return super().loss(model, batch, counter)

    with pytest.raises(TrainingError, match=r"step 1: out of memory.*double training.accumulation \(now 2; 4 samples"):
        train(Hungry(), toy_config(tmp_path, accumulation=2))


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate"), True),
        (RuntimeError("shapes cannot be multiplied"), False),
        (ValueError("not enough memory"), False),
    ],
)
def test_what_counts_as_out_of_memory(error, memory):
    assert is_out_of_memory(error) is memory


def test_other_errors_of_a_task_are_not_dressed_up(tmp_path):
    class Broken(ToyTask):
        def loss(self, model, batch, counter):
            if counter.step == 1:
                raise RuntimeError("shapes do not fit")
            return super().loss(model, batch, counter)

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        train(Broken(), toy_config(tmp_path))


def test_waiting_for_data_is_measured(tmp_path):
    import time

    class Slow(ToyTask):
        def sample(self, key):
            time.sleep(0.01)
            return super().sample(key)

    heard = Heard()
    train(Slow(), toy_config(tmp_path, max_steps=4), heard)
    assert all(r.waiting > 0.5 for r in heard.records)
    batches = Batches(Slow(), World(device=torch.device("cpu")), seed=0, batch=4, accumulation=1, first_step=0,
                      last_step=1, workers=0, prefetch=2)  # fmt: skip
    with batches:
        next(batches)
    assert batches.waited_s >= 0.04


def test_the_recipe_clips(tmp_path):
    """With a tiny clip norm the second moments stay below its square."""
    recipe = toy_recipe(clip_norm=1e-3)
    result = train(ToyTask(reinitialise_every=1000), toy_config(tmp_path, recipe=recipe, max_steps=5))
    moments = open_checkpoint(result.checkpoint).tensors("optimizer")
    total = sum(float(m.sum()) for n, m in moments.items() if n.endswith("exp_avg_sq"))
    assert 0 < total <= 1e-6 * (1 - 0.95**5) * 1.01


def test_a_folder_in_which_another_process_trains_is_left_alone(tmp_path):
    run = tmp_path / "run"

    def hold(tell) -> int:
        with run_held(run, World(device=torch.device("cpu"))):
            tell("held")
            signal.pause()
        return 0

    with child(hold) as (pid, lines):
        assert lines.readline() == "held\n"
        with pytest.raises(TrainingError, match="another process trains in this folder"):
            train(ToyTask(), toy_config(run))
        assert not (run / "checkpoints").exists()
        os.kill(pid, signal.SIGKILL)
    assert exit_code(pid) == -signal.SIGKILL
    assert train(ToyTask(), toy_config(run)).finished

"""Two processes over gloo: the same run as one process, and the same state on both."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from copilot4d.errors import TrainingError, UsageError
from copilot4d.training import CheckpointStore, open_checkpoint, open_world, train
from copilot4d.training.distributed import (
    broadcast_module_state,
    check_ranks_agree,
    choose_device,
    module_fingerprint,
)
from tests.training.processes import run_ranks
from tests.training.toy import Heard, ToyModel, ToyTask, toy_config, toy_recipe


class Recording(ToyTask):
    """Notes a fingerprint of the whole model after every step, and the codebook's re-initialisations."""

    def __init__(self) -> None:
        super().__init__(reinitialise_every=4)
        self.fingerprints: list[str] = []
        self.codebooks: list[list[list[float]]] = []

    def after_step(self, context):
        numbers = super().after_step(context)
        self.fingerprints.append(module_fingerprint(context.model))
        self.codebooks.append(context.model.codebook.tolist())
        return numbers


def recorded_run(run, **changes) -> dict:
    task, heard = Recording(), Heard()
    recipe = toy_recipe(ema_decay=0.9)
    result = train(task, toy_config(run, recipe=recipe, evaluate_every=10, **changes), heard)
    return {"losses": heard.losses, "messages": heard.messages, "fingerprints": task.fingerprints,
            "codebooks": task.codebooks, "seen": task.seen, "step": result.step}  # fmt: skip


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """One rank, batch 8."""
    run = tmp_path_factory.mktemp("one")
    return {**recorded_run(run), "run": run}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two ranks, batch 4 each."""
    run = tmp_path_factory.mktemp("two")
    return run_ranks(2, lambda rank: recorded_run(run)), run


def test_two_ranks_with_half_the_batch_have_the_same_losses(one, two):
    first = two[0][0]
    assert len(first["losses"]) == 20
    torch.testing.assert_close(torch.tensor(first["losses"]), torch.tensor(one["losses"]), rtol=0, atol=1e-4)


def test_the_ranks_split_the_batch_that_one_rank_sees(one, two):
    (a, b), _ = two
    assert [x + y for x, y in zip(a["seen"], b["seen"], strict=True)][2:] == [list(s) for s in one["seen"]][2:]


def test_all_ranks_agree_after_every_step_and_reinitialisation(one, two):
    (a, b), _ = two
    assert a["fingerprints"] == b["fingerprints"]
    assert len(set(a["fingerprints"])) == 20
    assert a["codebooks"] == b["codebooks"]
    jumps = (torch.tensor(a["codebooks"][3]) - torch.tensor(a["codebooks"][2])).abs().max()
    assert jumps > 0.1  # step 4 re-initialised the codebook
    torch.testing.assert_close(torch.tensor(a["codebooks"]), torch.tensor(one["codebooks"]), rtol=0, atol=1e-3)


def test_only_the_first_rank_reports_and_writes(two):
    (a, b), run = two
    assert len(a["losses"]) == 20
    assert b["losses"] == b["messages"] == []
    assert len((run / "log.jsonl").read_text().splitlines()) == 22  # 20 steps, 2 evaluations
    assert CheckpointStore(folder=run / "checkpoints").newest().step == 20


def test_a_run_goes_on_with_another_number_of_ranks(one, tmp_path):
    """Ten steps on two ranks, ten more alone."""
    run_ranks(2, lambda rank: recorded_run(tmp_path, max_steps=10)["step"])
    rest = recorded_run(tmp_path)
    assert rest["step"] == 20
    torch.testing.assert_close(torch.tensor(rest["losses"]), torch.tensor(one["losses"][10:]), rtol=0, atol=1e-4)
    same = open_checkpoint(tmp_path / "checkpoints" / "step_000000020").state["order"]
    assert same == open_checkpoint(one["run"] / "checkpoints" / "step_000000020").state["order"]


def test_a_run_goes_on_on_two_ranks(one, tmp_path):
    """Moments, average and step reach the second rank, which reads no file."""
    recorded_run(tmp_path, max_steps=10)
    a, b = run_ranks(2, lambda rank: recorded_run(tmp_path))
    assert a["fingerprints"] == b["fingerprints"]
    torch.testing.assert_close(torch.tensor(a["losses"]), torch.tensor(one["losses"][10:]), rtol=0, atol=1e-4)


def test_a_run_goes_on_from_one_to_four_to_two_ranks(one, tmp_path):
    """Five steps alone, five on four ranks, the rest on two: the losses of one rank that was never interrupted."""
    losses = list(recorded_run(tmp_path, max_steps=5)["losses"])
    losses += run_ranks(4, lambda rank: recorded_run(tmp_path, max_steps=10)["losses"])[0]
    losses += run_ranks(2, lambda rank: recorded_run(tmp_path)["losses"])[0]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(one["losses"]), rtol=0, atol=1e-4)


class Sharded(ToyTask):
    """Without the codebook's hook, which is for whole parameters."""

    def after_step(self, context):
        return {}

    def shard_units(self, model):
        return [model.hidden, model.out]


def test_fully_shard_is_the_same_run(tmp_path):
    def run(folder, **changes):
        heard = Heard()
        recipe = toy_recipe(ema_decay=0.9)
        train(Sharded(), toy_config(tmp_path / folder, recipe=recipe, evaluate_every=5, **changes), heard)
        return heard.losses

    alone = run("alone")
    sharded = run_ranks(2, lambda rank: run("sharded", parallel="fully_shard", max_steps=12, accumulation=2))[0]
    sharded += run_ranks(2, lambda rank: run("sharded", parallel="fully_shard", accumulation=2))[0]
    torch.testing.assert_close(torch.tensor(sharded), torch.tensor(alone), rtol=0, atol=1e-4)
    a, b = (open_checkpoint(tmp_path / f / "checkpoints" / "step_000000020") for f in ("alone", "sharded"))
    for file in ("model", "optimizer", "ema"):
        left, right = a.tensors(file), b.tensors(file)
        assert left.keys() == right.keys()
        for name in left:
            torch.testing.assert_close(left[name], right[name], rtol=1e-3, atol=1e-4)


def test_fully_shard_alone_is_refused(tmp_path):
    with pytest.raises(UsageError, match="torchrun"):
        train(ToyTask(), toy_config(tmp_path, parallel="fully_shard"))


def test_a_bad_step_on_one_rank_stops_both(tmp_path):
    class Poisoned(ToyTask):
        def loss(self, model, batch, counter):
            losses = super().loss(model, batch, counter)
            bad = counter.step == 3 and 6 in counter.indices
            return {**losses, "total": losses["total"] * float("nan")} if bad else losses

    def work(rank):
        try:
            train(Poisoned(), toy_config(tmp_path))
        except TrainingError as error:
            return str(error)
        return "no error"

    said = run_ranks(2, work)
    assert all("step 3" in text and "not finite" in text for text in said)
    reports = [json.loads((tmp_path / "faults" / f"step_000000003_rank_{r}.json").read_text()) for r in (0, 1)]
    assert [r["indices"] for r in reports] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert reports[1]["losses"]["total"] == "nan"
    assert reports[0]["losses"]["total"] != "nan"


def test_state_that_differs_between_ranks_is_found_before_it_is_saved(tmp_path):
    class Careless(ToyTask):
        def after_step(self, context):
            if context.counter.step == 2:
                context.model.usage += context.world.rank
            return {}

    def work(rank):
        try:
            train(Careless(), toy_config(tmp_path))
        except TrainingError as error:
            return str(error)
        return "no error"

    assert all("different weights or buffers" in text for text in run_ranks(2, work))
    assert CheckpointStore(folder=tmp_path / "checkpoints").steps() == []


def test_gathering_broadcasting_and_agreeing():
    def work(rank):
        with open_world("cpu") as world:
            rows = torch.arange(3 - 2 * rank)[:, None] + 10 * rank  # three rows, then one
            gathered = world.all_gather_rows(rows).tolist()
            none = world.all_gather_rows(torch.zeros(rank * 2, 2, dtype=torch.int64)).tolist()
            model = nn.Linear(2, 2)
            nn.init.constant_(model.weight, float(rank))
            nn.init.zeros_(model.bias)
            try:
                check_ranks_agree(model, world)
                agreed = True
            except TrainingError:
                agreed = False
            broadcast_module_state(model, world)
            check_ranks_agree(model, world)
            return {
                "rows": gathered, "none": none, "agreed": agreed, "weight": model.weight.tolist(),
                "mean": world.mean({"a": float(rank), "b": 3.0}), "any": world.any(rank == 1),
                "json": world.broadcast_json({"from": rank, "text": "ä" * (1 + rank)}),
            }  # fmt: skip

    a, b = run_ranks(2, work)
    assert a == b
    assert a["rows"] == [[0], [1], [2], [10]]
    assert a["none"] == [[0, 0], [0, 0]]
    assert a["agreed"] is False
    assert a["weight"] == [[0.0, 0.0], [0.0, 0.0]]
    assert a["mean"] == {"a": 0.5, "b": 3.0}
    assert a["any"] is True
    assert a["json"] == {"from": 0, "text": "ä"}


def test_alone_the_world_is_itself():
    with open_world("cpu") as world:
        assert (world.rank, world.size, world.is_first) == (0, 1, True)
        rows = torch.ones(2, 3)
        assert world.all_gather_rows(rows) is rows
        assert world.mean({"a": 2.0}) == {"a": 2.0}
        assert not world.any(False)
        check_ranks_agree(ToyModel(), world)


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cpu:0x", "mps"])
def test_unknown_devices(name):
    with pytest.raises(UsageError, match="`device`"):
        choose_device(name)

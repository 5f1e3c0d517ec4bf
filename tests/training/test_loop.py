"""The loop: what a run does must not depend on how it was cut into pieces, workers or passes."""

from __future__ import annotations

import json

import pytest
import torch

from copilot4d.checkpoints.checkpoint import TENSOR_FILES
from copilot4d.config import load_config
from copilot4d.errors import DataError, UsageError
from copilot4d.training import CheckpointStore, TrainingConfig, open_checkpoint, train
from tests.training.toy import Heard, ToyTask, toy_config, toy_recipe


def all_tensors(checkpoint_path):
    checkpoint = open_checkpoint(checkpoint_path)
    return {f"{f}/{n}": t for f in TENSOR_FILES if checkpoint.has(f) for n, t in checkpoint.tensors(f).items()}


def assert_same_tensors(a, b):
    left, right = all_tensors(a), all_tensors(b)
    assert left.keys() == right.keys()
    assert len(left) > 20
    for name in left:
        assert left[name].dtype == right[name].dtype
        assert torch.equal(left[name], right[name]), name


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """An uninterrupted run of 20 steps with a moving average."""
    run, task, heard = tmp_path_factory.mktemp("straight"), ToyTask(), Heard()
    result = train(task, toy_config(run, recipe=toy_recipe(ema_decay=0.9)), heard)
    return result, task, heard, run


def test_it_learns(tmp_path):
    heard = Heard()
    recipe = toy_recipe(cosine_steps=200)
    train(ToyTask(items=8, reinitialise_every=1000), toy_config(tmp_path, recipe=recipe, save_every=1000), heard)
    regression = [r.losses["regression"] for r in heard.records]
    assert sum(regression[-5:]) < 0.3 * sum(regression[:5])


def test_it_ends_at_the_recipes_last_step(straight):
    result, _, _, run = straight
    assert (result.step, result.finished, result.exit_code) == (20, True, 0)
    assert result.checkpoint == run / "checkpoints" / "step_000000020"


def test_every_item_is_seen_once_per_epoch(straight):
    _, task, _, _ = straight
    items = [i for batch in task.seen[2:] for i in batch]  # the first two are the estimate's
    assert sorted(items[:37]) == list(range(37))
    assert sorted(items[37:74]) == list(range(37))
    assert items[:37] != items[37:74]


@pytest.mark.parametrize("cuts", [(5, 20), (3, 4, 11, 20)])
def test_a_resumed_run_is_bit_identical(straight, cuts, tmp_path):
    result, _, heard, _ = straight
    losses = []
    for stop in cuts:
        part = Heard()
        again = train(ToyTask(), toy_config(tmp_path, recipe=toy_recipe(ema_decay=0.9), max_steps=stop), part)
        losses += part.losses
    assert losses == heard.losses
    assert_same_tensors(result.checkpoint, again.checkpoint)
    a, b = open_checkpoint(result.checkpoint).state, open_checkpoint(again.checkpoint).state
    assert a["order"] == b["order"]


def test_the_number_of_workers_changes_nothing(straight, tmp_path):
    result, task, _, _ = straight
    other = ToyTask()
    again = train(other, toy_config(tmp_path, recipe=toy_recipe(ema_decay=0.9), workers=2))
    assert other.seen == task.seen
    assert_same_tensors(result.checkpoint, again.checkpoint)


def test_accumulation_changes_only_rounding(tmp_path):
    """Without the codebook's hook, whose features are those of the last pass."""
    runs = []
    for passes in (1, 4):
        heard = Heard()
        task = ToyTask()
        task.after_step = lambda context: {}
        train(task, toy_config(tmp_path / str(passes), accumulation=passes), heard)
        runs.append(torch.tensor(heard.losses))
    torch.testing.assert_close(runs[0], runs[1], rtol=1e-4, atol=1e-5)


def test_another_seed_is_another_run(straight, tmp_path):
    heard = Heard()
    train(ToyTask(), toy_config(tmp_path, seed=8, max_steps=3), heard)
    assert heard.losses[:3] != straight[2].losses[:3]


def test_log_and_config_are_on_disk(straight):
    _, _, heard, run = straight
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 21))
    assert lines[4]["losses"]["total"] == heard.losses[4]
    assert lines[2]["learning_rate"] == pytest.approx(1e-2)
    assert lines[-1]["learning_rate"] == pytest.approx(1e-3)
    assert 0 <= lines[3]["waiting"] <= 1
    assert lines[3]["numbers"]["used"] == 0  # re-initialised in this step, usage restarts
    assert load_config(TrainingConfig, run / "config.yaml").recipe.ema_decay == 0.9


def test_log_lines_of_steps_that_are_done_again_are_dropped(tmp_path):
    train(ToyTask(), toy_config(tmp_path, max_steps=5))
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 6, "from": "a run that was killed"}\n{"step": 7, "los')
    train(ToyTask(), toy_config(tmp_path, max_steps=8))
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert all(line["kind"] == "train" for line in lines)


def test_the_best_and_the_last_are_kept(tmp_path):
    class Falling(ToyTask):
        def evaluate(self, model, world):
            self.calls = getattr(self, "calls", 0) + 1
            return {"error": {1: 5.0, 2: 1.0, 3: 3.0, 4: float("nan")}.get(self.calls, 2.0)}

    heard = Heard()
    train(Falling(), toy_config(tmp_path, evaluate_every=3, save_every=2, keep_last=2, max_steps=18), heard)
    store = CheckpointStore(folder=tmp_path / "checkpoints")
    assert store.steps() == [6, 16, 18]
    assert store.best_step() == 6
    assert open_checkpoint(store.path(6)).state["score"] == 1.0
    assert open_checkpoint(store.path(16)).state["score"] is None
    assert sum("best so far" in m for m in heard.messages) == 2


def test_higher_is_better_can_be_said(tmp_path):
    class Rising(ToyTask):
        lower_is_better = False

        def evaluate(self, model, world):
            self.calls = getattr(self, "calls", 0) + 1
            return {"error": [3.0, 9.0, 4.0][self.calls - 1]}

    train(Rising(), toy_config(tmp_path, evaluate_every=2, save_every=100, keep_last=1, max_steps=6))
    assert CheckpointStore(folder=tmp_path / "checkpoints").best_step() == 4


def test_evaluation_sees_the_average_and_leaves_training_as_it_was(straight, tmp_path):
    seen = []

    class Looking(ToyTask):
        def evaluate(self, model, world):
            seen.append((model.training, torch.is_grad_enabled(), model.head.weight.detach().clone()))
            torch.rand(3)
            return {"error": 1.0}

    config = toy_config(tmp_path, recipe=toy_recipe(ema_decay=0.9), evaluate_every=20, pictures_every=10)
    result = train(Looking(), config)
    assert_same_tensors(straight[0].checkpoint, result.checkpoint)
    tensors = all_tensors(result.checkpoint)
    assert seen[0][:2] == (False, False)
    assert torch.equal(seen[0][2], tensors["ema/head.weight"])
    assert not torch.equal(tensors["ema/head.weight"], tensors["model/head.weight"])
    assert sorted(p.name for p in (tmp_path / "pictures").iterdir()) == [
        "step_000000010_codebook.png", "step_000000020_codebook.png",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recipe": toy_recipe(learning_rate=0.5)}, "config.recipe.learning_rate"),
        ({"seed": 1}, "config.seed"),
        ({"task": ToyTask(items=38)}, "config.task.items, data_fingerprint"),
    ],
)
def test_another_run_is_not_resumed(changes, words, tmp_path):
    train(ToyTask(), toy_config(tmp_path, max_steps=2))
    task = changes.pop("task", ToyTask())
    with pytest.raises(UsageError, match=words):
        train(task, toy_config(tmp_path, **changes))


def test_init_from_takes_weights_and_nothing_else(straight, tmp_path):
    result, _, _, run = straight
    tensors = all_tensors(result.checkpoint)
    started = []

    class Starting(ToyTask):
        def before_step(self, context):
            if context.counter.step == 0:
                started.append({n: p.detach().clone() for n, p in context.model.named_parameters()})
                assert not context.optimizer.state

    for i, source in enumerate((result.checkpoint, run)):
        again = train(Starting(), toy_config(tmp_path / str(i), init_from=source, max_steps=1))
        assert again.step == 1
        for name, value in started[i].items():
            assert torch.equal(value, tensors[f"ema/{name}"])
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(DataError, match="never read"):
        train(ToyTask(), toy_config(tmp_path / "x", init_from=tmp_path / "empty"))
    with pytest.raises(DataError, match=r"expected shape .*8.*, found .*16"):
        train(ToyTask(width=8), toy_config(tmp_path / "y", init_from=run))


def test_runs_that_continue_each_other_never_repeat_a_draw(tmp_path):
    """Orders of three runs of one seed, each from the weights of the one before; resuming the last changes nothing."""
    orders, begun, drawn = [], None, []
    for i in range(3):
        task = ToyTask(width=8)
        config = toy_config(tmp_path / f"run{i}", init_from=begun, max_steps=4)
        begun = train(task, config, Heard()).checkpoint.parent.parent
        orders.append(tuple(task.seen))
        drawn.append(open_checkpoint(CheckpointStore(folder=begun / "checkpoints").newest().path).state)
    assert len(set(orders)) == 3
    assert len({state["draw_seed"] for state in drawn}) == 3
    assert [state["updates_before"] for state in drawn] == [0, 4, 8]
    whole = train(ToyTask(width=8), toy_config(tmp_path / "whole", init_from=tmp_path / "run0", max_steps=6), Heard())
    train(ToyTask(width=8), toy_config(tmp_path / "parts", init_from=tmp_path / "run0", max_steps=3), Heard())
    parts = train(ToyTask(width=8), toy_config(tmp_path / "parts", init_from=tmp_path / "run0", max_steps=6), Heard())
    one, other = (open_checkpoint(result.checkpoint) for result in (whole, parts))
    assert one.state["order"] == other.state["order"]
    for name, tensor in one.tensors("model").items():
        assert torch.equal(tensor, other.tensors("model")[name]), name


def test_a_dry_run_writes_nothing_and_tells_the_cost(tmp_path):
    heard = Heard()
    result = train(ToyTask(), toy_config(tmp_path / "run", dry_run=True), heard)
    assert not (tmp_path / "run").exists()
    parameters = 11 * 16 + 6 * 16 + 2 * 16 + 16 * 32 + 32 + 32 * 16 + 8 * 16 + 17
    buffers = 4 * (32 * 16) + 8 * 8
    cost = result.estimate
    assert cost.parameters == parameters
    assert cost.checkpoint_bytes == 3 * 4 * parameters + buffers
    assert cost.state_bytes == 4 * 4 * parameters + buffers
    assert cost.disk_bytes == 5 * cost.checkpoint_bytes
    assert 8 * 6 * 32 * 4 <= cost.activation_bytes <= 60 * 8 * 6 * 32 * 4
    assert (result.exit_code, result.finished) == (0, False)
    assert any("parameters" in m and "disk" in m for m in heard.messages)


def test_the_batch_must_divide(tmp_path):
    with pytest.raises(UsageError, match=r"ranks x training\.accumulation = 1 x 3"):
        train(ToyTask(), toy_config(tmp_path, accumulation=3))


@pytest.mark.slow
def test_compiling_changes_only_rounding(tmp_path):
    runs = []
    for compiled in (False, True):
        heard = Heard()
        result = train(ToyTask(), toy_config(tmp_path / str(compiled), compile=compiled, max_steps=6), heard)
        runs.append(torch.tensor(heard.losses))
    torch.testing.assert_close(runs[0], runs[1], rtol=1e-4, atol=1e-5)
    assert set(open_checkpoint(result.checkpoint).tensors("model")) >= {"head.weight", "embedding.weight"}


def test_the_schedule_reaches_the_update(tmp_path):
    """AdamW's first update moves every undecayed weight by the rate itself: the warm-up's first third."""
    seen = []

    class Watching(ToyTask):
        def before_step(self, context):
            self.before = context.model.norm.bias.detach().clone()

        def after_step(self, context):
            seen.append((context.model.norm.bias - self.before).abs().max().item())
            return {}

    recipe = toy_recipe(learning_rate=0.03, warmup_steps=3)
    train(Watching(), toy_config(tmp_path, recipe=recipe, max_steps=1))
    assert seen[0] == pytest.approx(0.01, rel=1e-3)

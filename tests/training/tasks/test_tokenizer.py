"""The tokenizer through the training engine: splits, ranks, resuming, loading, and the two verbs."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from copilot4d.checkpoints.load_tokenizer import load_tokenizer
from copilot4d.cli.main import main
from copilot4d.datasets import write_folder
from copilot4d.errors import UsageError
from copilot4d.presets import tiny
from copilot4d.training import CheckpointStore, Recipe, SampleKey, StepCounter, TrainingConfig, train
from copilot4d.training.optimizer import undecayed_names
from copilot4d.training.tasks.tokenizer import TokenizerTask, TokenizerTraining
from tests.support.scenes import make_drive
from tests.tokenizer.clouds import sweep_of
from tests.training.processes import run_ranks
from tests.training.small_runs import quiet_config, state_after
from tests.training.toy import Heard, ToyTask, toy_config

TINY = tiny().tokenizer
CODEBOOK = dataclasses.replace(TINY.codebook, codes=16, dim=8, bank_factor=3)
SMALL = TokenizerTraining(tokenizer=dataclasses.replace(TINY, codebook=CODEBOOK), rays_per_sweep=50)


def small_task(held_out: bool = False) -> TokenizerTask:
    drive = make_drive(5, rings=12, azimuths=60)
    return TokenizerTask(SMALL, [drive[:4]], [drive[4:]] if held_out else [], held_out_sweeps=1)


def config_of(run, **changes) -> TrainingConfig:
    return quiet_config(run, Recipe(batch=4, warmup_steps=2, cosine_steps=4, clip_norm=0.1), **changes)


def after(run, **changes) -> dict[str, torch.Tensor]:
    return state_after(small_task(), config_of(run, **changes))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return after(tmp_path_factory.mktemp("whole"))


def assert_same(found, expected):
    """Codebook, bank and counters, which gradients do not make, and the weights."""
    assert torch.equal(found["codebook.idle"], expected["codebook.idle"])
    assert found["codebook.made"] == expected["codebook.made"] == 1  # K-means ran
    assert found["codebook.bank_rows"] == expected["codebook.bank_rows"] == 6 * 16
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


def test_two_passes_per_update_give_the_same_codebook_bank_and_weights(whole, tmp_path):
    assert_same(after(tmp_path, accumulation=2), whole)


def test_two_ranks_give_the_same_codebook_bank_and_weights(whole, tmp_path):
    steps = run_ranks(2, lambda rank: train(small_task(), config_of(tmp_path), Heard()).step)
    assert steps == [6, 6]
    assert_same(CheckpointStore(folder=tmp_path / "checkpoints").newest().tensors("model"), whole)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(whole, tmp_path):
    after(tmp_path, max_steps=3)
    resumed = after(tmp_path)
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())


def test_samples_are_augmented_sweeps_with_rays_that_end_on_their_points():
    task = small_task()
    sample = task.sample(SampleKey(seed=1, step=0, index=0, batch=4))
    assert len(sample.depths_m) == 50
    ends = sample.origins + sample.directions * sample.depths_m[:, None]
    inside = (ends.abs() < torch.tensor([15.9, 15.9, 2.9])).all(dim=-1)
    assert inside.any()
    assert (
        torch.cdist(ends[inside], sample.points, compute_mode="donot_use_mm_for_euclid_dist").min(dim=1).values.max()
        < 1e-3
    )
    again = task.sample(SampleKey(seed=1, step=0, index=0, batch=4))
    assert torch.equal(sample.directions, again.directions)


def test_an_empty_sweep_among_the_samples_does_not_stop_training():
    drive = make_drive(1, rings=8, azimuths=40)
    empty = dataclasses.replace(drive, read=lambda i: sweep_of([]))
    task = TokenizerTask(SMALL, [drive, empty])
    batch = task.collate([task.sample(SampleKey(seed=0, step=0, index=i, batch=2)) for i in range(2)])
    assert batch.points.count == 2
    torch.manual_seed(0)
    total = task.loss(task.build_model(), batch, StepCounter(seed=0, step=0, indices=(0, 1)))["total"]
    total.backward()
    assert total.isfinite()


def test_embeddings_biases_norms_and_codebook_are_not_decayed():
    spared = undecayed_names(small_task().build_model())
    assert {"codebook.weight", "encoder.pillars.height_embedding", "coarse_branch.linear.bias"} <= spared
    assert "encoder.patches.linear.weight" not in spared


def test_no_sweeps_are_refused():
    with pytest.raises(UsageError, match="at least one sweep"):
        TokenizerTask(SMALL, [make_drive(2)[:0]])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A data set of two drives and a run of a few steps, made by the verb."""
    folder = tmp_path_factory.mktemp("verbs")
    for name in ("a", "b"):
        write_folder(make_drive(3, rings=12, azimuths=60, name=name), folder / "data" / name)
    words = ["train", "tokenizer", "--preset", "tiny", "--data", folder / "data", "--run", folder / "run",
             "--updates", 4, "--held-out", "b", "--held-out-sweeps", 1, "--evaluate-every", 2, "--pictures-every", 4,
             "--workers", 0, "--rays-per-sweep", 40, "--precision", "fp32", "--log-every", 2]  # fmt: skip
    assert main([str(w) for w in words]) == 0
    return folder


def test_the_verbs_train_score_and_draw(trained, capsys):
    out = trained / "scores"
    words = [
        "evaluate-tokenizer",
        "--model",
        trained / "run",
        "--data",
        trained / "data",
        "--drives",
        "b",
        "--out",
        out,
    ]
    assert main([str(w) for w in words]) == 0
    said = capsys.readouterr().out
    assert "codes used" in said
    assert "Next: copilot4d" in said
    report = json.loads((out / "scores.json").read_text())
    assert report["drives"] == ["b"]
    assert report["sweeps_scored"] + report["sweeps_not_scored"] == 3
    assert 0 < report["scores"]["codebook_used"] <= 1
    assert len(list(out.glob("*.png"))) == 3
    assert len(list((trained / "run" / "pictures").glob("*.png"))) == 1


def test_a_loaded_tokenizer_has_the_runs_configuration_and_weights(trained):
    loaded = load_tokenizer(trained / "run")
    assert loaded.tokenizer.config == TINY
    assert not loaded.tokenizer.training
    state = loaded.checkpoint.tensors("model")
    assert torch.equal(state["codebook.weight"], loaded.tokenizer.codebook.weight)


def test_config_files_change_the_preset_and_wrong_drives_are_named(trained, tmp_path, capsys):
    changes = tmp_path / "changes.yaml"
    changes.write_text("rendering: {step_m: 0.05}\nmode: no_skipping\n")
    from copilot4d.cli.train_tokenizer import Options, tokenizer_config

    options = Options(data=(trained / "data",), run=tmp_path / "run", preset="tiny", config=changes)
    config = tokenizer_config(options)
    assert (config.rendering.step_m, config.rendering.max_samples, config.mode) == (0.05, 48, "no_skipping")
    words = ["train", "tokenizer", "--data", str(trained / "data"), "--run", str(tmp_path / "r"), "--held-out", "zz"]
    assert main(words) == 2
    assert "--held-out zz: no such drive" in capsys.readouterr().err


def test_other_models_are_not_loaded_as_tokenizers(tmp_path):
    train(ToyTask(), toy_config(tmp_path, max_steps=1))
    with pytest.raises(UsageError, match="is of task 'toy', not 'tokenizer': pass a run of"):
        load_tokenizer(tmp_path)


def test_training_the_decoder_alone_leaves_every_token_as_it_is(tmp_path):
    task = small_task()
    task.training = dataclasses.replace(SMALL, decoder_only=True)
    before = task.build_model().state_dict()
    torch.manual_seed(0)
    run = tmp_path / "run"
    state = state_after(task, config_of(run))
    start = state_after(task, config_of(tmp_path / "one", max_steps=1))
    for name in before:
        if name.startswith("encoder."):
            assert torch.equal(state[name], start[name]), name
    assert any(not torch.equal(state[name], start[name]) for name in before if name.startswith("decoder."))

"""`copilot4d export`: from two runs to one folder that forecasts."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch

from copilot4d import load_forecaster, presets
from copilot4d.checkpoints.checkpoint import CheckpointStore, RunIdentity
from copilot4d.checkpoints.depth_parts import DEPTH_SELECTOR, save_depth_selector
from copilot4d.checkpoints.load_tokenizer import load_tokenizer, tokenizer_sha256
from copilot4d.checkpoints.pretrained import ModelCard
from copilot4d.cli.main import main
from copilot4d.config import to_mapping
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.tokenizer import Tokenizer
from copilot4d.world_model import WorldModel
from tests.support.selectors import always


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    config = presets.tiny()
    torch.manual_seed(2)
    tokenizer, other = Tokenizer(config.tokenizer), Tokenizer(config.tokenizer)
    world_model = WorldModel(replace(config.world_model, token_frame="reference"))

    def save(name, task, model, task_config, conventions):
        identity = RunIdentity(
            task=task, config={"task": task_config, "recipe": {"batch": 4}}, data_fingerprint="x",
            conventions=conventions,
        )  # fmt: skip
        state = {"step": 30, "score": 0.25, "seconds": 7200.0}
        CheckpointStore(folder=root / name / "checkpoints").save(identity, state, {"model": model.state_dict()})

    for name, model in (("tokenizer", tokenizer), ("other", other)):
        save(name, "tokenizer", model, {"tokenizer": to_mapping(model.config)}, {})
    made_by = {"tokenizer_sha256": tokenizer_sha256(tokenizer), "intervals_s": [0.2, 0.5]}
    save("world", "world_model", world_model, {"world_model": to_mapping(world_model.config)}, made_by)
    return root, Copilot4D(tokenizer, world_model)


def test_what_to_export_must_be_said_and_only_once(runs, tmp_path, capsys):
    root, _ = runs
    one, both = ["--world-model", str(root / "world")], ["--occupancy-4d", str(root / "world")]
    for words, said in ((one, "needs --tokenizer and --world-model"), ([*one, *both], "give either")):
        assert main(["export", *words, "--out", str(tmp_path / "out")]) == 2
        assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_alone_makes_the_same_tokens_as_its_run(runs, tmp_path, capsys):
    root, _ = runs
    place = root / "tokenizer"
    assert main(["export", "--tokenizer", str(place), "--out", str(tmp_path / "alone")]) == 0
    assert "Next: copilot4d tokenize" in capsys.readouterr().out
    assert load_tokenizer(tmp_path / "alone").sha256 == load_tokenizer(place).sha256


def export(root, out, *extra, tokenizer="tokenizer"):
    return main(
        [
            "export",
            "--tokenizer",
            str(root / tokenizer),
            "--world-model",
            str(root / "world"),
            "--out",
            str(out),
            *extra,
        ]
    )


def test_two_runs_become_one_model(runs, tmp_path, capsys):
    root, expected = runs
    assert export(root, tmp_path / "mine", "--trained-on", "street-v1/train", "--command", "copilot4d train") == 0
    loaded = load_forecaster(tmp_path / "mine")
    assert loaded.fingerprint == expected.fingerprint
    assert loaded.name == "mine"
    assert loaded.intervals_s == load_forecaster(root / "world", tokenizer=root / "tokenizer").intervals_s == (0.2, 0.5)
    for half in ("tokenizer", "world_model"):
        card = (tmp_path / "mine" / half / "README.md").read_text()
        assert "30 steps, 120 samples, 2 h 00 min" in card
        assert "street-v1/train" in card
        assert "copilot4d train" in card
        assert "0.25" in card
    assert f"--model {tmp_path / 'mine'}" in capsys.readouterr().out


def test_a_run_s_depth_selector_goes_along(runs, tmp_path):
    root, expected = runs
    trained = ModelCard(
        title="g", summary="s", trained_on=["x"], steps=70, samples=900, training_s=60.0, hardware="none"
    )
    save_depth_selector(root / "world" / DEPTH_SELECTOR, always("recent"), trained)
    try:
        assert export(root, tmp_path / "mine") == 0
    finally:
        shutil.rmtree(root / "world" / DEPTH_SELECTOR)
    loaded = load_forecaster(tmp_path / "mine")
    assert loaded.depth_selector is not None
    assert loaded.tokens_only().fingerprint == expected.fingerprint
    assert "70 steps, 900 samples" in (tmp_path / "mine" / DEPTH_SELECTOR / "README.md").read_text()
    # from a model folder, its selector goes along too
    again = [
        "--tokenizer",
        str(tmp_path / "mine" / "tokenizer"),
        "--world-model",
        str(tmp_path / "mine" / "world_model"),
    ]
    assert main(["export", *again, "--out", str(tmp_path / "again")]) == 0
    assert load_forecaster(tmp_path / "again").fingerprint == loaded.fingerprint


def test_a_folder_that_is_called_as_shipped_weights_are(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert export(runs[0], "mini") == 0
    assert "demo --model ./mini " in capsys.readouterr().out  # not the shipped model of that name


def test_half_precision_and_names(runs, tmp_path):
    assert export(runs[0], tmp_path / "half", "--precision", "fp16", "--name", "small", "--title", "Small one") == 0
    assert load_forecaster(tmp_path / "half").name == "small"
    assert "# Small one: tokenizer" in (tmp_path / "half" / "tokenizer" / "README.md").read_text()
    assert json.loads((tmp_path / "half" / "copilot4d.json").read_text())["name"] == "small"


def test_another_tokenizer_is_refused_and_nothing_is_written(runs, tmp_path, capsys):
    assert export(runs[0], tmp_path / "wrong", tokenizer="other") == 1
    assert "trained with" in capsys.readouterr().err
    assert not (tmp_path / "wrong").exists()


def test_a_folder_of_something_else_is_kept(runs, tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("precious")
    assert export(runs[0], tmp_path) == 2
    assert "not a model folder" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").exists()

"""Model folders: what was saved forecasts the same when loaded; what does not belong together is refused."""

from __future__ import annotations

import importlib.resources
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from copilot4d import load_forecaster, presets
from copilot4d.baselines.occupancy_4d import Occupancy4dForecaster
from copilot4d.checkpoints.checkpoint import CheckpointStore, RunIdentity
from copilot4d.checkpoints.load_tokenizer import tokenizer_sha256
from copilot4d.checkpoints.model_folder import DESCRIPTION, ModelCards, note_tokenizer, save_model
from copilot4d.checkpoints.pretrained import ModelCard
from copilot4d.checkpoints.sealed_folder import DamagedError
from copilot4d.config import to_mapping
from copilot4d.errors import DataError, UsageError
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.geometry import Rays, Sweep, se3
from copilot4d.tokenizer import Tokenizer
from copilot4d.world_model import WorldModel
from tests.support.shipped import shipped_mini


def card(title):
    return ModelCard(
        title=title, summary="For tests.", trained_on=["nothing"], steps=0, samples=0, training_s=0.0, hardware="none"
    )


CARDS = ModelCards(tokenizer=card("A tokenizer"), world_model=card("A world model"))


@pytest.fixture(scope="module")
def models():
    config = presets.tiny()
    torch.manual_seed(11)
    tokenizer = Tokenizer(config.tokenizer)
    with torch.no_grad():
        tokenizer.codebook.bank.fill_(3.0)
        tokenizer.codebook.weight.mul_(20.0)
        tokenizer.feature_grid.occupancy.weight.mul_(60.0)
    return tokenizer, WorldModel(replace(config.world_model, token_frame="reference"))


def depths_of(forecaster):
    rng = np.random.default_rng(2)
    cloud = rng.uniform((-14, -14, -1.5), (14, 14, 1.0), (500, 3)).astype(np.float32)
    past = [Sweep(points=cloud, world_from_lidar=se3.from_yaw(0.1 * t), timestamp_ns=t * 10**8) for t in range(2)]
    directions = rng.normal(size=(100, 3))
    rays = Rays.from_origin(np.zeros(3), directions / np.linalg.norm(directions, axis=1, keepdims=True))
    return forecaster.forecast(past, se3.from_yaw(0.3)[None], [rays], steps=2).depths[0]


@pytest.fixture
def folder(models, tmp_path):
    return save_model(tmp_path / "toy", *models, cards=CARDS)


def test_a_loaded_model_forecasts_what_the_saved_one_did(models, folder):
    loaded = load_forecaster(folder)
    assert isinstance(loaded, Copilot4D)
    assert loaded.name == "toy"
    assert loaded.world_model.config == models[1].config
    assert loaded.fingerprint == Copilot4D(*models).fingerprint
    np.testing.assert_array_equal(depths_of(loaded), depths_of(Copilot4D(*models)))
    assert not loaded.tokenizer.training
    assert not loaded.world_model.training


def test_half_precision_is_half_the_size_and_nearly_the_same(models, folder, tmp_path):
    half = save_model(tmp_path / "half", *models, cards=CARDS, name="small", dtype=torch.float16)
    size = {f: sum(p.stat().st_size for p in f.rglob("model.safetensors")) for f in (half, folder)}
    assert size[half] < 0.55 * size[folder]
    loaded = load_forecaster(half)
    assert loaded.name == "small"
    for model, original in zip((loaded.tokenizer, loaded.world_model), models, strict=True):
        for (name, a), b in zip(model.named_parameters(), original.parameters(), strict=True):
            assert a.dtype == torch.float32
            assert torch.equal(a, b.half().float()), name


def test_the_memory_bank_is_not_shipped_and_not_missed(models, folder):
    stored = (folder / "tokenizer" / "model.safetensors").stat().st_size
    parameters = sum(p.numel() for p in models[0].parameters())
    assert stored < 4 * parameters + 20_000
    fresh = Tokenizer(models[0].config)
    loaded = dict(load_forecaster(folder).tokenizer.named_buffers())
    for name, buffer in fresh.named_buffers():
        assert torch.equal(loaded[name], buffer), name


def test_cards_are_written_for_both(folder):
    assert "# A tokenizer" in (folder / "tokenizer" / "README.md").read_text()
    assert "# A world model" in (folder / "world_model" / "README.md").read_text()


def test_a_world_model_refuses_another_tokenizer(models, folder, tmp_path):
    torch.manual_seed(12)
    other = save_model(tmp_path / "other", Tokenizer(models[0].config), models[1], cards=CARDS)
    shutil.rmtree(folder / "tokenizer")
    shutil.copytree(other / "tokenizer", folder / "tokenizer")
    with pytest.raises(DataError, match="tokenizer that the world model was trained with"):
        load_forecaster(folder)


def test_models_of_other_sizes_are_refused_before_anything_is_written(models, tmp_path):
    with pytest.raises(UsageError, match="codes"):
        save_model(tmp_path / "x", Tokenizer(presets.mini().tokenizer), models[1], cards=CARDS)
    assert not (tmp_path / "x").exists()


def test_only_model_folders_are_replaced(models, folder, tmp_path):
    save_model(folder, *models, cards=CARDS, name="again")
    assert load_forecaster(folder).name == "again"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="not a model folder"):
        save_model(tmp_path / "mine", *models, cards=CARDS)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_damage_is_noticed(folder):
    weights = folder / "world_model" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-5] ^= 1
    weights.write_bytes(data)
    with pytest.raises(DamagedError):
        load_forecaster(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "copilot4d-model", "format_version": 99}'])
def test_a_bad_description_is_refused(folder, text):
    (folder / DESCRIPTION).write_text(text)
    with pytest.raises(DataError, match="copilot4d"):
        load_forecaster(folder)


def test_the_description_tells_which_tokenizer(folder):
    description = json.loads((folder / DESCRIPTION).read_text())
    config = json.loads((folder / "world_model" / "config.json").read_text())
    assert description["tokenizer_sha256"] == config["conventions"]["tokenizer_sha256"]
    assert len(description["tokenizer_sha256"]) == 64


def test_names_come_before_folders_and_unknown_ones_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UsageError, match="no model"):
        load_forecaster("nothing")
    with pytest.raises(UsageError, match="mini, copy_last"):
        load_forecaster("nowhere")
    (tmp_path / "copy_last").mkdir()
    assert load_forecaster("copy_last").name == "copy_last"


def test_what_it_was_trained_on_travels_with_the_model(models, folder):
    assert load_forecaster(folder).trained_on == ("nothing",)
    assert load_forecaster(folder).with_sampler(top_k=3).limits.endswith("Trained on nothing only.")
    assert Copilot4D(*models).trained_on == ()
    path = folder / "copilot4d.json"
    description = json.loads(path.read_text())
    del description["trained_on"]  # as older folders are
    path.write_text(json.dumps(description))
    assert "rained on" not in load_forecaster(folder).limits
    path.write_text(json.dumps({**description, "trained_on": "nothing"}))
    with pytest.raises(DataError, match="trained_on"):
        load_forecaster(folder)


def test_the_shipped_model_loads_and_says_what_it_knows():
    folder = shipped_mini()
    forecaster = load_forecaster("mini")
    assert forecaster.name == "mini"
    assert forecaster.region_half_m == 32.0
    assert "within 32 m of the ego's starting position" in forecaster.limits
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 30e6


def test_the_shipped_4d_occ_is_a_baseline_by_its_name():
    forecaster = load_forecaster("occupancy_4d")
    assert isinstance(forecaster, Occupancy4dForecaster)
    config = forecaster.model.config
    assert (config.past_frames, config.future_frames, config.grid.minimum[0]) == (5, 5, -32.0)
    median = load_forecaster("occupancy_4d_median")
    assert (forecaster.name, config.depth) == ("occupancy_4d", "expected")
    assert (median.name, median.depth) == ("occupancy_4d_median", "median")
    assert all(parameter.isfinite().all() for parameter in forecaster.model.parameters())
    folder = shipped_mini().parent
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 30e6


def test_an_installation_without_weights_says_so_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.resources, "files", lambda package: tmp_path)
    with pytest.raises(UsageError, match=r"brings no weights 'mini'.*copy_last"):
        load_forecaster("mini")


def test_a_shipped_model_is_found_in_the_package(models, tmp_path, monkeypatch):
    save_model(tmp_path / "weights" / "mini", *models, cards=CARDS)
    monkeypatch.setattr(importlib.resources, "files", lambda package: tmp_path)
    assert load_forecaster("mini").fingerprint == Copilot4D(*models).fingerprint


def test_a_part_of_a_model_is_no_forecaster(models, tmp_path):
    save_model(tmp_path / "model", *models, cards=CARDS)
    with pytest.raises(UsageError, match=r"holds a world_model alone.*model folder around it"):
        load_forecaster(tmp_path / "model" / "world_model")


# Runs of a world model, as training leaves them.


@pytest.fixture
def run(models, tmp_path):
    tokenizer, world_model = models
    shared = save_model(tmp_path / "shared", tokenizer, world_model, cards=CARDS) / "tokenizer"
    identity = RunIdentity(
        task="world_model", config={"task": {"world_model": to_mapping(world_model.config)}}, data_fingerprint="x",
        conventions={"tokenizer_sha256": tokenizer_sha256(tokenizer)},
    )  # fmt: skip
    store = CheckpointStore(folder=tmp_path / "wm" / "checkpoints")
    store.save(identity, {"step": 7, "score": None}, {"model": world_model.state_dict()})
    return tmp_path / "wm", shared


def test_a_run_is_loaded_with_the_tokenizer_that_it_names_or_is_given(models, run):
    folder, tokenizer = run
    with pytest.raises(UsageError, match="does not say where its tokenizer is"):
        load_forecaster(folder)
    expected = Copilot4D(*models).fingerprint
    assert load_forecaster(folder, tokenizer=tokenizer).fingerprint == expected
    note_tokenizer(folder, tokenizer)
    loaded = load_forecaster(folder)
    assert loaded.fingerprint == expected
    assert loaded.name == "wm"
    assert load_forecaster(folder / "checkpoints" / "step_000000007").fingerprint == expected
    folder.joinpath("tokenizer.json").write_text("[]")
    with pytest.raises(DataError, match="tokenizer"):
        load_forecaster(folder)


def test_runs_and_tokenizers_may_move_together(models, run, tmp_path):
    folder, tokenizer = run
    note_tokenizer(folder, tokenizer)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.move(folder, moved / "wm")
    shutil.move(tokenizer.parent, moved / "shared")
    assert load_forecaster(moved / "wm").fingerprint == Copilot4D(*models).fingerprint


def test_a_run_refuses_another_tokenizer(models, run, tmp_path):
    torch.manual_seed(12)
    other = save_model(tmp_path / "other", Tokenizer(models[0].config), models[1], cards=CARDS)
    with pytest.raises(DataError, match="trained with"):
        load_forecaster(run[0], tokenizer=other / "tokenizer")


def test_a_run_without_a_checkpoint_is_refused(tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(DataError, match="intact checkpoint"):
        load_forecaster(tmp_path / "run")


def reads_codes(models):
    tokenizer, world_model = models
    config = replace(world_model.config, code_dim=8, expected_input=True)
    torch.manual_seed(3)
    made = WorldModel(config)
    torch.nn.init.normal_(made.motion.leave.weight)
    return tokenizer, made


def test_code_vectors_are_part_of_the_file(models, tmp_path):
    tokenizer, world_model = reads_codes(models)
    world_model.set_code_vectors(tokenizer.code_vectors)
    loaded = load_forecaster(save_model(tmp_path / "codes", tokenizer, world_model, cards=CARDS)).world_model
    torch.testing.assert_close(loaded.motion.vectors, world_model.motion.vectors)
    torch.testing.assert_close(loaded.expected.vectors, world_model.expected.vectors)


def test_a_world_model_without_its_code_vectors_is_refused(models, tmp_path):
    folder = save_model(tmp_path / "codes", *reads_codes(models), cards=CARDS)
    with pytest.raises(DataError, match="code vectors"):
        load_forecaster(folder)

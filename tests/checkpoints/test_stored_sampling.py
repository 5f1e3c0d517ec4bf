"""How a model is sampled goes with its folder: read, used where a call leaves it open, refused where it cannot be."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from copilot4d import load_forecaster, presets
from copilot4d.checkpoints.model_folder import DESCRIPTION, ModelCards, read_description, save_model
from copilot4d.checkpoints.pretrained import ModelCard
from copilot4d.checkpoints.stored_sampling import StoredSampling
from copilot4d.cli.main import main
from copilot4d.errors import DataError
from copilot4d.forecaster import Sampling, sampling_of
from copilot4d.geometry import Sweep, se3
from copilot4d.tokenizer import Tokenizer
from copilot4d.world_model import SamplerConfig, WorldModel
from tests.support.shipped import shipped_mini

CHOSEN = StoredSampling(steps=3, guidance=0.5, schedule="few_first", top_k=None)


def save(folder, sampling):
    config = presets.tiny()
    torch.manual_seed(3)
    card = ModelCard(
        title="t", summary="s", trained_on=["nothing"], steps=0, samples=0, training_s=0.0, hardware="none"
    )
    return save_model(
        folder, Tokenizer(config.tokenizer), WorldModel(replace(config.world_model, token_frame="reference")),
        cards=ModelCards(tokenizer=card, world_model=card), sampling=sampling,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("stored") / "toy", CHOSEN)


def tokens_of(model, **sampling):
    rng = np.random.default_rng(4)
    cloud = rng.uniform((-14, -14, -1.5), (14, 14, 1.0), (500, 3)).astype(np.float32)
    past = [Sweep(points=cloud, world_from_lidar=se3.from_yaw(0.1 * t), timestamp_ns=t * 10**8) for t in range(2)]
    (frame,) = model.imagine(past, **sampling).step(se3.from_yaw(0.3))
    return frame.tokens


def test_what_is_stored_is_used_where_a_call_leaves_it_open(folder):
    model = load_forecaster(folder)
    assert model.sampler == SamplerConfig(steps=3, guidance=0.5, schedule="few_first", top_k=None)
    assert sampling_of(model) == Sampling(guidance=0.5, steps=3)
    assert sampling_of(model, guidance=2.0) == Sampling(guidance=2.0, steps=3)
    stored = tokens_of(model)
    assert np.array_equal(stored, tokens_of(model, guidance=0.5, steps=3))
    assert not np.array_equal(stored, tokens_of(model, steps=5))
    assert not np.array_equal(stored, tokens_of(model.with_sampler(top_k=1)))


def test_a_folder_without_the_block_has_the_samplers_defaults(tmp_path):
    plain = save(tmp_path / "plain", None)
    assert "sampling" not in json.loads((plain / DESCRIPTION).read_text())
    assert read_description(plain).sampling is None
    model = load_forecaster(plain)
    assert model.sampler == SamplerConfig()
    assert sampling_of(model) == Sampling(guidance=1.0, steps=10) == sampling_of(load_forecaster("copy_last"))
    assert np.array_equal(tokens_of(model), tokens_of(model, guidance=1.0, steps=10))


def test_a_key_that_is_left_out_has_its_default(tmp_path, folder):
    path = tmp_path / "toy" / DESCRIPTION
    path.parent.mkdir()
    stated = json.loads((folder / DESCRIPTION).read_text())
    path.write_text(json.dumps(stated | {"sampling": {"steps": 4}}))
    assert read_description(path.parent).sampling == StoredSampling(steps=4)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"step": 2}, r"sampling\.step: .*the nearest is 'steps'"),
        ({"reverse": "d3pm"}, r"sampling\.reverse: "),
        ({"steps": 0}, "sampling: .*sampler.steps must be at least 1, got 0"),
        ({"steps": 2.5}, r"sampling\.steps: expected a value of type int"),
        ({"steps": True}, r"sampling\.steps: expected a value of type int"),
        ({"guidance": float("nan")}, "sampling: .*finite"),
        ({"guidance": "strong"}, r"sampling\.guidance: expected a value of type float"),
        ({"schedule": "maskgit"}, r"sampling\.schedule: expected one of 'paper', 'few_first'"),
        ({"top_k": 0}, "sampling: .*sampler.top_k must be at least 1"),
        ([2, 1.0], "sampling: expected keys and values"),
    ],
)
def test_what_cannot_be_is_told_with_the_file(tmp_path, folder, block, said):
    path = tmp_path / "toy" / DESCRIPTION
    path.parent.mkdir()
    stated = json.loads((folder / DESCRIPTION).read_text())
    path.write_text(json.dumps(stated | {"sampling": block}))
    with pytest.raises(DataError, match=said) as told:
        read_description(path.parent)
    assert str(path) in str(told.value)


def test_export_stores_what_its_flags_say_and_keeps_the_rest(tmp_path, folder, capsys):
    def export(source, name, *flags):
        words = ["export", "--tokenizer", str(source / "tokenizer"), "--world-model", str(source / "world_model")]
        assert main([*words, "--out", str(tmp_path / name), *flags]) == 0
        capsys.readouterr()
        return read_description(tmp_path / name).sampling

    assert export(folder, "kept") == CHOSEN
    assert export(folder, "changed", "--sampling-steps", "2", "--top-k", "1") == replace(CHOSEN, steps=2, top_k=1)
    assert load_forecaster(tmp_path / "changed").sampler.top_k == 1
    assert export(tmp_path / "changed", "all", "--top-k", "0") == replace(CHOSEN, steps=2)
    plain = save(tmp_path / "plain", None)
    assert export(plain, "none") is None
    flags = ("--guidance", "2", "--schedule", "few_first")
    assert export(plain, "some", *flags) == StoredSampling(guidance=2.0, schedule="few_first")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--sampling-steps", "0"], "--sampling-steps must be at least 1"),
        (["--guidance", "inf"], "--guidance must be a finite number"),
        (["--top-k", "1"], "stored with a whole model"),
    ],
)
def test_export_refuses_what_it_cannot_store(tmp_path, folder, capsys, flags, said):
    words = ["export", "--tokenizer", str(folder / "tokenizer"), "--out", str(tmp_path / "out")]
    assert main([*words, *flags]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_the_shipped_model_is_sampled_as_its_scores_were_made():
    chosen = read_description(shipped_mini()).sampling
    assert chosen == StoredSampling(steps=2, guidance=1.0, schedule="few_first", top_k=1)
    model = load_forecaster("mini")
    assert sampling_of(model) == Sampling(guidance=1.0, steps=2)
    assert model.settings["schedule"] == "few_first"
    assert model.settings["top_k"] == 1

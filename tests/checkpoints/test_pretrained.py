"""Folders for the hub: weights come back, the card can be read by the hub, hostile folders do nothing."""

from __future__ import annotations

import json
import os
import pickle
import re

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from copilot4d.checkpoints.pretrained import ModelCard, Score, load_pretrained, save_pretrained
from copilot4d.checkpoints.sealed_folder import DamagedError, seal
from copilot4d.errors import DataError, UsageError
from copilot4d.training import train
from tests.training.toy import ToyModel, ToyTask, toy_config

CARD = ModelCard(
    title="Mini tokenizer: KITTI", summary="Turns a sweep into 32x32 tokens.", trained_on=["KITTI, 4 drives"],
    steps=1000, samples=16000, training_s=11100.0, hardware="2 CPU cores", command="copilot4d train tokenizer",
    scores=[Score(metric="chamfer", value=0.51, dataset="KITTI Odometry 08", protocol="kitti-1s-70m")],
)  # fmt: skip


@pytest.fixture
def model():
    torch.manual_seed(3)
    return ToyModel()


@pytest.fixture
def folder(model, tmp_path):
    return save_pretrained(
        tmp_path / "out", model, kind="tokenizer", config={"width": 16}, card=CARD, conventions={"grid": [1, 2]}
    )


def test_weights_and_config_come_back(folder, model):
    weights = load_pretrained(folder, kind="tokenizer")
    assert weights.config == {"width": 16}
    assert weights.conventions["grid"] == [1, 2]
    other = ToyModel(weights.config["width"])
    weights.fill(other)
    for (name, a), (_, b) in zip(model.state_dict().items(), other.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    assert other.unembed.weight is other.embedding.weight


def test_the_card_is_what_the_hub_reads(folder):
    """Front matter between two `---` lines, plain YAML, with the keys and structure that the hub's check demands."""
    text = (folder / "README.md").read_text()
    front = yaml.safe_load(re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)[1])
    assert front["license"] == "apache-2.0"
    assert front["library_name"] == "copilot4d"
    assert "tokenizer" in front["tags"]
    (entry,) = front["model-index"]
    (result,) = entry["results"]
    assert entry["name"]
    assert result["task"]["type"]
    assert {"type", "name"} <= set(result["dataset"])
    assert result["metrics"][0] == {"type": "chamfer", "value": 0.51, "name": "chamfer (kitti-1s-70m)"}
    for words in (
        "KITTI, 4 drives",
        "1000 steps",
        "3 h 05 min",
        "2 CPU cores",
        "kitti-1s-70m",
        "Not for use in a vehi",
    ):
        assert words in text


def test_unscored_weights_say_so(model, tmp_path):
    card = ModelCard(title="x", summary="", trained_on=["y"], steps=1, samples=1, training_s=1.0, hardware="z")
    folder = save_pretrained(tmp_path / "o", model, kind="tokenizer", config={}, card=card)
    text = (folder / "README.md").read_text()
    assert "Not scored" in text
    assert "model-index" not in text


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "README.md", "manifest.json"])
def test_a_changed_byte_is_noticed(folder, name):
    path = folder / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedError):
        load_pretrained(folder, kind="tokenizer")


def test_the_wrong_kind_size_and_conventions_are_refused(folder):
    with pytest.raises(DataError, match="'world_model', found 'tokenizer'"):
        load_pretrained(folder, kind="world_model")
    with pytest.raises(DataError, match="shape"):
        load_pretrained(folder, kind="tokenizer").fill(ToyModel(8))
    unseal(folder)
    assert load_pretrained(folder, kind="tokenizer").config == {"width": 16}
    stated = json.loads((folder / "config.json").read_text())
    stated["conventions"]["axes"] = "x right, y forward"
    (folder / "config.json").write_text(json.dumps(stated))
    with pytest.raises(DataError, match=r"conventions\.axes"):
        load_pretrained(folder, kind="tokenizer")


def unseal(folder, **changes):
    """Make it a folder of another tool: no manifest, and a config.json that says nothing of one."""
    (folder / "manifest.json").unlink(missing_ok=True)
    stated = json.loads((folder / "config.json").read_text())
    stated.pop("sealed", None)
    (folder / "config.json").write_text(json.dumps({**stated, **changes}))


@pytest.mark.parametrize("how", ["deleted", "dangling", "empty"])
def test_a_lost_manifest_does_not_switch_checking_off(folder, how):
    manifest = folder / "manifest.json"
    manifest.unlink()
    if how == "dangling":
        manifest.symlink_to(folder / "nowhere.json")
    elif how == "empty":
        manifest.touch()
    with pytest.raises(DataError, match="manifest"):
        load_pretrained(folder, kind="tokenizer")


def test_a_manifest_that_does_not_name_the_weights_is_refused(folder):
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    seal(folder, kind="copilot4d.pretrained", version=1, content={})
    (folder / "model.safetensors").write_bytes(weights)
    with pytest.raises(DataError, match=r"no model\.safetensors"):
        load_pretrained(folder, kind="tokenizer")


@pytest.mark.parametrize("conventions", [[1], "x", 3])
def test_conventions_must_be_names_and_values(folder, conventions):
    unseal(folder, conventions=conventions)
    with pytest.raises(DataError, match="conventions"):
        load_pretrained(folder, kind="tokenizer")


def rewrite_weights(folder, change):
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors")
    unseal(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {**t, "head.bias": t["head.bias"].fill_(float("nan"))}, r"head\.bias.*NaN or infinite"),
        (lambda t: {**t, "head.bias": t["head.bias"].fill_(float("-inf"))}, r"head\.bias.*NaN or infinite"),
        (lambda t: {**t, "head.bias": t["head.bias"].to(torch.complex64)}, r"head\.bias.*complex64"),
        (lambda t: {**t, "head.bias": t["head.bias"].to(torch.int64)}, r"head\.bias.*int64"),
        (lambda t: {**t, "head.bias": t["head.bias"].to(torch.int8)}, r"head\.bias.*I8"),
        (lambda t: {**t, "head.bias": t["head.bias"][:-1].clone()}, r"head\.bias.*shape"),
        (lambda t: {name: value for name, value in t.items() if name != "head.bias"}, "1 missing"),
        (lambda t: {**t, "more": torch.zeros(1)}, "1 unknown"),
        (lambda t: {}, "missing"),
    ],
)  # fmt: skip
def test_bad_weights_are_refused_by_name(folder, change, message):
    rewrite_weights(folder, change)
    with pytest.raises(DataError, match=message):
        load_pretrained(folder, kind="tokenizer").build(lambda config: ToyModel(config["width"]), {"width": 16})


def test_weights_of_another_size_are_refused_before_anything_is_allocated(folder):
    built = []

    def network(config):
        built.append(torch.zeros(1).device.type)
        return ToyModel(config["width"])

    with pytest.raises(DataError, match="shape"):
        load_pretrained(folder, kind="tokenizer").build(network, {"width": 8})
    assert built == ["meta"]


def test_all_weights_left_out_are_refused(folder):
    unseal(folder, left_out=sorted(load_file(folder / "model.safetensors")))
    save_file({}, folder / "model.safetensors")
    with pytest.raises(DataError, match="left_out"):
        load_pretrained(folder, kind="tokenizer").build(lambda config: ToyModel(), {})


def test_pickled_weights_are_never_read(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "owned"),))

    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in ("pytorch_model.bin", "model.pt", "model.pkl", "model.ckpt", "config.pkl"):
        (folder / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(DataError, match="never read"):
        load_pretrained(folder, kind="tokenizer")
    (folder / "config.json").write_bytes(pickle.dumps(Bomb()))
    (folder / "model.safetensors").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(DataError):
        load_pretrained(folder, kind="tokenizer")
    (folder / "config.json").write_text('{"kind": "tokenizer", "config": {}, "conventions": {}}')
    with pytest.raises(DataError):
        load_pretrained(folder, kind="tokenizer").tensors()
    assert not (tmp_path / "owned").exists()


def test_links_out_of_the_folder_are_refused(folder, tmp_path):
    (folder / "model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    (folder / "model.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    with pytest.raises(DataError, match="symbolic link"):
        load_pretrained(folder, kind="tokenizer")


def test_saving_replaces_its_own_folders_only(folder, model, tmp_path):
    with torch.no_grad():
        model.head.bias.fill_(42.0)
    save_pretrained(folder, model, kind="tokenizer", config={}, card=CARD)
    assert float(load_pretrained(folder, kind="tokenizer").tensors()["head.bias"][0]) == 42.0
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    (tmp_path / "photos").mkdir()
    with pytest.raises(UsageError, match="not a pretrained folder"):
        save_pretrained(tmp_path / "photos", model, kind="tokenizer", config={}, card=CARD)


def test_fine_tuning_starts_from_a_pretrained_folder(folder, model, tmp_path):
    seen = []

    class Starting(ToyTask):
        def before_step(self, context):
            seen.append(context.model.head.weight.detach().clone())

    train(Starting(), toy_config(tmp_path / "run", init_from=folder, max_steps=1))
    assert torch.equal(seen[0], model.head.weight)


class WithBuffer(ToyModel):
    """A model with something that only training needs."""

    def __init__(self):
        super().__init__()
        self.register_buffer("memory", torch.rand(3))


def test_tensors_can_be_rounded_and_buffers_left_out(tmp_path):
    """What is left out stays as the new model has it; only the names that the folder states may be missing."""
    model = WithBuffer()
    folder = save_pretrained(
        tmp_path / "small", model, kind="tokenizer", config={"width": 16}, card=CARD, dtype=torch.float16,
        without=["memory", "no.such.tensor"],
    )  # fmt: skip
    weights = load_pretrained(folder, kind="tokenizer")
    assert weights.left_out == ("memory",)
    assert "memory" not in weights.tensors()
    assert {t.dtype for t in weights.tensors().values() if t.is_floating_point()} == {torch.float16}
    other = WithBuffer()
    before = other.memory.clone()
    weights.fill(other)
    assert torch.equal(other.memory, before)
    for name, parameter in other.named_parameters():
        assert torch.equal(parameter, dict(model.named_parameters())[name].half().float()), name
    for wrong in ([], "x", [1]):
        unseal(folder, left_out=wrong)
        with pytest.raises(DataError, match=r"missing|left_out"):
            load_pretrained(folder, kind="tokenizer").fill(WithBuffer())
    with pytest.raises(UsageError, match="only buffers"):
        save_pretrained(tmp_path / "x", model, kind="tokenizer", config={}, card=CARD, without=["head.bias"])

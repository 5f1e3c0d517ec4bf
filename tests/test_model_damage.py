"""Model folders that are whole by their checksums and wrong all the same: each is refused, by name, before it runs."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from copilot4d import load_forecaster
from copilot4d.checkpoints.load_tokenizer import load_tokenizer
from copilot4d.checkpoints.sealed_folder import seal
from copilot4d.errors import Copilot4dError, DataError
from tests.support.shipped import shipped_mini

PARTS = ("tokenizer", "world_model", "depth_selector", "occupancy")


@pytest.fixture
def mini(tmp_path):
    return shutil.copytree(shipped_mini(), tmp_path / "mini")


def reseal(folder):
    seal(folder, kind="copilot4d.pretrained", version=1, content={})


def spoil_weights(folder, change):
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors")
    reseal(folder)


def set_config(folder, key, value):
    """`key` is dotted, below "config"."""
    stated = json.loads((folder / "config.json").read_text())
    inner = stated["config"]
    *outer, last = key.split(".")
    for name in outer:
        inner = inner[name]
    inner[last] = value
    (folder / "config.json").write_text(json.dumps(stated))
    reseal(folder)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_one_number_that_is_not_finite_is_refused(mini, part, value):
    def change(tensors):
        tensors[sorted(tensors)[-1]].view(-1)[0] = value
        return tensors

    spoil_weights(mini / part, change)
    with pytest.raises(DataError, match=rf"{part}.model\.safetensors.*1 of \d+ that are NaN or infinite"):
        load_forecaster(mini)


@pytest.mark.parametrize("part", PARTS)
def test_complex_weights_are_refused(mini, part):
    spoil_weights(mini / part, lambda tensors: {name: t.to(torch.complex64) for name, t in tensors.items()})
    with pytest.raises(DataError, match="floating point numbers"):
        load_forecaster(mini)


@pytest.mark.parametrize("part", PARTS)
def test_weights_cannot_be_left_out(mini, part):
    stated = json.loads((mini / part / "config.json").read_text())
    stated["left_out"] = sorted(load_file(mini / part / "model.safetensors"))
    (mini / part / "config.json").write_text(json.dumps(stated))
    spoil_weights(mini / part, lambda tensors: {})
    with pytest.raises(DataError, match="left_out"):
        load_forecaster(mini)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("how", ["deleted", "dangling"])
def test_a_part_that_lost_its_manifest_is_refused(mini, part, how):
    manifest = mini / part / "manifest.json"
    manifest.unlink()
    if how == "dangling":
        manifest.symlink_to(mini / "nowhere.json")
    with pytest.raises(DataError, match="manifest"):
        load_forecaster(mini)


def test_a_part_that_lost_its_manifest_is_refused_alone_too(mini):
    (mini / "tokenizer" / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"manifest\.json"):
        load_tokenizer(mini / "tokenizer")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_behind_a_symbolic_link_is_refused(mini, part, tmp_path):
    (mini / part).rename(tmp_path / "elsewhere")
    (mini / part).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="symbolic link"):
        load_forecaster(mini)


DIGITS = int("1" * 400)
HUGE = 10**9
SIZES = [
    ("tokenizer", "codebook.codes", HUGE), ("tokenizer", "codebook.bank_factor", HUGE),
    ("tokenizer", "codebook.dim", HUGE), ("tokenizer", "grid.shape", [HUGE, HUGE, 32]),
    ("tokenizer", "grid.shape", [16384, 16384, 16384]), ("tokenizer", "backbone.depths", [HUGE, 2]),
    ("tokenizer", "backbone.mlp_ratio", 1e30), ("tokenizer", "backbone.mlp_ratio", float("nan")),
    ("tokenizer", "backbone.window", HUGE), ("tokenizer", "rendering.step_m", 1e-9),
    ("tokenizer", "rendering.inference_max_samples", HUGE), ("tokenizer", "feature_grid.levels", HUGE),
    ("tokenizer", "feature_grid.upsample", HUGE), ("tokenizer", "point_dim", HUGE),
    ("tokenizer", "skipping.pool", HUGE), ("tokenizer", "rendering.step_m", DIGITS),
    ("tokenizer", "codebook.codes", 2048), ("tokenizer", "backbone.depths", [2, 2]),
    ("world_model", "vocabulary", HUGE), ("world_model", "tokens", [HUGE, HUGE]), ("world_model", "frames", HUGE),
    ("world_model", "tokens", [4096, 4096]), ("world_model", "unet.down_groups", [HUGE, 1, 1]),
    ("world_model", "unet.windows", [HUGE, 8, 8]), ("world_model", "vocabulary", 2048),
    ("depth_selector", "widths", [HUGE, 64]), ("depth_selector", "view_channels", HUGE),
    ("depth_selector", "view_dilations", [HUGE, 1, 1]), ("depth_selector", "view_dilations", [1] * 10_000),
    ("occupancy", "future_frames", HUGE), ("occupancy", "blocks", [HUGE, 1, 1]),
    ("occupancy", "grid.shape", [8192, 8192, 32]), ("occupancy", "dims", [HUGE, HUGE, HUGE]),
    ("occupancy", "min_opacity", DIGITS),
]  # fmt: skip


@pytest.mark.parametrize(("part", "key", "value"), SIZES)
def test_sizes_are_checked_before_anything_is_allocated(mini, part, key, value):
    """Any of these would take minutes or gigabytes if it were built first."""
    set_config(mini / part, key, value)
    with pytest.raises(Copilot4dError):
        load_forecaster(mini)

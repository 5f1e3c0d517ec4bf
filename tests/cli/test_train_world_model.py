"""`copilot4d train world-model`, from drives on disk through `tokenize` to a run that goes on, is scored and drawn."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
import yaml

from copilot4d.checkpoints.load_world_model import load_world_model
from copilot4d.checkpoints.pretrained import ModelCard, save_pretrained
from copilot4d.cli.main import main
from copilot4d.cli.train_world_model import Options, choose_clips, world_model_config
from copilot4d.config import to_mapping
from copilot4d.datasets import write_folder
from copilot4d.errors import UsageError
from copilot4d.world_model import WorldModel
from tests.support.scenes import make_drive
from tests.tokenizer.clouds import tiny_tokenizer

CARD = ModelCard(
    title="Untrained",
    summary="For tests.",
    trained_on=("nothing",),
    steps=0,
    samples=0,
    training_s=0.0,
    hardware="none",
)


def words(*parts) -> list[str]:
    return [str(part) for part in parts]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tokenizer, three drives, and their tokens in one reference frame per clip."""
    folder = tmp_path_factory.mktemp("world-model")
    tokenizer = tiny_tokenizer()
    save_pretrained(
        folder / "tokenizer", tokenizer, kind="tokenizer", config=to_mapping(tokenizer.config), card=CARD
    )  # fmt: skip
    for name in ("a", "b", "c"):
        write_folder(make_drive(8, rings=6, azimuths=40, name=name), folder / "data" / name)
    made = main(words("tokenize", "--tokenizer", folder / "tokenizer", "--data", folder / "data", "--out",
                      folder / "tokens", "--held-out", "c", "--intervals", 1, 2, "--past-frames", 2, "--future-frames",
                      2, "--reference-every", 1, "--variants", 2, "--token-frame", "reference"))  # fmt: skip
    assert made == 0
    return folder


def train_words(folder, run, *more) -> list[str]:
    return words("train", "world-model", "--preset", "tiny", "--tokens", folder / "tokens", "--run", run, "--workers",
                 0, "--precision", "fp32", "--log-every", 1, "--held-out-clips", 2, *more)  # fmt: skip


def test_the_verb_trains_goes_on_scores_and_draws(folder, tmp_path, capsys):
    run = tmp_path / "run"
    decode = ("--tokenizer", folder / "tokenizer", "--evaluate-every", 2, "--pictures-every", 3, "--updates", 3)
    assert main(train_words(folder, run, *decode, "--max-updates", 2)) == 0
    said = capsys.readouterr().out
    assert "token_frame reference" in said  # the tokens decide; the preset says own
    assert "copy_accuracy" in said
    assert "warped_accuracy" not in said  # in a common frame copying is that already
    assert main(train_words(folder, run, *decode)) == 0
    said = capsys.readouterr().out
    assert "going on from step 2" in said
    assert "3 steps done" in said
    assert "Next: copilot4d" in said
    assert len(list((run / "pictures").glob("step_000000003_forecast_*.png"))) == 2
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    scores = [r for r in records if r["kind"] == "evaluation"][-1]["scores"]
    assert {"loss", "loss_future", "loss_joint", "loss_frame", "accuracy", "accuracy_changed"} <= scores.keys()
    loaded = load_world_model(run)
    assert loaded.world_model.config.token_frame == "reference"
    assert loaded.world_model.config.frames == 4


def test_a_dry_run_says_what_it_would_cost_and_writes_nothing(folder, tmp_path, capsys):
    assert main(train_words(folder, tmp_path / "run", "--dry-run", "--process", "maskgit")) == 0
    said = capsys.readouterr().out
    assert "M parameters; memory about" in said
    assert not (tmp_path / "run").exists()


def test_weights_that_learned_from_other_clips_are_told(folder, tmp_path, capsys):
    model = WorldModel(replace(world_model_config(options(folder)), token_frame="own"))
    save_pretrained(
        tmp_path / "model" / "world_model", model, kind="world_model", config=to_mapping(model.config), card=CARD,
        conventions={"tokenizer_sha256": "0" * 64},
    )  # fmt: skip
    start = ("--init-from", tmp_path / "model", "--dry-run")
    assert main(train_words(folder, tmp_path / "run", *start)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "token_frame was own and is reference now; its tokens came from another tokenizer" in said
    assert "gathered_past" not in said
    assert "starting from the weights of" in said
    run = tmp_path / "same"
    assert main(train_words(folder, run, "--updates", 1, "--evaluate-every", 1)) == 0
    assert main(train_words(folder, tmp_path / "next", "--init-from", run, "--dry-run")) == 0
    assert "note:" not in capsys.readouterr().out


def options(folder, **changes) -> Options:
    return Options(tokens=(folder / "tokens",), run=folder / "run", preset="tiny", **changes)


def test_config_files_change_the_preset_and_may_not_contradict_the_tokens(folder, tmp_path, capsys):
    file = tmp_path / "changes.yaml"
    file.write_text(yaml.safe_dump({"unet": {"mlp_ratio": 2}, "diffusion": {"eta": 0.1}}))
    config = world_model_config(options(folder, config=file, process="maskgit"))
    assert (config.unet.mlp_ratio, config.unet.dims) == (2, (16, 24, 32))
    assert (config.diffusion.eta, config.diffusion.process) == (0.1, "maskgit")
    assert config.token_frame == "reference"
    file.write_text("token_frame: own\n")
    assert main(train_words(folder, tmp_path / "run", "--config", file)) == 2
    assert "token_frame own, but the tokens were made with reference" in capsys.readouterr().err


def test_drives_are_trained_on_or_held_out_never_both(folder, tmp_path):
    config = world_model_config(options(folder))
    clips, held_out = choose_clips(options(folder), config)
    assert (clips.drives, held_out.drives) == (("a", "b"), ("c",))  # c was tokenized as held out
    clips, held_out = choose_clips(options(folder, held_out=("a",)), config)
    assert (clips.drives, held_out.drives) == (("b",), ("a",))
    clips, held_out = choose_clips(options(folder, drives=("b",), intervals=(2,)), config)
    assert clips.drives == ("b",)
    assert {clips.clip(i, 0).interval for i in range(len(clips))} == {2}
    with pytest.raises(UsageError, match="no drive is left"):
        choose_clips(options(folder, drives=("a",), held_out=("a",)), config)
    with pytest.raises(UsageError, match="--drives z: no such drive"):
        choose_clips(options(folder, drives=("z",)), config)
    with pytest.raises(UsageError, match="in --tokens and in --held-out-tokens"):
        choose_clips(options(folder, held_out_tokens=(folder / "tokens",)), config)


def test_pictures_need_the_tokenizer_of_the_tokens(folder, tmp_path, capsys):
    torch.manual_seed(1)
    other = tiny_tokenizer()
    with torch.no_grad():
        other.codebook.weight.add_(1.0)
    save_pretrained(tmp_path / "other", other, kind="tokenizer", config=to_mapping(other.config), card=CARD)
    assert main(train_words(folder, tmp_path / "run", "--tokenizer", tmp_path / "other")) == 2
    assert "not the one that made --tokens" in capsys.readouterr().err

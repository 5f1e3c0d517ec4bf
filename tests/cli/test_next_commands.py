"""Every `Next:` line that a verb prints is a command that works as it stands, in the folder where it was printed."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
import tyro

from copilot4d import load_forecaster
from copilot4d.checkpoints.depth_parts import copy_depth_parts, depth_parts_in
from copilot4d.checkpoints.model_folder import shipped_model
from copilot4d.checkpoints.pretrained import ModelCard, save_pretrained
from copilot4d.cli.main import main, options_of, split_verb
from copilot4d.cli.options.train_depth_selector import Options as SelectorOptions
from copilot4d.cli.train_depth_selector import copy_model, target_of
from copilot4d.config import to_mapping
from copilot4d.datasets import write_folder
from copilot4d.errors import UsageError
from tests.support.scenes import make_drive
from tests.tokenizer.clouds import tiny_tokenizer

CARD = ModelCard(
    title="Untrained", summary="For tests.", trained_on=("nothing",), steps=0, samples=0, training_s=0.0,
    hardware="none",
)  # fmt: skip
QUICK = ("--sampling-steps", "1", "--limit", "1", "--device", "cpu")
TRAIN = ("--preset", "tiny", "--updates", "1", "--workers", "0", "--precision", "fp32", "--pictures-every", "1",
         "--evaluate-every", "1", "--device", "cpu")  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two drives of own data and a tokenizer."""
    folder = tmp_path_factory.mktemp("next")
    tokenizer = tiny_tokenizer()
    save_pretrained(folder / "tokenizer", tokenizer, kind="tokenizer", config=to_mapping(tokenizer.config), card=CARD)
    for name in ("a", "b"):
        write_folder(make_drive(24, rings=6, azimuths=40, name=name), folder / "data" / name)
    return folder


@pytest.fixture
def here(place, tmp_path, monkeypatch):
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def then(capsys):
    """Runs a command and returns the one that it prints last; `more` is added to keep a test short."""

    def run(command, *more):
        assert main([*(shlex.split(command) if isinstance(command, str) else command), *more]) == 0
        line = capsys.readouterr().out.split("\nNext: ")[1].splitlines()[0]
        assert line.startswith("copilot4d ")
        return shlex.join(shlex.split(line.removeprefix("copilot4d "), comments=True))

    return run


def parses(command):
    """Whether a verb takes these words."""
    verb, rest = split_verb(shlex.split(command))
    tyro.cli(options_of(verb), args=rest)


def test_forecast_evaluate_compare(here, then):
    command = then("forecast --model ray_tracing --data data --out forecast")
    command = then(command, "--limit", "1")
    for _ in range(2):  # two baselines by the same rules, as the commands say
        command = then(command)
    assert command.startswith("compare")
    command = then(command)
    assert main(shlex.split(command)) == 0  # the table: nothing follows


def test_doctor(here, then, capsys):
    command = then("doctor data")
    then(command, "--limit", "1")
    poses = here / "data" / "a" / "poses.txt"
    poses.write_text(poses.read_text().replace("0 0 0", "9 9 9", 1))  # a log with something to fix
    (here / "data" / "b" / "copilot4d.yaml").write_text("version: 1\naxes: x right, y forward, z up\n")
    assert main(["doctor", "data"]) == 1
    line = capsys.readouterr().out.split("\nNext: copilot4d ")[1].splitlines()[0]
    assert main(shlex.split(line, comments=True)) == 1  # it is still to be fixed, but there are pictures now
    assert (here / "report.html").stat().st_size > 10_000


def test_tokenize_train_export(here, then):
    command = then("tokenize --tokenizer tokenizer --data data --out tokens --held-out b")
    command = then(command, *TRAIN, "--held-out-clips", "1")
    command = then(command)
    parses(command)
    assert load_forecaster("models/mine").name == "mine"


def test_a_world_model_whose_tokenizer_was_not_named_finds_it_in_its_tokens(here, then):
    then("tokenize --tokenizer tokenizer --data data --out tokens")
    command = then("train world-model --tokens tokens --run runs/world", *TRAIN)
    assert "--tokenizer tokenizer" in command
    then(command)


def test_tokenizers(here, then):
    command = then("train tokenizer --data data --held-out b --run runs/tokenizer", *TRAIN)
    command = then(command, "--every", "20")
    then(command, "--limit", "1")
    then("export --tokenizer tokenizer --out shared")


def test_a_depth_selector_is_read_by_the_next_command_wherever_it_is_written(here, then):
    then("tokenize --tokenizer tokenizer --data data --out tokens")
    then("train world-model --tokens tokens --tokenizer tokenizer --run runs/world", *TRAIN)
    learn = ("--data", "data", "--settings", "1s", "--updates", "2", "--forecasts", "2", "--sampling-steps", "1",
             "--rays-per-frame", "50", "--device", "cpu")  # fmt: skip
    command = then(["train", "depth-selector", "--model", "runs/world", *learn])
    then(command, *QUICK)
    then("export --tokenizer tokenizer --world-model runs/world --out model")
    command = then(["train", "depth-selector", "--model", "./model", *learn, "--out", "tuned"])
    assert "--model ./tuned" in command
    then(command, *QUICK)
    with pytest.raises(UsageError, match="is a run"):
        target_of(SelectorOptions(model=Path("runs/world"), data=(Path("data"),), out=here / "elsewhere"))


def test_a_shipped_model_is_copied_and_not_written_into(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = target_of(SelectorOptions(model=Path("mini"), data=(Path("data"),)))
    assert str(target) == "mini_tuned"
    copy_model(shipped_model("mini"), target)
    assert depth_parts_in(target).depth_selector is None
    assert copy_depth_parts(shipped_model("mini"), target)
    assert load_forecaster("./mini_tuned").fingerprint == load_forecaster("mini").fingerprint


def test_a_fine_tuned_world_model_keeps_the_depth_selector_and_says_whether_it_is_better(here, then, capsys):
    then("tokenize --tokenizer tokenizer --data data --out tokens --held-out b")
    then("train world-model --tokens tokens --tokenizer tokenizer --run runs/world", *TRAIN)
    shutil.copytree(shipped_model("mini") / "depth_selector", "runs/world/depth_selector")
    shutil.copytree(shipped_model("mini") / "occupancy", "runs/world/occupancy")
    tuned = ["train", "world-model", "--tokens", "tokens", "--tokenizer", "tokenizer", "--run", "runs/tuned",
             "--init-from", "runs/world", *TRAIN, "--held-out-clips", "1"]  # fmt: skip
    assert main([*tuned, "--learning-rate", "1000"]) == 0  # ruins the weights
    said = " ".join(capsys.readouterr().out.split())
    assert "NOT BETTER than where it started" in said
    assert "kept the depth selector" in said
    kept = depth_parts_in(here / "runs/tuned")
    assert kept.depth_selector is not None
    assert kept.occupancy is not None
    from copilot4d.checkpoints.load_checkpoint import best_checkpoint

    assert best_checkpoint(here / "runs/tuned").state["step"] == 0


def test_view_names_a_command_that_parses():
    from copilot4d.cli.view import next_command

    parses(next_command("mini", "some data"))

"""Groups of verbs, suggestions for mistyped words, data in two ways, completion that knows models and drives."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from copilot4d.baselines.copy_last import CopyLast
from copilot4d.cli.complete import SCRIPTS, candidates
from copilot4d.cli.data_words import with_data_flag
from copilot4d.cli.main import VERBS, main, options_of
from copilot4d.cli.model_options import sampling
from copilot4d.cli.options import doctor, evaluate
from copilot4d.cli.options.model_options import FAST_STEPS, ModelOptions
from copilot4d.datasets import write_folder
from copilot4d.forecaster import Sampling
from tests.support.scenes import make_drive


@pytest.mark.parametrize("words", [["train"], ["train", "--help"], ["train", "-h"]])
def test_train_lists_its_verbs(words, capsys):
    assert main(words) == 0
    said = capsys.readouterr().out
    for verb in VERBS:
        assert (f"\n  {verb} " in said) == verb.startswith("train ")


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["docter", "x"], "did you mean copilot4d doctor?"),
        (["evalute"], "did you mean copilot4d evaluate?"),
        (["train", "tokeniser"], "did you mean train tokenizer?"),
        (["trian", "tokenizer"], "did you mean copilot4d train?"),
        (["forecast", "--data", "street-v1/vall", "--out", "{out}"], "did you mean val?"),
        (["train", "worldmodel", "--run", "x"], "did you mean train world-model?"),
        (["forecast", "--model", "minni", "--data", "{data}", "--out", "{out}"], "did you mean mini?"),
        (["forecast", "--model", "ray-tracing", "--data", "{data}", "--out", "{out}"], "did you mean ray_tracing?"),
        (["forecast", "--model", "copy_last", "--data", "{data}", "--drive", "mondai", "--out", "{out}"],
         "did you mean monday?"),
    ],
)  # fmt: skip
def test_mistyped_words_get_a_suggestion(words, suggestion, data, tmp_path, capsys):
    assert main([word.format(data=data, out=tmp_path / "out") for word in words]) == 2
    assert suggestion in " ".join(capsys.readouterr().err.split())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    for name in ("monday", "tuesday"):
        write_folder(make_drive(24, rings=4, azimuths=20, name=name), folder / name)
    return folder


@dataclass(frozen=True)
class Several:
    data: tuple[Path, ...]


@pytest.mark.parametrize(
    ("options", "given", "read"),
    [
        (evaluate.Options, ["kitti", "--setting", "1s"], ["--setting", "1s", "--data", "kitti"]),
        (evaluate.Options, ["--data", "kitti"], ["--data", "kitti"]),
        (evaluate.Options, ["--setting", "1s"], ["--setting", "1s"]),
        (Several, ["a", "b", "--x"], ["--x", "--data", "a", "b"]),
        (doctor.Options, ["--data", "kitti", "--all"], ["kitti", "--all"]),
        (doctor.Options, ["--all", "--data=kitti"], ["kitti", "--all"]),
        (doctor.Options, ["kitti"], ["kitti"]),
    ],
)
def test_data_is_a_word_or_a_flag(options, given, read):
    assert with_data_flag(options, given) == read


class Stores(CopyLast):
    """A forecaster with guidance and steps of its own."""

    def __init__(self, steps):
        self.sampling = Sampling(guidance=2.0, steps=steps)


def test_flags_come_before_fast_and_fast_before_what_is_stored():
    def used(steps, **flags):
        found = sampling(ModelOptions(**flags), Stores(steps))
        return found.steps, found.guidance

    assert used(6) == (6, 2.0)
    assert used(6, sampling_steps=7, guidance=0.5) == (7, 0.5)
    assert used(6, fast=True) == (FAST_STEPS, 0.0)
    assert used(2, fast=True) == (2, 0.0)  # never more steps than stored
    assert used(6, fast=True, sampling_steps=7, guidance=3.0) == (7, 3.0)
    assert sampling(ModelOptions(), CopyLast()) == Sampling(guidance=1.0, steps=10)


def test_mini_is_the_model_where_none_is_named():
    assert ModelOptions().model == "mini"


def test_completion_knows_verbs_flags_choices_models_drives_and_splits(data):
    assert candidates(["dem"], list(VERBS), options_of) == ["demo"]
    assert set(candidates(["train", ""], list(VERBS), options_of)) == {verb.split()[1] for verb in VERBS if " " in verb}
    assert "--sampling-steps" in candidates(["forecast", "--sam"], list(VERBS), options_of)
    assert candidates(["forecast", "--setting", ""], list(VERBS), options_of) == ["1s", "3s"]
    assert "mini" in candidates(["evaluate", "--model", ""], list(VERBS), options_of)
    assert candidates(["evaluate", "--model", "ray"], list(VERBS), options_of)[0].startswith("ray_tracing")
    assert candidates(["forecast", "--data", str(data), "--drive", ""], list(VERBS), options_of) == [
        "monday",
        "tuesday",
    ]
    assert candidates(["evaluate", str(data), "--drives", "monday", "tu"], list(VERBS), options_of) == ["tuesday"]
    assert candidates(["forecast", "--data", ""], list(VERBS), options_of) == []  # a path: the shell's own


def test_the_scripts_are_shell_and_wrong_ones_are_told(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert script == SCRIPTS["bash"]
    if shutil.which("bash"):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert main(["completion", "cmd"]) == 2
    assert "bash, zsh" in capsys.readouterr().err
    assert main(["__complete", "doc"]) == 0
    assert capsys.readouterr().out.split() == ["doctor"]

"""Shell completion: the script that is printed completes verbs, their second words, options and choices."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from copilot4d.cli.main import VERBS, main

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _tyro_copilot4d
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    file = tmp_path_factory.mktemp("shell") / "copilot4d.bash"
    assert main(["--tyro-write-completion", "bash", str(file)]) == 0

    def ask(*words: str) -> set[str]:
        command = ["bash", "-c", ASK, "bash", str(file), "copilot4d", *words]
        return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())

    return ask


def test_every_verb_is_completed(complete):
    assert {verb.split()[0] for verb in VERBS} <= complete("")
    assert complete("dem") == {"demo"}
    assert {verb.split()[1] for verb in VERBS if " " in verb} <= complete("train", "")


def test_options_and_choices_of_a_verb_are_completed(complete):
    assert complete("demo", "--s") >= {"--street", "--sampling-steps", "--seed"}
    assert complete("train", "tokenizer", "--dat") == {"--data"}
    assert complete("forecast", "--setting", "") == {"1s", "3s"}


@pytest.mark.parametrize("arguments", [["--tyro-print-completion"], ["--tyro-print-completion", "cmd"]])
def test_an_unknown_shell_is_wrong_usage(arguments, capsys):
    assert main(arguments) == 2
    assert "bash, zsh, tcsh, fish" in capsys.readouterr().err

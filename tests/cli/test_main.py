"""The frame of the command line: verbs, exit codes, errors as one paragraph."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import subprocess
import sys
import types

import pytest

from copilot4d.cli import main as cli
from copilot4d.cli.former_names import FORMER_NAMES, refuse_former_words
from copilot4d.errors import DataError, UsageError
from copilot4d.version import __version__


def test_overview_names_every_verb(capsys):
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert all(verb in out for verb in cli.VERBS)


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"copilot4d {__version__}"


def test_an_unknown_verb_is_wrong_usage_and_lists_the_verbs(capsys):
    assert cli.main(["docter", "x"]) == 2
    message = capsys.readouterr().err
    assert "docter" in message
    assert "doctor" in message


@pytest.fixture
def verb_that_raises(monkeypatch):
    """Installs a verb whose run raises the given error."""

    def install(error: BaseException) -> None:
        module = types.ModuleType("copilot4d.cli.breaks")

        def run(options: object) -> int:
            raise error

        module.Options = dataclasses.make_dataclass("Options", [])  # type: ignore[attr-defined]
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "copilot4d.cli.breaks", module)
        monkeypatch.setitem(cli.VERBS, "breaks", cli.Verb("breaks", "raises"))
        monkeypatch.setattr("tyro.cli", lambda *a, **k: None)

    return install


def test_errors_are_one_paragraph_with_their_exit_code(verb_that_raises, capsys):
    verb_that_raises(DataError("a.bin", "points", expected="16 bytes", found="3", remedy="copy it again"))
    assert cli.main(["breaks"]) == 1
    message = capsys.readouterr().err
    assert "a.bin: points: expected 16 bytes, found 3. To fix it: copy it again." in message
    assert "Traceback" not in message
    verb_that_raises(UsageError("no such thing"))
    assert cli.main(["breaks"]) == 2
    verb_that_raises(OSError(28, "No space left on device", "scores.json"))
    assert cli.main(["breaks"]) == 1
    assert "scores.json: No space left on device" in capsys.readouterr().err
    verb_that_raises(KeyboardInterrupt())
    assert cli.main(["breaks"]) == 130


def test_debug_shows_the_traceback(verb_that_raises):
    verb_that_raises(UsageError("no such thing"))
    with pytest.raises(UsageError):
        cli.main(["breaks", "--debug"])


def test_the_overview_does_not_pay_for_torch():
    code = "import sys; from copilot4d.cli.main import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_a_data_error_survives_a_worker_process():
    error = DataError("a.bin", "points", expected="16 bytes", found="3", remedy="copy it again.")
    again = copy.copy(error)  # the way exceptions travel between processes: through __reduce__
    assert str(again) == str(error)
    assert again.field == "points"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["train", "copy-gate", "--model", "runs/world"], "copilot4d train depth-selector"),
        (["evaluate", "--model", "mini", "--no-copy-path"], "--no-depth-selection"),
        (["forecast", "--copy-path=True"], "--depth-selection"),
        (["train", "depth-selector", "--second-opinion", "occupancy_4d"], "--occupancy"),
        (["evaluate", "--model", "mini", "--steps", "2"], "--steps is called --sampling-steps now"),
        (["demo", "--steps=2"], "--steps is called --sampling-steps now"),
        (["train", "tokenizer", "--steps", "2"], "--steps is called --updates now"),
        (["train", "depth-selector", "--steps", "2"], "--steps is called --updates now"),
        (["train", "world-model", "--max_steps", "2"], "--max-steps is called --max-updates now"),
        (["simulate", "--drives", "20"], "--drives is called --count now"),
        (["forecast", "--schedule", "maskgit"], "--schedule maskgit is called --schedule few_first now"),
        (["forecast", "--schedule=maskgit"], "--schedule maskgit is called --schedule few_first now"),
    ],
)
def test_former_verbs_and_flags_answer_with_the_new_name(words, answer, capsys):
    assert cli.main(words) == 2
    assert answer in " ".join(capsys.readouterr().err.split())


def test_present_names_are_those_of_verbs_and_their_options(capsys):
    for where, former, present in FORMER_NAMES:
        if not former.startswith("--"):
            assert present in cli.VERBS
            continue
        verbs = [verb for verb in cli.VERBS if f"{verb} ".startswith(f"{where} " if where else "")]
        name = present.split()[0].removeprefix("--no-").removeprefix("--").replace("-", "_")
        options = [importlib.import_module(f"copilot4d.cli.{cli.VERBS[verb].module}").Options for verb in verbs]
        assert any(name in {field.name for field in dataclasses.fields(one)} for one in options), present


def test_names_that_stay_are_not_refused():
    refuse_former_words("evaluate", ["--drives", "a", "--schedule", "few_first", "--sampling-steps", "2"])
    refuse_former_words("train world-model", ["--process", "maskgit"])

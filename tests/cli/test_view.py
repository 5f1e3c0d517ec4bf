"""`copilot4d view`: wrong options are told before anything is served; Ctrl-C is the way to end."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from copilot4d.cli import view
from copilot4d.cli.main import main
from copilot4d.datasets.folder_writer import write_folder
from tests.support.scenes import make_drive


@pytest.fixture
def log(tmp_path):
    return write_folder(make_drive(16, name="one", rings=8, azimuths=60), tmp_path / "log")


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["--drive", "nine"], "no drive nine", 2),
        (["--frame", "3"], "of which drive", 2),
        (["--model", "gpt"], "no model 'gpt'", 2),
        (["--port", "99999"], "--port must lie in", 2),
        (["--host", "192.0.2.7"], "no address of this machine", 2),
        (["--futures", "0"], "1 to 8 futures", 2),
        (["--guidance", "-1"], "guidance in the studio", 2),
    ],
)
def test_wrong_options_are_told_at_once(log, monkeypatch, capsys, arguments, words, code):
    monkeypatch.setattr(view, "_wait", lambda: pytest.fail("it must not serve"))
    assert main(["view", "--data", str(log), *arguments]) == code
    assert words in capsys.readouterr().err


def test_it_says_where_it_is_and_ends_at_ctrl_c(log, tmp_path, monkeypatch, capsys):
    seen = []

    def interrupted(seconds):
        seen.append(capsys.readouterr().out)
        raise KeyboardInterrupt

    monkeypatch.setattr(view, "_sleep", interrupted)
    out = tmp_path / "out"
    assert main(["view", "--data", str(log), "--port", "0", "--out", str(out), "--model", "copy_last"]) == 0
    assert "The studio is open at http://127.0.0.1:" in seen[0]
    assert "viser" not in seen[0]
    assert "Next: copilot4d evaluate --model copy_last" in capsys.readouterr().out
    assert not out.exists(), "nothing is written that was not saved"


@pytest.mark.parametrize(("installed", "model"), [(True, "mini"), (False, "ray_tracing")])
def test_the_shipped_model_imagines_unless_it_is_not_there(log, monkeypatch, capsys, installed, model):
    begun, loaded = [], []

    @contextmanager
    def serving(start, library, **options):
        begun.append((start.model, library.models))
        yield SimpleNamespace(url="http://127.0.0.1:1")

    def load(options):
        loaded.append(options.model)
        return SimpleNamespace(limits="It sees 3 m.", region_half_m=32.0)

    monkeypatch.setattr("copilot4d.studio.server.serving", serving)
    monkeypatch.setattr(view, "_wait", lambda: None)
    monkeypatch.setattr(view, "_is_there", lambda name: installed)
    monkeypatch.setattr(view, "load", load)
    assert main(["view", "--data", str(log)]) == 0
    baselines = ("copy_last", "ray_tracing", "ray_tracing_recent", "constant_velocity")
    expected = ("mini", *baselines) if installed else (model, *(name for name in baselines if name != model))
    assert begun == [(model, expected)]
    assert loaded == [model]
    assert "It sees 3 m." in capsys.readouterr().out


def test_listening_to_others_is_warned_of(log, monkeypatch, capsys):
    begun = []
    monkeypatch.setattr(view, "_wait", lambda: begun.append(True))
    assert main(["view", "--data", str(log), "--port", "0", "--host", "0.0.0.0", "--model", "copy_last"]) == 0
    assert begun == [True]
    assert "there is no password" in capsys.readouterr().err

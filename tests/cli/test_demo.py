"""`copilot4d demo` on a log that the test writes, and what it refuses. The simulated demo runs in tests/end_to_end."""

from __future__ import annotations

import json
import re

import pytest

from copilot4d.cli.demo import MARKER
from copilot4d.cli.main import main
from copilot4d.datasets.folder_writer import write_folder
from tests.support.scenes import make_drive


@pytest.fixture
def log(tmp_path):
    return write_folder(make_drive(22, rings=12, azimuths=120, name="own"), tmp_path / "log")


def test_a_demo_on_an_own_log_scores_and_draws_what_fits(log, tmp_path, capsys):
    out = tmp_path / "demo"
    assert main(["demo", "--data", str(log), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert str(out / "index.html") in said.replace("\n", "")
    page = (out / "index.html").read_text()
    assert page.count("<img") == 4  # a film and a strip for each baseline
    assert not re.search(r'(?:src|href)="(?!data:)', page), "the page must not fetch anything"
    names = sorted(p.name for p in out.glob("*.json"))
    assert names == ["copy_last_1s.json", "ray_tracing_1s.json"]  # 22 sweeps are too few for 3s
    scores = json.loads((out / "ray_tracing_1s.json").read_text())
    assert scores["frames_scored"] > 0
    assert f"{scores['metrics']['chamfer_roi']:.3f}" in page

    assert main(["demo", "--data", str(log), "--out", str(out)]) == 0  # its own folder may be made again


def test_a_folder_with_other_files_is_left_alone(log, tmp_path, capsys):
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter1.txt").write_text("years of work")
    assert main(["demo", "--data", str(log), "--out", str(out)]) == 2
    assert (out / "chapter1.txt").read_text() == "years of work"
    assert "thesis" in capsys.readouterr().err


def test_a_log_without_a_complete_window_says_what_is_missing(tmp_path, capsys):
    short = write_folder(make_drive(4, rings=4, azimuths=40, name="short"), tmp_path / "short")
    assert main(["demo", "--data", str(short), "--out", str(tmp_path / "demo")]) == 1
    assert "needs 19 consecutive sweeps" in capsys.readouterr().err.replace("\n", " ")


def test_data_inside_the_output_folder_is_never_removed(tmp_path, capsys):
    out = tmp_path / "demo"
    log = write_folder(make_drive(22, rings=4, azimuths=40, name="own"), out / "drive")
    (out / MARKER).write_text("")
    assert main(["demo", "--data", str(log), "--out", str(out)]) == 2
    assert "another --out" in capsys.readouterr().err
    assert (log / "copilot4d.yaml").exists()


def test_a_mistyped_log_leaves_the_earlier_demo_alone(tmp_path):
    out = tmp_path / "demo"
    out.mkdir()
    (out / MARKER).write_text("")
    (out / "index.html").write_text("earlier")
    assert main(["demo", "--data", str(tmp_path / "lgo"), "--out", str(out)]) == 1
    assert (out / "index.html").read_text() == "earlier"

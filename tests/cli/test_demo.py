"""`copilot4d demo` on a log that the test writes, and what it refuses. The simulated demo runs in tests/browser."""

from __future__ import annotations

import json
import re

import pytest

from copilot4d.cli.demo import MARKER
from copilot4d.cli.main import main
from copilot4d.datasets.folder_writer import write_folder
from copilot4d.errors import UsageError
from copilot4d.forecaster import PlainForecaster
from copilot4d.forecasting.load import load_forecaster
from tests.support.scenes import make_drive


@pytest.fixture
def log(tmp_path):
    return write_folder(make_drive(22, rings=12, azimuths=120, name="own"), tmp_path / "log")


def test_a_demo_on_an_own_log_scores_and_draws_what_fits(log, tmp_path, capsys):
    out = tmp_path / "demo"
    assert main(["demo", "--data", str(log), "--out", str(out), "--model", "copy_last"]) == 0
    said = capsys.readouterr().out.replace("\n", "")
    assert str(out / "index.html") in said
    assert "The baseline copy_last forecasts" in said
    page = (out / "index.html").read_text()
    assert not re.search(r'src="(?!data:)', page), "the page must not fetch anything"
    links = re.findall(r'href="([^"]*)"', page)
    assert "forecast.mp4" in links
    assert all((out / link).is_file() for link in links)
    assert "have no truth and no score" in page
    scores = json.loads((out / "scores.json").read_text())
    assert {(r["setting"], r["model"]) for r in scores["scores"]} == {("1s", "copy_last"), ("1s", "ray_tracing")}
    keep = next(r for r in scores["scores"] if (r["plan"], r["model"]) == ("keep", "ray_tracing"))
    assert keep["frames_scored"] == 5
    assert f"{round(keep['metrics']['chamfer_roi'], 3):.4g}" in page
    assert all(r["metrics"] is None for r in scores["scores"] if r["plan"] != "keep")

    assert main(["demo", "--data", str(log), "--out", str(out), "--frame", "9", "--model", "copy_last"]) == 0
    assert json.loads((out / "scores.json").read_text())["reference_frame"] == 9  # its own folder, made again


def test_without_shipped_weights_it_says_so_and_shows_the_best_baseline(log, tmp_path, capsys, monkeypatch):
    def no_weights(name):
        raise UsageError(f"no {name} here")

    monkeypatch.setattr("copilot4d.checkpoints.model_folder.shipped_model", no_weights)
    out = tmp_path / "demo"
    assert main(["demo", "--data", str(log), "--out", str(out)]) == 0
    assert "no trained weights (mini)" in capsys.readouterr().out
    page = (out / "index.html").read_text()
    assert "no trained weights (mini)" in page
    assert "the baseline ray_tracing_recent" in page
    assert json.loads((out / "scores.json").read_text())["model"] == "ray_tracing_recent"


def test_with_weights_the_page_names_the_model(log, tmp_path, capsys, monkeypatch):
    class Model(PlainForecaster):
        name = "mini"
        limits = "mini knows 64 m x 64 m."

        def forecast(self, past, future_poses, rays=None, **sampling):
            return load_forecaster("copy_last").forecast(past, future_poses, rays, **sampling)

    monkeypatch.setattr("copilot4d.checkpoints.model_folder.shipped_model", lambda name: tmp_path)
    monkeypatch.setattr(
        "copilot4d.cli.demo.load_forecaster", lambda name: Model() if name == "mini" else load_forecaster(name)
    )
    out = tmp_path / "demo"
    assert main(["demo", "--data", str(log), "--out", str(out), "--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert "The trained model mini forecasts" in said
    assert "mini knows 64 m x 64 m." in said
    page = (out / "index.html").read_text()
    assert "the trained model mini" in page
    assert "mini knows 64 m x 64 m." in page
    assert "expect less of it" in page  # the log is none of its own
    assert "no trained weights" not in page
    scores = json.loads((out / "scores.json").read_text())
    assert (scores["model"], scores["sampling"]["seed"]) == ("mini", 3)
    by_model = {r["model"]: r["metrics"]["chamfer_roi"] for r in scores["scores"] if r["plan"] == "keep"}
    assert by_model["mini"] == by_model["copy_last"] != by_model["ray_tracing"]


def test_a_wrong_model_leaves_the_earlier_demo_alone(log, tmp_path, capsys):
    out = tmp_path / "demo"
    out.mkdir()
    (out / MARKER).write_text("")
    (out / "index.html").write_text("earlier")
    assert main(["demo", "--data", str(log), "--out", str(out), "--model", "nobody"]) == 2
    assert main(["demo", "--data", str(log), "--out", str(out), "--frame", "99"]) == 2
    assert main(["demo", "--street", "77", "--out", str(out)]) == 2
    assert main(["demo", "--drive", "own", "--out", str(out)]) == 2
    assert "add --data" in capsys.readouterr().err
    assert (out / "index.html").read_text() == "earlier"


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

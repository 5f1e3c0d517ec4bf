"""`copilot4d evaluate` as a user runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from copilot4d.baselines import CopyLast
from copilot4d.cli.main import main
from copilot4d.datasets.folder_writer import write_kitti
from copilot4d.evaluation import ScoreFile
from tests.support.real_data import real_data
from tests.support.scenes import make_drive


@pytest.fixture(scope="module")
def kitti(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "kitti"
    write_kitti(make_drive(20, rings=10, azimuths=90), root, name="val_a")
    write_kitti(make_drive(20, rings=10, azimuths=90, speed=2.0), root, name="train_b")
    return root


def evaluate(data: Path, out: Path, *more: str, model: str = "copy_last", setting: str = "1s") -> int:
    words = ["evaluate", "--model", model, "--data", str(data), "--setting", setting, "--out", str(out)]
    return main([*words, *more])


def plain(text: str) -> str:
    """Without colours and line breaks."""
    return re.sub(r"\s+", " ", re.sub(r"\x1b\[[0-9;]*m", "", text))


def test_scores_every_drive_and_says_where(kitti, tmp_path, capsys):
    out = tmp_path / "new" / "scores.json"
    assert evaluate(kitti, out, "--every", "6") == 0
    scores = ScoreFile.read(out)
    assert (scores.model, scores.setting, scores.protocol) == ("copy_last", "1s", "4docc-roi70-every6")
    assert sorted(scores.drives) == ["train_b", "val_a"]
    assert 0 < scores.metrics["chamfer_roi"] < 10
    assert len(scores.per_horizon) == 5
    shown = plain(capsys.readouterr().out)
    assert f"Wrote {out}" in shown
    assert scores.protocol_hash in shown
    assert f"{scores.metrics['chamfer_roi']:.3f}" in shown
    assert "Next: copilot4d evaluate --model ray_tracing" in shown
    assert [file.name for file in out.parent.iterdir()] == ["scores.json"]


def test_an_interrupted_run_goes_on(kitti, tmp_path, monkeypatch, capsys):
    forecast, calls = CopyLast.forecast, []

    def counted(self, *args, **options):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return forecast(self, *args, **options)

    monkeypatch.setattr(CopyLast, "forecast", counted)
    out = tmp_path / "s.json"
    assert evaluate(kitti, out, "--drives", "val_a", "--limit", "6") == 130
    assert not out.exists()
    assert evaluate(kitti, out, "--drives", "val_a", "--limit", "6") == 0
    assert len(calls) == 4 + 3
    assert ScoreFile.read(out).references == 6


def test_chooses_drives_and_splits(kitti, tmp_path):
    by_name, by_split = tmp_path / "name.json", tmp_path / "split.json"
    assert evaluate(kitti, by_name, "--drives", "val_a", "--limit", "2") == 0
    assert evaluate(kitti, by_split, "--split", "val", "--limit", "2") == 0
    first, second = ScoreFile.read(by_name), ScoreFile.read(by_split)
    assert first.drives == second.drives == ["val_a"]
    assert first.metrics == second.metrics
    assert first.references == 2


def test_options_become_the_protocol(kitti, tmp_path):
    out = tmp_path / "s.json"
    options = ["--drives", "val_a", "--roi-half", "32", "--every", "9", "--limit", "1", "--parity", "--seed", "3"]
    assert evaluate(kitti, out, *options) == 0
    content = json.loads(out.read_text())
    assert content["protocol"] == "4docc-roi32-every9-first1-parity"
    assert content["protocol_rules"]["roi"] == [-32, -32, -4.5, 32, 32, 4.5]
    assert content["options"]["seed"] == 3
    assert evaluate(kitti, out, "--drives", "val_a", "--limit", "1", "--protocol", "vidar") == 0
    assert json.loads(out.read_text())["protocol"] == "vidar-roi51.2-first1"


def test_both_baselines_are_scored_on_the_same_frames(kitti, tmp_path):
    scores = {}
    for model in ("copy_last", "ray_tracing"):
        assert evaluate(kitti, tmp_path / f"{model}.json", "--drives", "train_b", "--every", "5", model=model) == 0
        scores[model] = ScoreFile.read(tmp_path / f"{model}.json")
    assert scores["copy_last"].frames_hash == scores["ray_tracing"].frames_hash
    assert scores["copy_last"].metrics != scores["ray_tracing"].metrics


def test_the_next_command_makes_a_score_that_compares(kitti, tmp_path, capsys):
    out = tmp_path / "copy_last.json"
    assert evaluate(kitti, out, "--drives", "val_a", "--roi-half", "40", "--every", "7") == 0
    line = re.search(r"Next: copilot4d (evaluate .*)", capsys.readouterr().out)
    assert line is not None
    assert main(line[1].split()) == 0
    line = re.search(r"Next: copilot4d (compare .*)", capsys.readouterr().out)
    assert line is not None
    assert main(line[1].split()) == 0


def test_too_few_sweeps_says_which_frames_are_missing(tmp_path, capsys):
    write_kitti(make_drive(9, rings=4, azimuths=20), tmp_path / "kitti", name="00")
    assert evaluate(tmp_path / "kitti", tmp_path / "s.json") == 1
    assert "frames 9..18 are missing" in plain(capsys.readouterr().err)
    assert not (tmp_path / "s.json").exists()


def test_a_bad_sweep_stops_or_is_listed(tmp_path, capsys):
    write_kitti(make_drive(20, rings=4, azimuths=40), tmp_path / "kitti", name="00")
    bad = tmp_path / "kitti" / "sequences" / "00" / "velodyne" / "000007.bin"
    bad.write_bytes(bad.read_bytes()[:-5])
    out = tmp_path / "s.json"
    assert evaluate(tmp_path / "kitti", out) == 1
    assert "000007.bin" in plain(capsys.readouterr().err)
    assert evaluate(tmp_path / "kitti", out, "--on-bad-sweep", "skip") == 0
    scores = ScoreFile.read(out)
    assert [(s.drive, s.frame) for s in scores.skipped] == [("00", 7)]
    assert scores.skipped[0].references == [1, 3, 5, 7, 9, 11, 13, 15]
    assert "skipped: drive 00, frame 7 (8 windows)" in plain(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--drives", "zz"], "no drive zz"),
        (["--split", "nope"], "no split"),
        (["--every", "0"], "--every"),
        (["--roi-half", "-3"], "--roi-half"),
        (["--limit", "0"], "--limit"),
    ],
)
def test_wrong_usage(kitti, tmp_path, capsys, words, message):
    assert evaluate(kitti, tmp_path / "s.json", *words) == 2
    assert message in plain(capsys.readouterr().err)


def test_an_unknown_model_is_wrong_usage(kitti, tmp_path, capsys):
    assert evaluate(kitti, tmp_path / "s.json", model="copi_last") == 2
    assert "copi_last" in plain(capsys.readouterr().err)


def test_out_is_looked_at_before_the_work(kitti, tmp_path, capsys):
    assert evaluate(kitti, tmp_path) == 2
    assert "is a folder" in plain(capsys.readouterr().err)
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    assert evaluate(kitti, file / "s.json") == 2
    assert evaluate(kitti, file) == 2
    assert "is no score file" in plain(capsys.readouterr().err)
    assert file.read_text() == "mine"


def test_the_real_fixture_has_no_complete_window(tmp_path, capsys):
    assert evaluate(real_data("fixtures", "kitti_odometry"), tmp_path / "s.json") == 1
    assert "missing" in plain(capsys.readouterr().err)


def start_evaluation(data: Path, out: Path) -> subprocess.Popen[str]:
    """On the command line, and so slow that it is still at work when it is looked at."""
    program = (
        "import sys, time\n"
        "from copilot4d.baselines import CopyLast\n"
        "from copilot4d.cli.main import main\n"
        "forecast = CopyLast.forecast\n"
        "def slow(*given, **named):\n"
        "    print('forecasting', flush=True)\n"
        "    time.sleep(0.5)\n"
        "    return forecast(*given, **named)\n"
        "CopyLast.forecast = slow\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    words = ["evaluate", "--model", "copy_last", "--data", str(data), "--setting", "1s", "--out", str(out)]
    process = subprocess.Popen([sys.executable, "-c", program, *words], stdout=subprocess.PIPE, text=True)
    seen = 0
    while seen < 3:  # at least two windows are scored
        line = process.stdout.readline()
        assert line, "the evaluation ended before it began"
        seen += "forecasting" in line
    return process


@pytest.mark.skipif(os.name == "nt", reason="no locks and no SIGTERM there")
def test_a_second_evaluation_into_one_file_says_who_holds_it_and_sigterm_keeps_the_work(kitti, tmp_path, capsys):
    out = tmp_path / "scores.json"
    first = start_evaluation(kitti, out)
    try:
        assert evaluate(kitti, out) == 2
        assert f"another evaluation (process {first.pid}) writes this file" in plain(capsys.readouterr().err)
        first.terminate()
        assert first.wait(timeout=60) == 143
    finally:
        first.kill()
    assert (tmp_path / "scores.json.partial").is_file()
    assert evaluate(kitti, out, "--every", "1") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.json"]

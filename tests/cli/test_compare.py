"""`copilot4d compare` as a user runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from copilot4d.cli.main import main
from copilot4d.evaluation import Protocol, ScoreFile
from copilot4d.evaluation.frame_score import METRICS


@pytest.fixture
def write(tmp_path: Path):
    def write_scores(model: str, value: float, protocol: Protocol | None = None, **changes: object) -> str:
        protocol = protocol or Protocol()
        metrics = {name: value + i for i, name in enumerate(METRICS)}
        scores = {
            "protocol": protocol.name, "protocol_hash": protocol.hash, "model": model, "data": "kitti",
            "setting": "1s", "frames_scored": 7, "frames_not_scored": 0, "metrics": metrics, "per_horizon": [],
            "seconds": 1.0, "drives": ["08"], "frames_hash": "aaaa",
        }  # fmt: skip
        path = tmp_path / f"{model}_{len(list(tmp_path.iterdir()))}.json"
        return str(ScoreFile(**{**scores, **changes}).write(path))

    return write_scores


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_one_table_with_the_best_marked(write, capsys):
    files = [write("slow", 0.5), write("fast", 0.25)]
    assert main(["compare", *files, "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    fast, slow = next(x for x in lines if x.startswith("| fast")), next(x for x in lines if x.startswith("| slow"))
    # ROI Chamfer is metric 1, L1 Med 8, AbsRel Med 9 (x100), L1 2, AbsRel 3 (x100), Chamfer 0
    assert fast == "| fast | **1.250** | **8.250** | **925.0** | **2.250** | **325.0** | **0.250** |"
    assert slow == "| slow | 1.500 | 8.500 | 950.0 | 2.500 | 350.0 | 0.500 |"
    assert any("4docc-roi70" in line and Protocol().hash in line and "08" in line for line in lines)


def test_the_terminal_table_names_the_rules(write, capsys):
    assert main(["compare", write("a", 0.5), write("b", 0.25)]) == 0
    out = plain(capsys.readouterr().out)
    assert "4docc-roi70" in out
    assert "ROI Chamfer" in out
    assert "1.250" in out
    assert "Next: copilot4d compare" in out


def test_a_metric_that_does_not_exist_is_a_dash_and_never_best(write, capsys):
    missing = dict.fromkeys(METRICS, 1.0) | {"chamfer_roi": float("nan")}
    assert main(["compare", write("a", 0.5, metrics=missing), write("b", 3.0), "--markdown"]) == 0
    out = capsys.readouterr().out
    assert "| a | - |" in out
    assert "| b | **4.000** |" in out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"protocol": Protocol(roi_half_m=32)}, "4docc-roi32"),
        ({"setting": "3s"}, "3s"),
        ({"drives": ["09"]}, "drives 09"),
        ({"frames_hash": "bbbb", "frames_scored": 3}, "3 scored"),
    ],
)
def test_other_rules_are_refused_unless_told(write, capsys, change, said):
    files = [write("a", 0.5), write("b", 0.25, **change)]
    assert main(["compare", *files]) == 1
    captured = capsys.readouterr()
    assert said in plain(captured.err)
    assert files[1] in plain(captured.err)
    assert not captured.out
    assert main(["compare", *files, "--mix-protocols"]) == 0
    assert said in plain(capsys.readouterr().out)


def test_one_file_is_a_table_without_a_best(write, capsys):
    assert main(["compare", write("a", 0.5), "--markdown"]) == 0
    assert "**" not in capsys.readouterr().out


def test_bad_files(tmp_path, capsys):
    (tmp_path / "x.json").write_text("{")
    assert main(["compare", str(tmp_path / "x.json")]) == 1
    assert "damaged" in plain(capsys.readouterr().err)
    assert main(["compare", str(tmp_path / "none.json")]) == 1

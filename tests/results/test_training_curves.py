"""Scores against compute: read from runs as they are written, and drawn."""

from __future__ import annotations

import json

import plots
import pytest
import training_curves
from training_curves import Row

from tests.results.test_render import scores
from tests.support.real_data import REPOSITORY

CLASSES = ("empty", "ground", "structure", "moving")


def write_run(folder, *, batch: int, rate: float, steps: tuple[int, ...], start: float, chamfer: bool = False):
    """A run's config and log: a training line before each evaluation but the first."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"recipe:\n  batch: {batch}\n")
    lines = []
    for number, step in enumerate(steps):
        if step:
            lines.append({"kind": "train", "step": step, "samples_per_s": rate, "losses": {"total": 1.0}})
        values = {f"nll_{frame}_{kind}": start - number for frame in ("next", "last") for kind in CLASSES}
        values |= {"chamfer_roi": start / (number + 1)} if chamfer else {}
        lines.append({"kind": "evaluation", "step": step, "scores": {**values, "accuracy": 0.5}, "best": True})
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_runs_that_continue_each_other_are_one_curve(tmp_path):
    first = write_run(tmp_path / "a", batch=8, rate=2.0, steps=(0, 450, 900), start=6.0)
    second = write_run(tmp_path / "b", batch=4, rate=1.0, steps=(0, 900), start=4.0)
    rows = [r for r in training_curves.rows_of("m", [first, second], cores=2.0) if r.score == "nll_next_moving"]
    assert [(r.update, r.samples, r.core_hours, r.value) for r in rows] == [
        (0, 0, 0.0, 6.0),
        (450, 3600, 1.0, 5.0),  # 3,600 samples at 2 a second on two cores
        (900, 7200, 2.0, 4.0),
        (1800, 10800, 4.0, 3.0),
    ]
    assert not any(r.score == "accuracy" for r in training_curves.rows_of("m", [first]))


def test_the_file_comes_back_and_a_model_replaces_its_own_rows(tmp_path, capsys):
    run = write_run(tmp_path / "a", batch=8, rate=2.0, steps=(0, 450), start=6.0, chamfer=True)
    scores(0.25).write(tmp_path / "test.json")
    file = tmp_path / "training.csv"
    for name in ("one", "two", "one"):
        words = [name, str(run), "--out", str(file), "--test", f"3s={tmp_path / 'test.json'}"]
        assert training_curves.main(words) == 0
    rows = training_curves.read_rows(file)
    assert [r.model for r in rows if r.score == "test_3s"] == ["two", "one"]
    assert next(r for r in rows if r.score == "test_3s") == Row("two", 450, 3600, 0.5, "test_3s", 0.25)
    assert training_curves.main(["x", str(run), "--out", str(file), "--test", "2s=a.json"]) == 1
    assert "1s, 3s" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["a,b\n1,2\n", "model,update,samples,core_hours,score,value\nm,x,0,0,loss,1\n"])
def test_a_damaged_file_is_named(damage, tmp_path, capsys):
    (tmp_path / "training.csv").write_text(damage)
    assert plots.main(["--training", str(tmp_path / "training.csv"), "--out", str(tmp_path)]) == 1
    assert "training.csv" in capsys.readouterr().err


def test_both_plots_are_drawn_from_the_file_in_both_inks(tmp_path):
    rows = list(training_curves.rows_of("world model", [
        write_run(tmp_path / "a", batch=8, rate=2.0, steps=(0, 450, 900), start=6.0)
    ]))  # fmt: skip
    rows += training_curves.rows_of("4D-Occ (ours)", [
        write_run(tmp_path / "b", batch=4, rate=1.0, steps=(0, 450, 900), start=0.9, chamfer=True)
    ])  # fmt: skip
    rows.append(Row("world model", 900, 7200, 1.0, "test_1s", 0.25))
    training_curves.write_rows(tmp_path / "training.csv", rows)
    assert plots.main(["--training", str(tmp_path / "training.csv"), "--out", str(tmp_path)]) == 0
    for ground in plots.INK:
        compute, classes = ((tmp_path / f"{name}_{ground}.svg").read_text() for name in ("compute", "classes"))
        assert "during training, held-out clips" in compute
        assert "test, 1 s setting" in compute
        assert "3 s setting" not in compute
        assert all(kind in classes for kind in CLASSES)
        assert plots.INK[ground] in classes


def test_without_rows_there_is_nothing_to_draw(tmp_path):
    assert plots.draw_compute([]) is None
    assert plots.draw_classes([Row("m", 1, 8, 0.1, "chamfer_roi", 1.0)]) is None


@pytest.mark.parametrize("name", ["compute_light", "compute_dark", "classes_light", "classes_dark"])
def test_the_plots_of_the_docs_show_the_file(name):
    rows = training_curves.read_rows(REPOSITORY / "docs" / "results" / "data" / "training.csv")
    drawn = plots.draw_compute(rows) if name.startswith("compute") else plots.draw_classes(rows)
    file = plots.OUT / f"{name}.svg"
    assert file.is_file() == (drawn is not None)
    if drawn is not None:
        wanted = plots.fingerprint_of_rows(rows)
        assert file.read_text().endswith(f"<!-- scores {wanted} -->\n"), "run `python benchmarks/results/plots.py`"

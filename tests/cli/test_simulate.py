from __future__ import annotations

import numpy as np

from copilot4d import open_dataset
from copilot4d.cli.main import main


def test_simulate_writes_a_data_set_says_so_and_goes_on_where_it_stopped(tmp_path, capsys):
    out = tmp_path / "streets"
    arguments = ["simulate", "--out", str(out), "--count", "1", "--seconds", "0.3", "--seed", "8"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "1 drive of 0.3 s with mini32" in said
    assert "Next: copilot4d doctor" in said
    first = open_dataset(out)["000008000000"]
    assert len(first) == 3
    points = first[1].points.copy()
    assert main([*arguments[:4], "2", *arguments[5:]]) == 0  # one more drive
    said = capsys.readouterr().out
    assert "1 of 2 drives are there already" in said
    assert list(open_dataset(out)) == ["000008000000", "000008000001"]
    np.testing.assert_array_equal(open_dataset(out)["000008000000"][1].points, points)


def test_wrong_usage_exits_with_2_and_one_paragraph(tmp_path, capsys):
    assert main(["simulate", "--out", str(tmp_path / "x"), "--sensor", "hdl65"]) == 2
    message = capsys.readouterr().err
    assert "hdl65" in message
    assert "mini32" in message
    assert "Traceback" not in message
    assert not (tmp_path / "x").exists()
    assert main(["simulate", "--out", str(tmp_path / "x"), "--count", "-1"]) == 2


def test_an_out_that_cannot_be_a_folder_is_wrong_usage(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("important")
    for out in ("notes.txt", "notes.txt/below", "n" * 300):
        assert main(["simulate", "--out", str(tmp_path / out), "--count", "1", "--seconds", "0.1"]) == 2
        assert "--out" in capsys.readouterr().err
    assert (tmp_path / "notes.txt").read_text() == "important"


def test_a_refused_run_leaves_its_folder_to_the_next(tmp_path, capsys):
    arguments = ["simulate", "--out", str(tmp_path / "x"), "--count", "1", "--seconds"]
    for seconds in ("inf", "nan", "0.01"):
        assert main([*arguments, seconds]) == 2
        assert "--seconds" in capsys.readouterr().err
        assert not (tmp_path / "x").exists()
    assert main([*arguments, "0.1"]) == 0

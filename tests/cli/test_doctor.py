"""`copilot4d doctor` as a user runs it: words, exit codes, the page, the next command."""

import pytest

from copilot4d.cli.main import main
from copilot4d.datasets import write_kitti
from copilot4d.geometry import se3
from tests.doctor.logs import healthy_log, thicket_log, with_poses

LOG = healthy_log()


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("kitti")
    write_kitti(LOG, root, name="08")
    return root


def test_a_healthy_tree_exits_with_0_and_names_the_next_command(tree, tmp_path, capsys):
    assert main(["doctor", str(tree), "--html", str(tmp_path / "r.html")]) == 0
    said = capsys.readouterr().out
    assert "Verdict: healthy" in said
    assert f"Next: copilot4d evaluate --model ray_tracing --data {tree} --setting 1s" in said
    assert "r.html" in said
    assert (tmp_path / "r.html").stat().st_size > 10_000


def test_a_damaged_tree_exits_with_1(tmp_path, capsys):
    write_kitti(with_poses(LOG, se3.invert(LOG.world_from_lidar)), tmp_path, name="08")
    assert main(["doctor", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "The poses are inverted" in said
    assert "To fix it" in said
    assert "--html report.html" in said


def test_a_log_without_poses_gets_some(tmp_path, capsys):
    pytest.importorskip("kiss_icp", reason="the extra `poses` is not installed")
    folder = write_kitti(thicket_log(), tmp_path, name="08")
    (folder / "poses.txt").unlink()
    assert main(["doctor", str(tmp_path)]) == 1
    assert f"Next: copilot4d doctor --estimate-poses {tmp_path}" in capsys.readouterr().out
    assert main(["doctor", "--estimate-poses", str(tmp_path)]) == 0
    assert f"Wrote {folder / 'poses.txt'}" in capsys.readouterr().out.replace("\n", "")


def test_estimated_poses_beside_given_ones_are_not_used_but_compared(tmp_path, capsys):
    pytest.importorskip("kiss_icp", reason="the extra `poses` is not installed")
    folder = write_kitti(thicket_log(), tmp_path, name="08")
    before = (folder / "poses.txt").read_text()
    main(["doctor", "--estimate-poses", str(tmp_path)])
    said = " ".join(capsys.readouterr().out.split())
    assert "the estimate is NOT used" in said
    assert "m with the log's poses" in said
    assert "m with the estimated ones" in said
    assert (folder / "poses.txt").read_text() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--html", "{file}/x.html"], "is not a folder that you may write to"),
        (["--html", "{file}/deeper/x.html"], "is not a folder that you may write to"),
        (["--html", "{folder}"], "is a folder; name the file to write"),
        (["--html", "{folder}/" + "x" * 300], "cannot be written: File name too long"),
        (["--estimate-poses", "--poses-out", "{file}"], "is a file; name a folder"),
        (["--estimate-poses", "--poses-out", "{file}/x"], "is not a folder that you may write to"),
    ],
)
def test_places_that_cannot_be_written_are_told_before_the_work(tree, tmp_path, monkeypatch, options, message, capsys):
    (tmp_path / "afile").write_text("mine")
    words = [option.format(file=tmp_path / "afile", folder=tmp_path) for option in options]
    monkeypatch.setattr("copilot4d.cli.doctor.examine", None)  # calling it would be a TypeError
    assert main(["doctor", str(tree), *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "afile").read_text() == "mine"


def test_nothing_there_is_told_and_exits_with_1(tmp_path, capsys):
    assert main(["doctor", str(tmp_path / "nowhere")]) == 1
    assert "cannot be opened" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--drives", "99"], "no drive 99"),
        (["--sweeps", "0"], "at least 1"),
        (["--poses-out", "x"], "add --estimate-poses"),
    ],
)
def test_wrong_usage_exits_with_2(tree, options, message, capsys):
    assert main(["doctor", str(tree), *options]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")

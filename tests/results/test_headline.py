"""The headline numbers of README and results are those of the score files, and of nothing else."""

from __future__ import annotations

import shutil
from dataclasses import replace

import headline
import pytest

from copilot4d.errors import UsageError
from copilot4d.evaluation import ScoreFile
from tests.support.real_data import REPOSITORY

SCORES = REPOSITORY / "docs" / "scores"


@pytest.mark.parametrize("page", headline.PAGES, ids=lambda page: page.name)
def test_the_page_has_the_table_of_the_score_files(page):
    text = page.read_text()
    assert headline.updated(text, headline.table(headline.read_scores(SCORES))) == text, (
        "run `python benchmarks/results/headline.py --update`"
    )


def test_every_row_names_a_model_once_and_ratios_are_to_ray_tracing():
    lines = headline.table(headline.read_scores(SCORES)).splitlines()
    base = next(line for line in lines if line.startswith("| `ray_tracing`"))
    assert base.count("| 1x |") == 2
    assert "%" in base
    ours = next(line for line in lines if line.startswith("| **tokens + past + 4D-Occ**"))
    error, times = ours.split(" | ")[2:4]
    assert float(times.split("x")[0]) == pytest.approx(float(error) / float(base.split(" | ")[2]), abs=0.01)
    assert len({line.split("|")[1] for line in lines[2:] if line.startswith("|")}) == len(lines) - 4


def test_scores_of_other_frames_are_refused(tmp_path):
    shutil.copytree(SCORES, tmp_path / "scores")
    path = tmp_path / "scores" / "test_1s_every12" / "copy_last.json"
    replace(ScoreFile.read(path), frames_hash="other").write(path)
    with pytest.raises(UsageError, match="same frames"):
        headline.read_scores(tmp_path / "scores")


def test_a_missing_model_has_no_row_but_ray_tracing_must_be_there(tmp_path):
    shutil.copytree(SCORES, tmp_path / "scores")
    (tmp_path / "scores" / "test_1s_every12" / "copy_last.json").unlink()
    text = headline.table(headline.read_scores(tmp_path / "scores"))
    assert "| `copy_last` | repeats the newest sweep | - | - | - | 0." in text
    assert "not scored on these frames" in text
    (tmp_path / "scores" / "test_3s_every12" / "copy_last.json").unlink()
    assert "copy_last" not in headline.table(headline.read_scores(tmp_path / "scores"))
    (tmp_path / "scores" / "test_3s_every12" / "ray_tracing.json").unlink()
    with pytest.raises(UsageError, match="ray_tracing"):
        headline.read_scores(tmp_path / "scores")


@pytest.mark.parametrize("page", ["no place", "<!-- headline -->\n<!-- /headline -->\n" * 2])
def test_a_page_without_one_place_is_refused(page):
    with pytest.raises(UsageError, match="headline"):
        headline.updated(page, "text")


def test_the_command_writes_pages_and_says_what_is_wrong(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- headline -->\nold\n<!-- /headline -->\nb\n")
    assert headline.main(["--update", str(page)]) == 0
    assert "old" not in page.read_text()
    assert "tokens + past" in page.read_text()
    assert headline.main(["--scores", str(tmp_path)]) == 2
    assert "ray_tracing.json" in capsys.readouterr().err

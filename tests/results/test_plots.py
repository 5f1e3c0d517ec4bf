"""Plots are of the score files; intervals are over drives."""

from __future__ import annotations

from dataclasses import replace

import plots
import pytest

from tests.results.test_render import scores
from tests.support.real_data import REPOSITORY

SCORES = REPOSITORY / "docs" / "scores"


@pytest.mark.parametrize("name", ["horizon_light", "horizon_dark", "ratios_light", "ratios_dark"])
def test_the_plots_of_the_docs_show_the_score_files(name):
    wanted = plots.fingerprint(plots.read_scores(SCORES, plots.MODELS))
    text = (plots.OUT / f"{name}.svg").read_text()
    assert text.endswith(f"<!-- scores {wanted} -->\n"), "run `python benchmarks/results/plots.py`"


def test_the_command_draws_every_model_once_per_setting_in_both_inks(tmp_path):
    assert plots.main(["--out", str(tmp_path)]) == 0
    light, dark = ((tmp_path / f"horizon_{ground}.svg").read_text() for ground in ("light", "dark"))
    for text, ink in ((light, plots.INK["light"]), (dark, plots.INK["dark"])):
        assert ink in text
        assert text.count("tokens + past + 4D-Occ") >= 1
    assert plots.main(["--scores", str(tmp_path), "--out", str(tmp_path)]) == 1


def with_frames(*errors_of_drives: list[list[float]]):
    """A score file whose drives have these errors: references x frames each."""
    base = scores(1.0)
    reference = base.by_reference[0]
    return replace(
        base,
        by_reference=[
            replace(reference, drive=f"d{i}", reference_ns=k, chamfer_roi_ahead=ahead)
            for i, rows in enumerate(errors_of_drives)
            for k, ahead in enumerate(rows)
        ],
    )


def test_equal_drives_have_no_interval_and_different_ones_lie_inside_it():
    assert plots.interval_ahead(with_frames([[1.0, 2.0]], [[1.0, 2.0]]), 2) == (2.0, 2.0)
    low, high = plots.interval_ahead(with_frames([[1.0]], [[3.0]], [[1.0]], [[3.0]]), 1)
    assert 1.0 <= low < 2.0 < high <= 3.0


def test_frames_without_a_score_are_left_out():
    file = with_frames([[float("nan"), 5.0]], [[4.0]])
    assert plots.interval_ahead(file, 1) == (4.0, 4.0)
    assert plots.interval_ahead(file, 2) == (5.0, 5.0)


def test_files_of_version_0_1_have_no_single_frames():
    assert not plots.has_frames(scores(1.0))
    assert plots.has_frames(with_frames([[1.0]]))

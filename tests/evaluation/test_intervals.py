"""Intervals over references: they hold the mean, shrink with more references, and pair what is paired."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.cli.score_table import notes
from copilot4d.evaluation import Protocol, ScoreFile
from copilot4d.evaluation.frame_score import METRICS
from copilot4d.evaluation.intervals import chamfer_interval, chamfer_ratio
from copilot4d.evaluation.scores import ReferenceScore


def scores(values, model="a", frames=5):
    rows = [
        ReferenceScore(drive="d", reference_ns=i, frames=frames, chamfer_roi=float(v)) for i, v in enumerate(values)
    ]
    protocol = Protocol()
    metrics = dict.fromkeys(METRICS, float(np.mean(values)) if len(values) else 1.0)
    return ScoreFile(
        protocol=protocol.name, protocol_hash=protocol.hash, model=model, data="x", setting="1s", frames_scored=1,
        frames_not_scored=0, metrics=metrics, per_horizon=[], seconds=1.0, references=len(rows), by_reference=rows,
    )  # fmt: skip


def test_an_interval_holds_its_mean_and_shrinks_with_the_square_root():
    few, many = (chamfer_interval(scores(np.random.default_rng(1).gamma(2.0, 1.0, n))) for n in (25, 2500))
    assert few.low < few.value < few.high
    assert (few.high - few.low) / (many.high - many.low) == pytest.approx(10, rel=0.4)


def test_equal_values_have_no_width_and_one_reference_no_interval():
    assert chamfer_interval(scores([2.0] * 9)) == (2.0, 2.0, 2.0)
    assert chamfer_interval(scores([2.0])) is None


def test_a_model_that_is_always_twice_as_bad_has_a_ratio_without_doubt():
    easy = np.random.default_rng(2).gamma(1.0, 3.0, 40)  # very uneven moments
    ratio = chamfer_ratio(scores(2 * easy), scores(easy))
    assert ratio == pytest.approx((2.0, 2.0, 2.0))
    wide = chamfer_interval(scores(easy))
    assert wide.high > 1.3 * wide.low


def test_only_common_references_count():
    assert chamfer_ratio(scores([4.0, 4.0, 100.0]), scores([2.0, 2.0])).value == 2.0
    assert chamfer_ratio(scores([1.0]), scores([1.0, 2.0])) is None


def test_notes_say_which_way_is_better_and_warn_of_few():
    told = "\n".join(notes([scores([1.0, 2.0], "mini"), scores([2.0, 4.0], "ray_tracing")]))
    assert "smaller is better" in told
    assert "ray_tracing: 2.00x mini, 95% interval 2.00x to 2.00x" in told
    assert "warning: only 2 reference frames" in told
    assert "warning" not in "\n".join(notes([scores([1.0] * 20)]))

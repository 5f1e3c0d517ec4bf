"""Several futures: one story is the best, and the spread is between them."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.evaluation.frame_score import METRICS, FrameScore
from copilot4d.evaluation.several import several_frames, several_from_plain, several_to_plain, summarise_several

ROI = np.array([-10.0, -10, -2, 10, 10, 2])


def score(value):
    return FrameScore(**{**dict.fromkeys(METRICS, value + 100), "chamfer_roi": value})


def point(x):
    return np.array([[x, 0.0, 0.0], [50.0, 0, 0]])


def test_the_best_future_is_one_story():
    """The second is best over the window, though the first has the best frame."""
    scores = [[score(1.0), score(9.0)], [score(3.0), score(4.0)], [score(8.0), score(5.0)]]
    clouds = [[point(0.0), point(1.0)], [point(2.0), point(1.0)], [point(5.0), point(4.0)]]
    first, second = several_frames(scores, clouds, ROI)
    assert (first.best.chamfer_roi, second.best.chamfer_roi) == (3.0, 4.0)
    assert first.mean.chamfer_roi == pytest.approx(4.0)
    assert second.mean.l1_mean == pytest.approx(106.0)
    assert first.spread == pytest.approx((4 + 9 + 25) / 3)  # squared distances around the ring, inside the ROI
    assert second.spread == pytest.approx((0 + 9 + 9) / 3)
    summary = summarise_several([first, second], 3)
    assert summary["futures"] == 3
    assert summary["best"]["chamfer_roi"] == pytest.approx(3.5)
    assert summary["mean"]["chamfer_roi"] == pytest.approx(5.0)
    assert summary["spread_chamfer_roi"] == pytest.approx((38 / 3 + 6) / 2)


def test_frames_that_one_future_lacks_do_not_count():
    scores = [[score(1.0), None], [score(3.0), score(0.0)]]
    clouds = [[point(0.0)] * 2, [point(1.0)] * 2]
    (frame,) = several_frames(scores, clouds, ROI)
    assert frame.best.chamfer_roi == 1.0
    assert several_frames([[None], [None]], [[point(0.0)]] * 2, ROI) == []
    assert summarise_several([], 2) == {}


def test_an_unfinished_run_keeps_them():
    (frame,) = several_frames([[score(1.0)], [score(2.0)]], [[point(0.0)], [point(1.0)]], ROI)
    assert several_from_plain(several_to_plain(frame)) == frame

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.errors import ForecastError, ProtocolError, UsageError
from copilot4d.evaluation import score_frame
from copilot4d.evaluation.frame_score import METRICS
from tests.evaluation.slow_protocol import errors as slow_errors

ROI = np.array([-70.0, -70, -4.5, 70, 70, 4.5])
ORIGIN = np.zeros(3)
RAY_METRICS = [name for name in METRICS if "chamfer" not in name]


def along(origin: np.ndarray, directions: np.ndarray, depths: np.ndarray) -> np.ndarray:
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    return (origin + unit * np.asarray(depths)[:, None]).astype(np.float32)


def street(count: int, seed: int, spread: float = 40.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(count, 3)) * [1, 1, 0.05]
    return directions, rng.uniform(1, 2.5 * spread, count), rng.uniform(1, 2.5 * spread, count)


def test_a_perfect_forecast_scores_zero():
    directions, depths, _ = street(300, 0)
    true = along(ORIGIN, directions, depths)
    score = score_frame(true, true, ORIGIN, ROI)
    assert score.scored
    assert all(abs(value) < 1e-9 for value in score.as_dict().values())
    assert score.chamfer == score.chamfer_roi == 0


def test_by_hand():
    """Three rays: inside and off by +1 m, inside and off by -2 m, true end beyond the ROI and prediction inside."""
    true = np.array([[10.0, 0, 0], [0, 20, 0], [0, -100, 0]])
    predicted = np.array([[11.0, 0, 0], [0, 18, 0], [0, -60, 0]])
    score = score_frame(predicted, true, ORIGIN, ROI)
    assert score.l1_mean == pytest.approx((1 + 2 + 10) / 3)
    assert score.absrel_mean == pytest.approx((1 / 10 + 2 / 20 + 10 / 70) / 3)
    assert score.l1_median == pytest.approx(2)
    assert score.absrel_median == pytest.approx(0.1)
    assert score.roi_l1_mean == pytest.approx(1.5)
    assert score.roi_absrel_mean == pytest.approx(0.1)
    assert score.roi_l1_median == pytest.approx(1.5)
    assert score.chamfer == pytest.approx((1 + 4 + 1600) / 3)
    # the far true point is cropped, the near prediction for it is not: its neighbour is (10, 0, 0)
    assert score.chamfer_roi == pytest.approx(0.5 * ((1 + 4 + (60**2 + 10**2)) / 3 + (1 + 4) / 2))


def test_beyond_the_roi_both_clamp_and_only_chamfer_sees_it():
    true, predicted = np.array([[100.0, 0, 0], [0, 5, 0]]), np.array([[200.0, 0, 0], [0, 5, 0]])
    score = score_frame(predicted, true, ORIGIN, ROI, "nearest", True)
    assert score.l1_mean == pytest.approx(0, abs=1e-5)
    alone = score_frame(predicted[:1], true[:1], ORIGIN, ROI, "nearest", True)
    assert alone.chamfer == pytest.approx(10_000)
    assert alone.chamfer_roi == 0.0


def test_points_in_the_two_centimetre_band_stay():
    true, predicted = np.array([[70.015, 0, 0]]), np.array([[69.0, 0, 0]])
    assert score_frame(predicted, true, ORIGIN, ROI).l1_mean == pytest.approx(1.015)
    true = np.array([[70.025, 0, 0]])
    assert score_frame(predicted, true, ORIGIN, ROI).l1_mean == pytest.approx(1.0)


def test_returns_within_a_centimetre_are_not_counted():
    true = np.array([[0.009, 0, 0], [10.0, 0, 0]])
    predicted = np.array([[5.0, 0, 0], [12.0, 0, 0]])
    assert score_frame(predicted, true, ORIGIN, ROI).l1_mean == pytest.approx(2.0)


def test_a_ray_that_never_enters_adds_nothing_but_is_counted():
    origin = np.array([100.0, 0, 0])
    true = np.array([[150.0, 0, 0], [40, 0, 0], [80.0, 0, 0]])  # away, into the ROI, short of it
    predicted = np.array([[160.0, 0, 0], [50, 0, 0], [90.0, 0, 0]])
    score = score_frame(predicted, true, origin, ROI)
    assert score.l1_mean == pytest.approx(10 / 3)
    assert score.absrel_mean == pytest.approx(10 / 60 / 3)  # ends inside: the true origin stays
    assert score.l1_median == pytest.approx(10)


def test_an_origin_outside_moves_to_the_entry_for_a_ray_that_crosses():
    origin = np.array([100.0, 0, 0])
    true, predicted = np.array([[-200.0, 0, 0]]), np.array([[20.0, 0, 0]])
    score = score_frame(predicted, true, origin, ROI)
    assert score.l1_mean == pytest.approx(90)
    assert score.absrel_mean == pytest.approx(90 / 140)


@pytest.mark.parametrize("pairing", ["ray", "nearest"])
@pytest.mark.parametrize("parity", [False, True])
@pytest.mark.parametrize(
    ("origin", "roi"),
    [
        ((0, 0, 0), ROI),
        ((0.3, 8, 0.1), ROI),
        ((85, 3, 0), ROI),
        ((0, -71, 6), ROI),
        ((1, 2, 0), np.array([-10.0, -40, -1, 30, 5, 2.5])),
        ((-20, 9, 0.5), np.array([-10.0, -40, -1, 30, 5, 2.5])),
    ],
)
def test_agrees_with_the_slow_text(origin, roi, pairing, parity):
    origin = np.array(origin, dtype=np.float32)
    directions, true_depths, predicted_depths = street(400, 7)
    true = along(origin, directions, true_depths)
    predicted = along(origin, directions, predicted_depths)
    score = score_frame(predicted, true, origin, roi, pairing, parity)
    l1, absrel, count = slow_errors(true, origin.astype(np.float64), predicted_depths, roi)
    assert score.l1_mean == pytest.approx(sum(l1) / count, rel=1e-4, abs=1e-5)
    assert score.absrel_mean == pytest.approx(sum(absrel) / count, rel=1e-4, abs=1e-6)
    assert score.l1_median == pytest.approx(np.median(l1), rel=1e-4, abs=1e-5)
    inside = ((true >= roi[:3]) & (true <= roi[3:])).all(axis=1)
    l1, absrel, count = slow_errors(true[inside], origin.astype(np.float64), predicted_depths[inside], roi)
    assert score.roi_l1_mean == pytest.approx(sum(l1) / count, rel=1e-4, abs=1e-5)
    assert score.roi_absrel_median == pytest.approx(np.median(absrel), rel=1e-4, abs=1e-6)


def test_nearest_takes_the_range_of_the_nearest_angle():
    true = np.array([[0.0, 10, 0], [10, 10, 0]])
    predicted = np.array([[0.05, 12, 0], [3, 3, 0.01], [5, 0, 0]])  # another number of points: a free cloud
    score = score_frame(predicted, true, ORIGIN, ROI, "nearest", True)
    ranges = np.linalg.norm(predicted, axis=1)[:2]
    assert score.l1_mean == pytest.approx(np.mean(np.abs(ranges - [10, np.sqrt(200)])), rel=1e-5)


def test_nearest_has_no_wrap_around():
    """Behind the sensor (y < 0) at +-pi: the point across the seam is a hair away, yet the far one is taken."""
    true = np.array([[0.01, -10.0, 0]])  # atan2(x, y) just below +pi
    across, same_side = [-0.01, -20.0, 0], [3.0, -10.0, 0]
    score = score_frame(np.array([across, same_side]), true, ORIGIN, ROI, "nearest", True)
    assert score.l1_mean == pytest.approx(np.hypot(3, 10) - np.hypot(0.01, 10), rel=1e-4)


def test_equally_near_predictions_give_the_first():
    true = np.array([[1.0, 10, 0]])
    predicted = np.array([[2.0, 20, 0], [0.5, 5, 0]])
    for order, expected in (([0, 1], 1.0), ([1, 0], 0.5)):
        score = score_frame(predicted[order], true, ORIGIN, ROI, "nearest", True)
        assert score.l1_mean == pytest.approx(expected * np.hypot(1, 10), rel=1e-5)


def test_hundreds_of_tied_predictions_still_give_the_first():
    directions = np.tile([[0, 1.0, 0]], (500, 1))
    predicted = along(ORIGIN, directions, np.arange(500) + 1.0)
    score = score_frame(predicted, along(ORIGIN, directions[:3], np.full(3, 9.0)), ORIGIN, ROI, "nearest", True)
    assert score.l1_mean == pytest.approx(8.0, rel=1e-5)


@pytest.mark.parametrize("pairing", ["ray", "nearest"])
def test_each_ray_has_its_own_origin(pairing):
    """Two lidars, 2 m apart: depths count from the lidar that saw the point."""
    origins = np.array([[0.0, 0, 0]] * 40 + [[0, 0, 2.0]] * 40)
    directions, depths, _ = street(80, 3, spread=12)
    true = along(origins, directions, depths)
    predicted = along(origins, directions, 1.1 * depths)
    wide = np.array([-99.0, -99, -99, 99, 99, 99])
    score = score_frame(predicted, true, origins, wide, pairing)
    assert score.absrel_mean == pytest.approx(0.1, rel=1e-4)
    one = score_frame(predicted, true, ORIGIN, wide, pairing)
    assert abs(one.absrel_mean - 0.1) > 1e-3


def test_a_free_cloud_is_scored_by_the_depths_it_gives():
    true = np.array([[10.0, 0, 0], [0, 20, 0]])
    cloud = np.array([[10.0, 0, 0], [0, 20, 0], [5, 5, 0], [6, 5, 0]])
    score = score_frame(cloud, true, ORIGIN, ROI, predicted_depths=np.array([11.0, 19.0]))
    assert score.l1_mean == pytest.approx(1.0)
    assert score.chamfer == pytest.approx(0.5 * (50 + 41) / 4)


def test_raw_depths_are_not_clamped():
    true, predicted = np.array([[100.0, 0, 0], [10, 0, 0]]), np.array([[200.0, 0, 0], [11, 0, 0]])
    score = score_frame(predicted, true, ORIGIN, ROI, clamp=False)
    assert score.l1_mean == pytest.approx((100 + 1) / 2)
    assert score.absrel_mean == pytest.approx((1 + 0.1) / 2)
    assert score.roi_l1_mean == pytest.approx(1)


def test_nothing_in_the_roi_is_not_scored_by_default_and_zero_in_parity():
    true, predicted = np.array([[100.0, 0, 0]]), np.array([[50.0, 0, 0]])
    default = score_frame(predicted, true, ORIGIN, ROI)
    assert not default.scored
    assert np.isnan(default.chamfer_roi)
    assert np.isnan(default.roi_l1_mean)
    assert default.l1_mean == pytest.approx(20)
    parity = score_frame(predicted, true, ORIGIN, ROI, "nearest", True)
    assert parity.chamfer_roi == 0.0
    assert np.isnan(parity.roi_l1_mean)


def test_no_truth_is_not_scored():
    assert not score_frame(np.ones((3, 3)), np.zeros((0, 3)), ORIGIN, ROI).scored


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_predictions_are_refused_with_their_row(bad):
    true = np.array([[10.0, 0, 0], [0, 20, 0]])
    predicted = true.copy()
    predicted[1, 2] = bad
    with pytest.raises(ForecastError, match=r"1 of 2 predicted points .* row 1"):
        score_frame(predicted, true, ORIGIN, ROI)
    with pytest.raises(ForecastError, match=r"1 of 2 predicted depths .* row 0"):
        score_frame(true, true, ORIGIN, ROI, predicted_depths=np.array([bad, 20.0]))


def test_an_empty_prediction_is_refused():
    with pytest.raises(ForecastError, match="empty"):
        score_frame(np.zeros((0, 3)), np.ones((4, 3)), ORIGIN, ROI)


def test_bad_arguments_say_what_is_wrong():
    points = np.ones((4, 3))
    with pytest.raises(UsageError, match="5 points for 4 rays"):
        score_frame(np.ones((5, 3)), points, ORIGIN, ROI)
    with pytest.raises(UsageError, match=r"predicted_depths must be \(4,\)"):
        score_frame(points, points, ORIGIN, ROI, predicted_depths=np.ones(3))
    with pytest.raises(UsageError, match="origin must be"):
        score_frame(points, points, np.zeros((2, 3)), ROI)
    with pytest.raises(UsageError, match="roi must be"):
        score_frame(points, points, ORIGIN, ROI[::-1])
    with pytest.raises(UsageError, match="pairing"):
        score_frame(points, points, ORIGIN, ROI, "angle")
    with pytest.raises(UsageError, match="true_points must be"):
        score_frame(points, np.ones((4, 2)), ORIGIN, ROI)
    with pytest.raises(ProtocolError, match="true points"):
        score_frame(points, np.full((4, 3), np.nan), ORIGIN, ROI)


def test_arguments_are_not_changed():
    directions, true_depths, predicted_depths = street(50, 1)
    true, predicted = along(ORIGIN, directions, true_depths), along(ORIGIN, directions, predicted_depths)
    before = true.copy(), predicted.copy()
    for parity in (False, True):
        score_frame(predicted, true, ORIGIN, ROI, "nearest", parity)
    assert (true == before[0]).all()
    assert (predicted == before[1]).all()


def test_turning_the_world_by_a_quarter_changes_nothing():
    """The ROI is square, so the axes' names must not matter where pairing is by ray."""
    directions, true_depths, predicted_depths = street(300, 5)
    true, predicted = along(ORIGIN, directions, true_depths), along(ORIGIN, directions, predicted_depths)
    turn = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]], dtype=np.float32)
    first = score_frame(predicted, true, ORIGIN, ROI)
    second = score_frame(predicted @ turn.T, true @ turn.T, ORIGIN, ROI)
    for name in METRICS:
        assert getattr(second, name) == pytest.approx(getattr(first, name), rel=1e-5), name

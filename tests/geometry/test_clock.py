"""The log's own clock: its interval and each sweep's place on it, on stamps written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.geometry import clock


def ns(seconds):
    return np.round(np.asarray(seconds, dtype=np.float64) * 1e9).astype(np.int64)


@pytest.mark.parametrize("rate_hz", [2, 9.64, 10, 15, 20])
def test_a_steady_clock_reads_whole_numbers(rate_hz):
    stamps = ns(1.7e9 + np.arange(50) / rate_hz)
    assert clock.interval_ns(stamps) == pytest.approx(1e9 / rate_hz, rel=1e-6)
    np.testing.assert_allclose(clock.readings(stamps), np.arange(50), atol=1e-5)


def test_lost_sweeps_are_counted_where_they_are():
    kept = np.array([0, 1, 2, 4, 5, 6, 10, 11, 12, 13, 14, 15, 16])
    np.testing.assert_array_equal(clock.lost_after(ns(kept * 0.1)), np.diff(kept) - 1)


def test_a_third_of_the_sweeps_lost_and_a_fifth_of_jitter_leave_the_rate():
    rng = np.random.default_rng(3)
    kept = np.setdiff1d(np.arange(90), np.arange(2, 90, 3))
    stamps = ns(kept * 0.1 + rng.uniform(-0.02, 0.02, len(kept)))
    assert clock.interval_ns(stamps) == pytest.approx(1e8, rel=0.01)
    read = np.rint(clock.readings(stamps))
    np.testing.assert_array_equal(read - read[0], kept)


def test_a_long_gap_leaves_both_sides_as_they_are():
    stamps = ns([*(np.arange(20) * 0.1), *(np.arange(20) * 0.1 + 61.34)])
    read = clock.readings(stamps)
    np.testing.assert_allclose(np.diff(read[:20]), 1, atol=1e-6)
    np.testing.assert_allclose(np.diff(read[20:]), 1, atol=1e-6)
    assert 590 < read[20] - read[19] < 600


def test_a_rate_that_changes_slowly_loses_no_sweep():
    intervals = np.linspace(0.096, 0.104, 400)
    assert clock.lost_after(ns(np.cumsum(intervals))).sum() == 0


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_stamps_have_no_interval(count):
    stamps = ns(np.arange(count))
    assert np.isnan(clock.interval_ns(stamps))
    assert len(clock.readings(stamps)) == count

"""Rate, gaps and units of timestamps, on clocks written by hand."""

import numpy as np
import pytest

from copilot4d.doctor.clock import check_clock, read_clock


def ns(*seconds):
    return np.round(np.array(seconds) * 1e9).astype(np.int64)


def test_a_steady_clock_has_no_gaps():
    clock = read_clock(ns(*np.arange(20) * 0.1))
    assert clock.rate_hz == pytest.approx(10)
    assert clock.gaps == ()
    assert check_clock("d", clock, 20) == []


def test_gaps_are_placed_and_counted():
    clock = read_clock(ns(0, 0.1, 0.2, 0.4, 0.5, 0.6, 1.0, 1.1))
    assert clock.gaps == ((2, 1), (5, 3))
    assert clock.missing == 4
    (finding,) = check_clock("d", clock, 8)
    assert finding.code == "sweeps-missing"
    assert "1 after frame 2" in finding.evidence
    assert "3 after frame 5" in finding.evidence


def test_jitter_is_a_remark_and_not_a_gap():
    rng = np.random.default_rng(0)
    clock = read_clock(ns(*(np.arange(40) * 0.1 + rng.uniform(-0.015, 0.015, 40))))
    assert clock.gaps == ()
    assert [(f.code, f.severity) for f in check_clock("d", clock, 40)] == [("clock-unsteady", "remark")]


@pytest.mark.parametrize("factor", [1000.0, 1e-3, 1e6])
def test_times_in_another_unit_are_a_problem(factor):
    clock = read_clock(ns(*(np.arange(20) * 0.1 * factor)))
    assert [f.code for f in check_clock("d", clock, 20)] == ["clock-unit"]


def test_one_sweep_has_no_rate():
    clock = read_clock(ns(4.0))
    assert np.isnan(clock.rate_hz)
    assert check_clock("d", clock, 1) == []

"""What the runner refuses or leaves out: drives that do not fit together, bad sweeps, bad forecasts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from copilot4d.errors import DataError, ForecastError, ProtocolError, UsageError
from copilot4d.evaluation import evaluate_dataset
from copilot4d.evaluation.runner import BAD_SWEEP
from copilot4d.forecaster import Forecast
from copilot4d.geometry import Drive
from tests.evaluation.plain_drives import plain_drive
from tests.evaluation.scripted import Oracle, broken
from tests.support.scenes import make_drive


@pytest.fixture(scope="module")
def drive() -> Drive:
    return make_drive(24, rings=12, azimuths=120)


def at_rate(drive: Drive, interval_s: float) -> Drive:
    return replace(drive, timestamps_ns=np.rint(np.arange(len(drive)) * interval_s * 1e9).astype(np.int64))


def test_drives_without_a_common_horizon_are_refused():
    """At 10 Hz, horizon 2 of the 1s setting is 0.4 s ahead; at 2 Hz, 1 s."""
    drive = plain_drive(24, np.array([[10.0, 0, 0], [0, 20, 0]]))
    fast, slow = at_rate(drive, 0.1), at_rate(drive, 0.5)
    message = (
        r"drive a are 0\.2 s apart \(5 to forecast\), those of drive b 0\.5 s \(2 to forecast\).*"
        "apart, drive a and drive b"
    )
    for dataset in ({"a": fast, "b": slow}, {"b": slow, "a": fast}):
        with pytest.raises(ProtocolError, match=message):
            evaluate_dataset(Oracle(drive), dataset, setting="1s")
    assert [h.horizon for h in evaluate_dataset(Oracle(drive), {"b": slow}, setting="1s").per_horizon] == [1, 2]


@pytest.mark.parametrize(("longer_s", "fine"), [(0.104, True), (0.2, True), (0.11, False)])
def test_only_the_time_between_frames_must_agree(longer_s, fine):
    """9.6 Hz beside 10.4 Hz is how real lidars turn, and 5 Hz has the frames of 10 Hz; 9.1 Hz is too far off."""
    drive = plain_drive(24, np.array([[10.0, 0, 0], [0, 20, 0]]))
    dataset = {"a": at_rate(drive, 0.096), "b": at_rate(drive, longer_s)}
    if fine:
        scores = evaluate_dataset(Oracle(drive), dataset, setting="1s", every=8)
        assert [h.horizon for h in scores.per_horizon] == [1, 2, 3, 4, 5]
    else:
        with pytest.raises(ProtocolError, match=r"0\.192 s apart .*0\.22 s"):
            evaluate_dataset(Oracle(drive), dataset, setting="1s")


def test_in_3s_neighbouring_rates_with_other_counts_are_refused():
    """0.55 s apart is five frames of 0.6 s at 5.5 Hz; 0.52 s apart is six keyframes: near, but not the same rule."""
    drive = plain_drive(60, np.array([[10.0, 0, 0], [0, 20, 0]]))
    dataset = {"a": at_rate(drive, 0.55 / 3), "b": at_rate(drive, 0.52)}
    with pytest.raises(ProtocolError, match=r"drive b are 0\.52 s apart \(6 .*drive a 0\.55 s \(5 "):
        evaluate_dataset(Oracle(drive), dataset, setting="3s")


def test_a_lone_sweep_has_no_spacing(drive):
    lone = plain_drive(1, np.array([[10.0, 0, 0]]))
    scores = evaluate_dataset(Oracle(drive), {"lone": lone, "toy": drive}, setting="1s", every=8)
    assert scores.frames_scored > 0


def test_a_bad_sweep_stops_the_run(drive):
    with pytest.raises(DataError, match=r"000012\.bin"):
        evaluate_dataset(Oracle(drive), {"toy": broken(drive, 12)}, setting="1s")


def test_a_bad_sweep_is_skipped_with_the_windows_that_touch_it(drive):
    scores = evaluate_dataset(Oracle(drive), {"toy": broken(drive, 12, 13)}, setting="1s", on_bad_sweep="skip")
    assert [(s.drive, s.frame) for s in scores.skipped] == [("toy", 12), ("toy", 13)]
    assert "000012.bin" in scores.skipped[0].message
    # even frames touch 12: references 2..20 (two to twelve: future; up to twenty: past)
    assert scores.skipped[0].references == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
    assert scores.not_scored_because[BAD_SWEEP] > 0
    assert scores.frames_scored + scores.frames_not_scored == 24 * 5
    assert scores.references == 22 - 10 - len(scores.skipped[1].references)


def test_no_complete_window_names_the_missing_frames():
    short = make_drive(12, rings=4, azimuths=20)
    with pytest.raises(ProtocolError, match=r"12 sweeps.*needs 19.*frames 12\.\.18 are missing"):
        evaluate_dataset(Oracle(short), {"toy": short}, setting="1s")


def test_nothing_to_evaluate():
    with pytest.raises(UsageError, match="no drive"):
        evaluate_dataset(Oracle(make_drive(1, rings=2, azimuths=4)), {}, setting="1s")


class Wrong(Oracle):
    """An oracle whose answer is spoiled."""

    def __init__(self, drive: Drive, spoil):
        super().__init__(drive)
        self.spoil = spoil

    def forecast(self, *args, **options):
        return self.spoil(super().forecast(*args, **options))


def nan_depth(forecast: Forecast) -> Forecast:
    depths = [d.copy() for d in forecast.depths]
    depths[1][3] = np.nan
    return replace(forecast, depths=tuple(depths))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (nan_depth, r"drive toy, reference frame 0, future frame 4 \(horizon 2\): 1 of \d+ predicted depths"),
        (lambda f: replace(f, depths=None), "depths for None frames"),
        (lambda f: replace(f, sweeps=f.sweeps[:2]), "got 2 sweeps"),
        (lambda f: replace(f, depths=tuple(d[:-1] for d in f.depths)), r"future frame 2.*predicted_depths must be"),
        (
            lambda f: replace(f, sweeps=tuple(s.select(np.zeros(len(s), dtype=bool)) for s in f.sweeps)),
            r"future frame 2.*prediction is empty",
        ),
    ],
)
def test_a_wrong_forecast_is_refused_with_its_frame(drive, spoil, message):
    with pytest.raises(ForecastError, match=message):
        evaluate_dataset(Wrong(drive, spoil), {"toy": drive}, setting="1s")

"""An interrupted evaluation goes on where it was."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from copilot4d.errors import DataError
from copilot4d.evaluation import ScoreFile, evaluate_dataset, unfinished
from copilot4d.geometry import Drive
from tests.evaluation.scripted import Oracle
from tests.evaluation.test_runner import broken
from tests.support.scenes import make_drive


@pytest.fixture(scope="module")
def drive() -> Drive:
    return make_drive(24, rings=6, azimuths=60)


class Interrupted(Oracle):
    """The user presses Ctrl-C during one of the forecasts."""

    def __init__(self, drive: Drive, at_call: int) -> None:
        super().__init__(drive, lag=1)
        self.at_call = at_call

    def forecast(self, *args, **options):
        if len(self.calls) == self.at_call:
            raise KeyboardInterrupt
        return super().forecast(*args, **options)


def run(forecaster: Oracle, drive: Drive, partial: Path | None, **more: object) -> ScoreFile:
    return evaluate_dataset(forecaster, {"toy": drive}, setting="1s", every=2, resume=partial, **more)


def without_times(scores: ScoreFile) -> dict:
    return {key: value for key, value in asdict(scores).items() if not key.startswith("seconds")}


def test_it_goes_on_and_ends_with_the_same_scores(drive, tmp_path):
    partial = tmp_path / "s.partial"
    bad = broken(drive, 21)
    with pytest.raises(KeyboardInterrupt):
        run(Interrupted(drive, 4), bad, partial, on_bad_sweep="skip")
    assert partial.exists()
    rest = Oracle(drive, lag=1)
    resumed = run(rest, bad, partial, on_bad_sweep="skip")
    whole_oracle = Oracle(drive, lag=1)
    whole = run(whole_oracle, bad, None, on_bad_sweep="skip")
    assert without_times(resumed) == without_times(whole)
    assert len(rest.calls) == len(whole_oracle.calls) - 4
    finished = Oracle(drive, lag=1)
    assert without_times(run(finished, bad, partial, on_bad_sweep="skip")) == without_times(whole)
    assert not finished.calls


def test_after_a_bad_sweep_the_run_goes_on_with_skip(drive, tmp_path):
    partial, bad = tmp_path / "s.partial", broken(drive, 16)
    with pytest.raises(DataError):
        run(Oracle(drive, lag=1), bad, partial)
    rest = Oracle(drive, lag=1)
    resumed = run(rest, bad, partial, on_bad_sweep="skip")
    assert without_times(resumed) == without_times(run(Oracle(drive, lag=1), bad, None, on_bad_sweep="skip"))
    assert len(rest.calls) < resumed.references


def test_an_interrupt_before_the_first_window_changes_nothing(drive, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(Interrupted(drive, 0), drive, tmp_path / "s.partial")
    resumed = run(Oracle(drive, lag=1), drive, tmp_path / "s.partial")
    assert without_times(resumed) == without_times(run(Oracle(drive, lag=1), drive, None))


@pytest.mark.parametrize("change", [{"seed": 1}, {"limit": 9}, {"every": 3}])
def test_a_run_with_other_options_starts_over(drive, tmp_path, change):
    partial = tmp_path / "s.partial"
    with pytest.raises(KeyboardInterrupt):
        run(Interrupted(drive, 4), drive, partial)
    again, options = Oracle(drive, lag=1), {"every": 2, **change}
    scores = evaluate_dataset(again, {"toy": drive}, setting="1s", resume=partial, **options)
    assert len(again.calls) == scores.references


@pytest.mark.parametrize("damage", [lambda raw: raw[: len(raw) // 2], lambda raw: b"", lambda raw: b"x" + raw[1:]])
def test_a_damaged_file_starts_over(drive, tmp_path, damage):
    partial = tmp_path / "s.partial"
    with pytest.raises(KeyboardInterrupt):
        run(Interrupted(drive, 4), drive, partial)
    partial.write_bytes(damage(partial.read_bytes()))
    again = Oracle(drive, lag=1)
    scores = run(again, drive, partial)
    assert len(again.calls) == scores.references


def test_it_is_kept_from_time_to_time(drive, tmp_path, monkeypatch):
    """A process that is killed outright loses a minute, not the run."""
    monkeypatch.setattr(unfinished, "SAVE_EVERY_S", -1.0)
    partial = tmp_path / "s.partial"

    class Killed(Interrupted):
        def forecast(self, *args, **options):
            try:
                return super().forecast(*args, **options)
            except KeyboardInterrupt:
                raise MemoryError from None

    with pytest.raises(MemoryError):
        run(Killed(drive, 6), drive, partial)
    rest = Oracle(drive, lag=1)
    scores = run(rest, drive, partial)
    assert len(rest.calls) == scores.references - 6

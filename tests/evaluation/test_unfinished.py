"""An interrupted evaluation goes on where it was."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from copilot4d.datasets import open_dataset, write_folder
from copilot4d.errors import DataError
from copilot4d.evaluation import ScoreFile, evaluate_dataset, unfinished
from copilot4d.geometry import Drive, se3
from tests.evaluation.scripted import Oracle, broken
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


def test_data_that_was_mended_meanwhile_starts_over(drive, tmp_path):
    partial = tmp_path / "s.partial"
    wrong = replace(drive, world_from_lidar=drive.world_from_lidar @ se3.from_yaw(0.1))
    with pytest.raises(KeyboardInterrupt):
        run(Interrupted(drive, 4), wrong, partial)
    again = Oracle(drive, lag=1)
    assert without_times(run(again, drive, partial)) == without_times(run(Oracle(drive, lag=1), drive, None))
    assert len(again.calls) > 4


def test_a_sweep_file_that_was_replaced_starts_over(tmp_path):
    folder = write_folder(make_drive(24, rings=6, azimuths=60), tmp_path / "log")
    partial = tmp_path / "s.partial"
    drive = next(iter(open_dataset(folder).values()))
    with pytest.raises(KeyboardInterrupt):
        run(Interrupted(drive, 4), drive, partial)
    file = sorted((folder / "sweeps").iterdir())[2]
    file.write_bytes(file.read_bytes()[: 16 * 40])
    mended = next(iter(open_dataset(folder).values()))
    resumed = Oracle(mended, lag=1)
    run(resumed, mended, partial)
    whole = Oracle(mended, lag=1)
    run(whole, mended, None)
    assert len(resumed.calls) == len(whole.calls)


def test_frames_skipped_by_an_earlier_run_are_not_taken_over_where_skipping_is_not_allowed(drive, tmp_path):
    partial = tmp_path / "s.partial"
    bad = broken(drive, 4)  # windows of even frames touch it
    with pytest.raises(KeyboardInterrupt):
        run(Interrupted(drive, 2), bad, partial, on_bad_sweep="skip")
    with pytest.raises(DataError):
        run(Oracle(drive, lag=1), bad, partial, on_bad_sweep="raise")

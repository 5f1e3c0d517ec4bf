"""Evaluation in processes side by side: the numbers of one process, in its order; and thinned rays for a quick look."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from copilot4d.baselines import BASELINES
from copilot4d.errors import DataError, ForecastError, UsageError
from copilot4d.evaluation import Protocol, evaluate_dataset, protocol_by_name
from copilot4d.evaluation.runner import protocol_references
from copilot4d.evaluation.workers import Job, Workers, outcomes
from copilot4d.geometry import Clip, Drive, Sweep
from tests.support.scenes import make_drive
from tests.training.processes import child, exit_code


def made(bad_frame: int | None = None) -> tuple[object, dict[str, Drive]]:
    """A forecaster and two drives; a sweep of the first may be unreadable."""
    first, second = (make_drive(n, rings=6, azimuths=60) for n in (22, 25))
    read = first.read

    def sometimes(frame: int) -> Sweep:
        if frame == bad_frame:
            raise DataError("sweep.bin", "points", expected="points", found="none", remedy="copy it again")
        return read(frame)

    first.__dict__["read"] = sometimes
    return BASELINES["ray_tracing"](), {"a": first, "b": second}


def dies() -> tuple[object, dict[str, Drive]]:
    raise SystemExit(3)


def scores(bad_frame: int | None = None, workers: int = 0, **options: object):
    forecaster, drives = made(bad_frame)
    side_by_side = Workers(workers, partial(made, bad_frame)) if workers else None
    return evaluate_dataset(forecaster, drives, setting="1s", every=2, workers=side_by_side, **options)


def plain(scores) -> dict[str, object]:
    known = vars(scores).copy()
    return {name: value for name, value in known.items() if not name.startswith("seconds")}


def test_processes_give_the_same_numbers_in_the_same_order():
    assert repr(plain(scores(on_bad_sweep="skip", bad_frame=4, workers=2))) == repr(
        plain(scores(on_bad_sweep="skip", bad_frame=4))
    )


def test_an_error_comes_in_its_turn_and_what_was_before_it_is_kept(tmp_path):
    kept = tmp_path / "run.partial"
    for workers in (0, 2):
        with pytest.raises(DataError, match="copy it again"):
            scores(bad_frame=14, workers=workers, resume=kept)
        assert kept.exists()
        # Windows 0 and 2 do not reach sweep 14, window 4 does: what went before is kept, the rest is not.
        state = json_of(kept)
        assert state["windows_done"] == 2
        kept.unlink()


def json_of(path) -> dict[str, object]:
    import json

    with np.load(path, allow_pickle=False) as arrays:
        return json.loads(str(arrays["state"]))


def test_a_process_that_ends_by_itself_is_an_error_that_says_what_to_do():
    from copilot4d.datasets.windows import protocol_windows

    windows = protocol_windows(made()[1], "1s")[:2]
    job = Job(Protocol(), {"seed": 0, "guidance": 1.0, "steps": 1, "futures": 1}, False, 20)
    with pytest.raises(ForecastError, match="use fewer workers"):
        list(outcomes(job, windows, Workers(1, dies)))


def ends_with(folder: Path) -> tuple[object, dict[str, Drive]]:
    """What `made` makes; the process says in a file of its own that it is at work."""
    (folder / str(os.getpid())).touch()
    return made()


@pytest.mark.skipif(os.name == "nt", reason="no fork there")
@pytest.mark.parametrize("stopped", [False, True])
def test_processes_end_with_the_one_that_started_them(tmp_path, stopped):
    """Killed, it can end nobody; and a process that is stopped keeps nobody waiting at an interrupt."""

    def work(tell) -> int:
        _, drives = made()
        job = Job(Protocol(), {"seed": 0, "guidance": 1.0, "steps": 1, "futures": 1}, False, 20)
        found = outcomes(job, protocol_references(drives, "1s", Protocol()), Workers(2, partial(ends_with, tmp_path)))
        next(found)
        if stopped:
            for path in tmp_path.iterdir():
                os.kill(int(path.name), signal.SIGSTOP)
            found.close()  # as at an interrupt
            return 0
        os.kill(os.getpid(), signal.SIGKILL)
        return 1

    with child(work) as (pid, lines):
        said = lines.read()
    assert exit_code(pid) == (0 if stopped else -signal.SIGKILL), said
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert workers
    while any(is_there(worker) for worker in workers):
        time.sleep(0.05)


def is_there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workers_are_at_least_one():
    with pytest.raises(UsageError, match="workers"):
        Workers(0, made)


def test_thinned_scores_have_another_name_and_hash_and_fewer_rays():
    thin = Protocol(roi_half_m=32, thin=3)
    assert thin.name == "4docc-roi32-thin3"
    assert protocol_by_name(thin.name) == thin
    assert thin.hash != Protocol(roi_half_m=32).hash
    assert "thin" not in Protocol().rules
    with pytest.raises(UsageError, match=r"protocol\.thin"):
        Protocol(thin=0)
    with pytest.raises(UsageError, match="parity"):
        Protocol(thin=2, parity=True)


def test_each_nth_ray_is_asked_for():
    from copilot4d.datasets.windows import read_clip, window_at
    from copilot4d.evaluation.true_rays import true_frame

    _, drives = made()
    clip: Clip = read_clip(drives["b"], window_at(drives["b"], 6, "1s"))
    whole, thin = true_frame(clip, 0, Protocol()), true_frame(clip, 0, Protocol(thin=3))
    assert np.array_equal(thin.points, whole.points[::3])
    assert np.array_equal(thin.rays.directions, whole.rays.directions[::3])

"""The session: what is chosen and asked, what arrives, what is taken back, what is refused. No browser."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from copilot4d.errors import DataError, UsageError
from copilot4d.forecaster import Sampling as Stored
from copilot4d.geometry import Drive, se3
from copilot4d.studio.paths import Controls
from copilot4d.studio.plan import Plan
from copilot4d.studio.session import MOST_KEPT, Session
from copilot4d.studio.worker import Worker
from tests.studio.scripted import Scripted, ToyLibrary, empty_like, toy_dataset
from tests.support.scenes import make_drive


@pytest.fixture
def worker():
    made = Worker(settle_s=0.0)
    yield made
    made.close()


def opened(tmp_path, worker, *, scripted=None, model="scripted", dataset=None, **options) -> Session:
    scripted = Scripted() if scripted is None else scripted
    library = ToyLibrary(dataset or toy_dataset(tmp_path), scripted)
    session = Session(library, worker, model=model, **options)
    session.open("toy")
    return session


def test_opening_goes_to_the_first_whole_moment_with_the_log_as_plan(tmp_path, worker):
    session = opened(tmp_path, worker)
    moment = session.moment
    assert moment.frame == 8  # 1s at 10 Hz: five past frames, two sweeps apart
    assert [len(moment.past), len(moment.truth)] == [5, 5]
    np.testing.assert_allclose(moment.times_s, [0.2, 0.4, 0.6, 0.8, 1.0])
    np.testing.assert_allclose(moment.past_times_s, [-0.8, -0.6, -0.4, -0.2, 0.0])
    assert session.plan.kind == "log"
    np.testing.assert_array_equal(session.way.poses, moment.drive.world_from_lidar[[10, 12, 14, 16, 18]])
    assert moment.controls.speed_m_s == pytest.approx(6.0, rel=0.01)
    assert moment.ground_m == pytest.approx(-1.73, abs=0.05)


def test_frames_arrive_one_by_one_and_each_is_told(tmp_path, worker):
    scripted, told = Scripted(threading.Semaphore(0)), []
    session = opened(tmp_path, worker, scripted=scripted)
    session.changed = lambda: told.append(len(session.run.frames))
    run = session.ask()
    for k in range(5):
        assert scripted.arrived.acquire(timeout=30)
        assert len(run.frames) == k
        assert run.state == "running"
        scripted.gate.release()
    assert worker.wait_idle(30)
    assert run.state == "done"
    assert told == [0, 0, 1, 2, 3, 4, 5, 5]  # asked, begun, five frames, done
    np.testing.assert_array_equal(scripted.steps, session.way.poses)


def test_plans_share_random_numbers_and_the_past_is_read_once(tmp_path, worker):
    scripted = Scripted()
    session = opened(tmp_path, worker, scripted=scripted)
    session.choose_sampling(futures=2, seed=5)
    points = {}
    for kind in ("keep", "brake"):
        session.choose_plan(Plan(kind=kind))
        run = session.ask()
        assert worker.wait_idle(30)
        points[kind] = [[frame.sweep.points for frame in frames] for frames in run.frames]
        poses = run.poses
    np.testing.assert_array_equal(points["keep"], points["brake"])  # the poses differ, the draws do not
    assert np.abs(np.asarray(points["keep"])[:, 0] - np.asarray(points["keep"])[:, 1]).max() > 0.01
    assert scripted.begun == 1
    session.choose_sampling(seed=6)
    session.ask()
    assert worker.wait_idle(30)
    assert scripted.begun == 2
    assert not np.allclose(session.run.frames[0][0].sweep.points, points["brake"][0][0])
    np.testing.assert_array_equal(session.run.poses, poses)


def test_a_new_wish_cancels_the_running_one_and_only_its_frames_count(tmp_path, worker):
    scripted = Scripted(threading.Semaphore(0))
    session = opened(tmp_path, worker, scripted=scripted)
    first = session.ask()
    assert scripted.arrived.acquire(timeout=30)
    session.choose_plan(Plan(kind="brake"))
    second = session.ask()
    assert first.state == "cancelled"
    for _ in range(6):  # one for the step that was under way
        scripted.gate.release()
    assert worker.wait_idle(30)
    assert first.frames == []
    assert [second.state, len(second.frames)] == ["done", 5]
    np.testing.assert_array_equal(scripted.steps[1:], second.poses)


def test_cancel_keeps_what_is_there(tmp_path, worker):
    scripted = Scripted(threading.Semaphore(2))
    session = opened(tmp_path, worker, scripted=scripted)
    run = session.ask()
    for _ in range(3):
        assert scripted.arrived.acquire(timeout=30)
    assert session.cancel()
    scripted.gate.release()
    assert worker.wait_idle(30)
    assert [run.state, len(run.frames)] == ["cancelled", 2]
    assert not session.cancel()


def test_closing_in_the_middle_leaves_nothing_behind(tmp_path, worker):
    scripted = Scripted(threading.Semaphore(0))
    session = opened(tmp_path, worker, scripted=scripted)
    other = opened(tmp_path, worker, scripted=scripted)
    run = session.ask()
    assert scripted.arrived.acquire(timeout=30)
    session.close()
    mine = other.ask()
    for _ in range(6):
        scripted.gate.release()
    assert worker.wait_idle(30)
    assert run.frames == []
    assert mine.state == "done"
    assert session.moment is None
    assert session.runs() == ()
    with pytest.raises(UsageError, match="closed"):
        session.ask()


def test_any_forecaster_imagines_frame_by_frame_on_the_newest_beams(tmp_path, worker):
    session = opened(tmp_path, worker, model="ray_tracing")
    run = session.ask()
    assert worker.wait_idle(60)
    assert run.state == "done"
    moment = session.moment
    whole = session.library.forecaster("ray_tracing").forecast(moment.past, session.way.poses)
    for (frame,), sweep in zip(run.frames, whole.sweeps, strict=True):
        np.testing.assert_allclose(frame.sweep.points, sweep.points, atol=1e-4)
        np.testing.assert_array_equal(frame.sweep.world_from_lidar, sweep.world_from_lidar)


def test_plans_mean_the_same_at_another_moment(tmp_path, worker):
    session = opened(tmp_path, worker)
    session.choose_plan(Plan(kind="sliders", controls=Controls(speed_m_s=4.0, steer_deg=10.0)))
    before = se3.relative_motion(session.moment.world_from_reference, session.way.poses)
    session.choose(frame=12)
    after = se3.relative_motion(session.moment.world_from_reference, session.way.poses)
    np.testing.assert_allclose(before, after, atol=1e-9)
    session.choose_plan(Plan(kind="drawn", waypoints_m=session.way.waypoints_m + np.array([0.0, 1.0])))
    assert session.way.waypoints_m[:, 1].min() > 0.9


def test_presets_do_what_they_say(tmp_path, worker):
    session = opened(tmp_path, worker)
    end = {}
    for kind in ("keep", "brake", "swerve", "log"):
        session.choose_plan(Plan(kind=kind))
        end[kind] = se3.relative_motion(session.moment.world_from_reference, session.way.poses)[-1]
        np.testing.assert_allclose(session.way.line_m[0], 0.0, atol=1e-9)
        np.testing.assert_allclose(session.way.line_m[-1], end[kind][:3, 3], atol=1e-9)
        np.testing.assert_allclose(session.way.waypoints_m[-1], end[kind][:2, 3], atol=1e-9)
    assert end["keep"][0, 3] == pytest.approx(6.0, abs=0.05)
    assert end["brake"][0, 3] == pytest.approx(6.0 - 2.5, abs=0.05)  # 5 m/s^2 for 1 s
    assert end["swerve"][1, 3] > 1.5
    np.testing.assert_allclose(end["keep"], end["log"], atol=0.02)  # the toy drive keeps its wheel


def test_runs_are_kept_to_compare_up_to_a_limit_and_forgotten_with_their_moment(tmp_path, worker):
    session = opened(tmp_path, worker)
    with pytest.raises(UsageError, match="no imagined future"):
        session.keep()
    runs = []
    for _ in range(MOST_KEPT + 2):
        runs.append(session.ask())
        assert worker.wait_idle(30)
        session.keep()
        session.keep()  # twice is once
    assert list(session.runs()) == runs[-MOST_KEPT:]
    session.drop_kept()
    assert session.runs() == (runs[-1],)
    session.choose(frame=10)
    assert session.runs() == ()


def test_a_drive_without_poses_is_refused_and_the_others_stay_open(tmp_path, worker):
    dataset = toy_dataset(tmp_path, bare=None, one=make_drive(30, name="one", rings=8, azimuths=60))
    session = opened(tmp_path, worker, dataset=dataset)
    assert session.moment.drive.name == "one"
    with pytest.raises(DataError, match=r"poses.*To fix it"):
        session.choose(drive="bare")
    assert session.moment.drive.name == "one"
    assert session.ask().state == "waiting"


def test_a_data_set_of_drives_without_poses_opens_and_says_so(tmp_path, worker):
    session = Session(ToyLibrary(toy_dataset(tmp_path, bare=None)), worker, model="copy_last")
    with pytest.raises(DataError, match="poses"):
        session.open("toy")
    assert session.dataset.names == ("bare",)
    with pytest.raises(UsageError, match="choose data, drive and moment"):
        session.ask()


def test_too_little_past_is_noted_and_still_forecast(tmp_path, worker):
    session = opened(tmp_path, worker, model="copy_last")
    session.choose(frame=3)
    assert len(session.moment.past) == 2
    assert "Only 2 of 5 past sweeps" in session.moment.notes[0]
    assert session.moment.controls.speed_m_s == pytest.approx(6.0, rel=0.01)
    session.choose(frame=0)
    assert len(session.moment.past) == 1
    run = session.ask()
    assert worker.wait_idle(30)
    assert run.state == "done"


def test_beyond_the_end_of_the_log_its_motion_goes_on(tmp_path, worker):
    session = opened(tmp_path, worker)
    session.choose(frame=29)
    assert session.moment.truth == ()
    steps = se3.relative_motion(session.moment.log_poses[:-1], session.moment.log_poses[1:])
    np.testing.assert_allclose(np.linalg.norm(steps[:, :3, 3], axis=1), 1.2, rtol=0.01)  # 6 m/s, 0.2 s
    np.testing.assert_allclose(np.diff(session.moment.times_s), 0.2)


def test_a_single_sweep_can_be_looked_at(tmp_path, worker):
    drive = make_drive(1, name="one", rings=8, azimuths=60)
    session = opened(tmp_path, worker, dataset=toy_dataset(tmp_path, one=drive), model="copy_last")
    assert session.moment.controls == Controls()
    run = session.ask()
    assert worker.wait_idle(30)
    assert [run.state, len(run.frames)] == ["done", 5]


def test_what_a_model_cannot_do_is_told_in_its_run(tmp_path, worker):
    drive = make_drive(30, name="one", rings=8, azimuths=60)
    empty = Drive.from_sweeps("one", [empty_like(sweep) for sweep in drive])
    session = opened(tmp_path, worker, dataset=toy_dataset(tmp_path, one=empty), model="copy_last")
    run = session.ask()
    assert worker.wait_idle(30)
    assert run.state == "failed"
    assert "empty" in run.error


def test_another_model_brings_its_own_sampling_but_for_what_was_changed(tmp_path, worker):
    session = opened(tmp_path, worker)
    session.library.forecaster("scripted").sampling = Stored(guidance=2.0, steps=3)
    session.choose_model("copy_last")
    assert (session.sampling.guidance, session.sampling.steps) == (1.0, 10)  # as before: it stores none
    session.choose_sampling(guidance=2.0, steps=3)
    session.choose_model("scripted")
    session.choose_model("copy_last")
    assert (session.sampling.guidance, session.sampling.steps) == (1.0, 10)
    session.choose_sampling(guidance=0.5)
    session.choose_model("scripted")
    assert (session.sampling.guidance, session.sampling.steps) == (0.5, 3)
    session.library.forecaster("scripted").sampling = Stored(guidance=0.5, steps=500)
    session.choose_model("copy_last")
    session.choose_sampling(guidance=1.0, steps=10)
    with pytest.raises(UsageError, match="1 to 50 steps"):
        session.choose_model("scripted")
    assert (session.model, session.sampling.steps) == ("copy_last", 10)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda s: s.choose(frame=999), "has frames 0..29"),
        (lambda s: s.choose(drive="two"), "no drive two"),
        (lambda s: s.choose(setting="9s"), "settings 1s and 3s"),
        (lambda s: s.choose_model("gpt"), "no model 'gpt'"),
        (lambda s: s.choose_sampling(futures=0), "1 to 8 futures"),
        (lambda s: s.choose_sampling(guidance=float("nan")), "guidance in the studio"),
        (lambda s: s.choose_sampling(seed=-1), "a seed in the studio"),
        (lambda s: s.choose_plan(Plan(kind="fly")), "no plan 'fly'"),
    ],
)
def test_wrong_choices_change_nothing(tmp_path, worker, act, words):
    session = opened(tmp_path, worker)
    before = (session.moment, session.model, session.sampling, session.plan, session.way)
    with pytest.raises(UsageError, match=words):
        act(session)
    assert (session.moment, session.model, session.sampling, session.plan, session.way) == before

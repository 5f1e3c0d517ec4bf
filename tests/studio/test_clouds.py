"""What is seen and in which colours; how far futures disagree."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.studio.clouds import (
    FULL_DISAGREEMENT_M,
    SIDE_M,
    Look,
    clock,
    clouds,
    colours,
    colours_key,
    labels,
    legend,
)
from copilot4d.studio.plan import Plan
from copilot4d.studio.run import disagreement_m
from copilot4d.studio.session import Session
from copilot4d.studio.worker import Worker
from tests.studio.scripted import Scripted, ToyLibrary, toy_dataset


@pytest.fixture
def session(tmp_path):
    worker = Worker(settle_s=0.0)
    made = Session(ToyLibrary(toy_dataset(tmp_path), Scripted()), worker, model="scripted")
    made.open("toy")
    made.choose_sampling(futures=3)
    made.ask()
    assert worker.wait_idle(60)
    yield made
    worker.close()


def test_disagreement_by_hand():
    a = np.array([[0.0, 0, 0], [10, 0, 0]], dtype=np.float32)
    b = np.array([[0.0, 1, 0]], dtype=np.float32)
    c = np.array([[0.0, 0, 3], [10, 0, 0]], dtype=np.float32)
    of_a, of_b, of_c = disagreement_m([a, b, c])
    np.testing.assert_allclose(of_a, [(1 + 3) / 2, (np.sqrt(101) + 0) / 2], rtol=1e-5)
    np.testing.assert_allclose(of_b, [(1 + np.sqrt(10)) / 2], rtol=1e-5)
    np.testing.assert_allclose(disagreement_m([a, b, c], only=2)[0], of_c)
    assert disagreement_m([a])[0].tolist() == [0, 0]
    empty = np.zeros((0, 3), dtype=np.float32)
    np.testing.assert_allclose(disagreement_m([a, empty, c])[0], [3, 0], rtol=1e-5)  # an empty future says nothing
    assert len(disagreement_m([empty, a])[0]) == 0


def test_each_time_shows_its_own_clouds(session):
    def seen(**look):
        return [(cloud.role, cloud.time) for cloud in clouds(session, Look(**look)) if cloud.visible]

    assert seen(time=0) == [("past", 0)]
    assert seen(time=-4) == [("past", -4)]
    assert seen(time=3) == [("truth", 3)] + [("future", 3)] * 3
    assert seen(time=3, only_future=1, truth=False) == [("future", 3)]
    assert len(seen(all_times=True)) == 5 + 5 + 3 * 5
    names = [cloud.name for cloud in clouds(session, Look())]
    assert len(set(names)) == len(names)


def test_labels_say_which_truth_belongs_to_which_plan(session):
    def told(**look):
        given = Look(**look)
        return {label.name: label for label in labels(session, given, clouds(session, given))}

    assert list(told(time=0)) == ["past"]
    assert told(time=3)["run_0"].text == "forecast: scripted, plan log"
    assert told(time=3)["truth"].text == "truth of this plan (the log)"
    assert told(time=3)["truth"].place_m[1] == 0.0
    assert told(time=3, side_by_side=True)["truth"].place_m[1] == SIDE_M
    assert "truth" not in told(time=3, truth=False)
    session.choose_plan(Plan(kind="brake"))
    session.ask()
    assert session.worker.wait_idle(60)
    assert told(time=3)["truth"].text == "truth of the LOG's way, not of this plan"
    assert told(time=3)["run_0"].text == "forecast: scripted, plan brake"


def test_the_clock_shows_seconds(session):
    moment = session.moment
    assert clock(moment, 0).startswith("0.0 s: now")
    assert clock(moment, 5) == f"+{moment.times_s[4]:.1f} s: future frame 5 of 5"
    assert clock(moment, -4) == f"{moment.past_times_s[0]:.1f} s: past"


def test_time_left_goes_by_the_frames_that_are_there(session, monkeypatch):
    run = session.run
    monkeypatch.setattr("copilot4d.studio.run.time.monotonic", lambda: run.began_s + 8.0)
    assert run.seconds_left() == 0.0  # all are there
    del run.frames[2:]
    assert run.seconds_left() == pytest.approx(12.0)  # 4 s each, 3 to come
    run.frames.clear()
    assert run.seconds_left() is None


def test_futures_are_placed_by_the_pose_that_they_were_imagined_at(session):
    session.choose_plan(Plan(kind="keep"))
    run = session.ask()
    assert session.worker.wait_idle(60)
    cloud = next(c for c in clouds(session, Look(time=5)) if c.role == "future" and c.time == 5)
    expected = run.frames[4][0].sweep.points + np.array([6.0, 0, 0])  # 6 m/s for 1 s, hardly turning
    points = cloud.points(session.moment)
    near = np.linalg.norm(run.frames[4][0].sweep.points, axis=1) < 10
    np.testing.assert_allclose(points[near], expected[near], atol=0.7)


def test_colours_by_height_time_and_disagreement(session):
    moment = session.moment
    found = clouds(session, Look(time=2))
    cloud = next(c for c in found if c.role == "future" and c.time == 2)
    points = cloud.points(moment)
    by_height = colours(cloud, moment, "height").astype(int)
    low, high = points[:, 2] < moment.ground_m + 0.1, points[:, 2] > moment.ground_m + 3.5
    assert (by_height[low][:, 2] > by_height[low][:, 0]).all(), "low is blue"
    assert (by_height[high][:, 0] > by_height[high][:, 2]).all(), "high is red"
    brightness = {
        c.time: colours(c, moment, "time").astype(int).sum(axis=1).mean() for c in found if c.role in ("past", "truth")
    }
    assert brightness[-4] < brightness[0] < brightness[5]
    apart = disagreement_m([r.points_in(moment.reference_from_world) for r in cloud.rivals], only=0)[0]
    by_disagreement = colours(cloud, moment, "disagreement").astype(int).sum(axis=1)
    order = np.argsort(apart)
    assert by_disagreement[order[0]] < by_disagreement[order[-1]]
    assert (np.diff(by_disagreement[order]) >= -6).all(), "the further apart, the brighter"
    assert apart.max() < 2 * FULL_DISAGREEMENT_M


def test_colours_are_sent_again_when_a_rival_arrives(session):
    before = next(c for c in clouds(session, Look(time=1)) if c.role == "future" and c.time == 1)
    session.keep()
    session.choose_plan(Plan(kind="brake"))
    session.ask()
    assert session.worker.wait_idle(60)
    after = next(c for c in clouds(session, Look(time=1)) if c.name == before.name)
    assert len(after.rivals) == 6
    assert colours_key(before, "disagreement") != colours_key(after, "disagreement")
    assert colours_key(before, "height") == colours_key(after, "height")


def test_one_future_is_told_to_have_nothing_to_disagree_with():
    assert "sample several" in legend("disagreement", 1)
    assert "2 m" in legend("disagreement", 2)

"""Windows of the studio, through viser's own sockets: widgets change the session, the session changes the scene."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.forecaster import Sampling as Stored
from copilot4d.geometry import se3
from copilot4d.studio.server import Studio, _connections, is_loopback
from copilot4d.studio.view import Start
from tests.studio.fake_browser import FakeBrowser, wait_for
from tests.studio.scripted import Scripted, ToyLibrary, toy_dataset
from tests.support.scenes import make_drive


@pytest.fixture
def studio(tmp_path):
    yield from _studio(tmp_path, Scripted())


@pytest.fixture
def gated(tmp_path):
    yield from _studio(tmp_path, Scripted(threading.Semaphore(0)))


def _studio(tmp_path, scripted, **start):
    drives = {
        "one": make_drive(30, name="one", rings=8, azimuths=60),
        "two": make_drive(16, name="two", rings=8, azimuths=60, speed=3.0),
        "bare": None,
    }
    begin = Start(data="toy", model="scripted", out=tmp_path / "out", **start)
    library = ToyLibrary(toy_dataset(tmp_path, **drives), scripted)
    made = Studio(begin, library, port=0, settle_s=0.0)
    made.scripted = scripted
    yield made
    if scripted.gate is not None:
        for _ in range(100):
            scripted.gate.release()
    made.close()


def is_done(window):
    run = window.view.session.run
    return run is not None and run.state == "done"


def drawn(window):
    """Wait until the drawer has nothing to do."""
    view = window.view

    def rests():
        if view._wake.is_set():
            return False
        with view.lock:
            return not view._wake.is_set()

    wait_for(rests)
    return view


def ready(window):
    """Wait for the first forecast, and until the window shows it: before that nobody can see what to change."""
    wait_for(lambda: is_done(window))
    drawn(window)


def test_a_window_opens_on_a_forecast_of_the_first_moment(studio):
    with FakeBrowser(studio) as window:
        ready(window)
        view = drawn(window)
        panel = view.panel
        assert (panel.drive.value, panel.frame.value, panel.setting.value) == ("one", 8, "1s")
        assert (panel.frame.min, panel.frame.max, panel.time.min, panel.time.max) == (0, 29, -0.8, 1.0)
        assert (panel.time.value, panel.time.step) == (1.0, 0.2), (
            "the time, in seconds, follows the frames as they arrive"
        )
        assert panel.speed.value == pytest.approx(6.0, abs=0.1)
        assert "5 frames" in panel.status.content
        names = set(view.scene._sent)
        assert "/clouds/truth/5" in names
        assert sum(name.startswith("/clouds/future/") for name in names) >= 1
        wait_for(lambda: window.received > 1000)


def test_a_slider_makes_a_new_forecast_on_another_way(studio):
    with FakeBrowser(studio) as window:
        ready(window)
        first = window.view.session.run
        window.set("steer", 20.0)
        wait_for(lambda: window.view.session.run is not first and is_done(window))
        view = drawn(window)
        assert view.session.plan.kind == "sliders"
        end = se3.relative_motion(view.session.moment.world_from_reference, view.session.run.poses[-1])
        assert end[1, 3] > 1.0, "left is positive"
        np.testing.assert_allclose(view.scene.waypoints_m()[-1], end[:2, 3], atol=2e-3)


def test_the_sliders_follow_the_sampling_that_a_model_stores(studio):
    studio.scripted.sampling = Stored(guidance=1.0, steps=10)
    studio.library.forecaster("copy_last").sampling = Stored(guidance=2.5, steps=4)
    with FakeBrowser(studio) as window:
        ready(window)
        window.set("model", "copy_last")
        wait_for(lambda: window.view.session.run.model == "copy_last" and is_done(window))
        panel = drawn(window).panel
        wait_for(lambda: (panel.guidance.value, panel.steps.value) == (2.5, 4))
        assert (window.view.session.run.sampling.guidance, window.view.session.run.sampling.steps) == (2.5, 4)
        window.set("steps", 6)
        wait_for(lambda: window.view.session.run.sampling.steps == 6 and is_done(window))
        window.set("model", "scripted")
        wait_for(lambda: window.view.session.run.model == "scripted" and is_done(window))
        drawn(window)
        assert (panel.guidance.value, panel.steps.value) == (1.0, 6)  # what the user has moved stays


def test_presets_set_the_sliders_and_setting_them_asks_only_once(studio):
    with FakeBrowser(studio) as window:
        ready(window)
        asked = studio.scripted.steps[:]
        window.set("preset", "brake")
        wait_for(lambda: window.view.session.plan.kind == "brake" and is_done(window))
        view = drawn(window)
        assert view.panel.brake.value == 5.0
        assert view.session.plan.kind == "brake", "sliders that the studio moves are not the user's hand"
        assert len(studio.scripted.steps) == len(asked) + 5


def test_waypoints_can_be_dragged(studio):
    with FakeBrowser(studio) as window:
        ready(window)
        drawn(window)
        before = window.view.scene.waypoints_m()
        window.drag(3, (6.0, 1.0), (6.5, 2.0))
        wait_for(lambda: window.view.session.plan.kind == "drawn" and is_done(window))
        wait_for(lambda: window.view.session.run.label == "drawn")
        session = drawn(window).session
        np.testing.assert_allclose(session.plan.waypoints_m[-1], [6.5, 2.0])
        np.testing.assert_allclose(session.plan.waypoints_m[:3], before[:3], atol=1e-6)
        end = se3.relative_motion(session.moment.world_from_reference, session.run.poses[-1])
        np.testing.assert_allclose(end[:2, 3], [6.5, 2.0], atol=1e-6)


def test_frames_appear_while_it_samples_and_cancel_stops_it(gated):
    scripted = gated.scripted
    with FakeBrowser(gated) as window:
        for k in range(2):
            assert scripted.arrived.acquire(timeout=60)
            scripted.gate.release()
            wait_for(lambda k=k: drawn(window).panel.time.value == pytest.approx(0.2 * (k + 1)))
        panel = window.view.panel
        assert not panel.cancel.disabled
        assert panel.progress.visible
        assert panel.progress.value == 40.0
        window.set("colour", "height")  # the window answers while the model works
        wait_for(lambda: drawn(window).look.colour == "height")
        window.click("cancel")
        wait_for(lambda: window.view.session.run.state == "cancelled")
        scripted.gate.release()
        assert gated.worker.wait_idle(60)
        view = drawn(window)
        assert len(view.session.run.frames) == 2
        assert "cancelled after 2 of 5 frames" in view.panel.status.content
        assert view.panel.cancel.disabled


def test_three_windows_have_their_own_sessions_and_a_closed_one_harms_nobody(gated):
    scripted = gated.scripted
    with FakeBrowser(gated) as first, FakeBrowser(gated) as second:
        with FakeBrowser(gated) as third:
            views = [window.view for window in (first, second, third)]
            assert len({id(view.session) for view in views}) == 3
            second.set("drive", "two")
            wait_for(lambda: views[1].session.moment.drive.name == "two")
            assert views[0].session.moment.drive.name == "one"
            assert scripted.arrived.acquire(timeout=60)  # somebody's forecast is under way
        wait_for(lambda: len(gated.views) == 2)
        for _ in range(40):
            scripted.gate.release()
        wait_for(lambda: is_done(first) and is_done(second))
        wait_for(lambda: views[2].is_closed)
        wait_for(lambda: not views[2]._drawer.is_alive())
        assert first.view.session.run.frames
    wait_for(lambda: not gated.views)


def test_what_cannot_be_is_told_in_the_window_and_undone_in_its_widgets(studio):
    with FakeBrowser(studio) as window:
        ready(window)
        window.set("drive", "bare")
        wait_for(lambda: "poses" in drawn(window).panel.status.content)
        assert window.view.panel.drive.value == "one"
        assert "To fix it" in window.view.panel.status.content
        window.set("data", "no/such/folder")
        window.click("open")
        wait_for(lambda: "nothing there" in drawn(window).panel.status.content)
        assert window.view.session.moment.drive.name == "one"
        window.set("frame", 2)
        wait_for(lambda: "Only 2 of 5 past sweeps" in drawn(window).panel.status.content)
        window.click("imagine")
        ready(window)


def test_words_from_files_are_shown_as_words(studio):
    with FakeBrowser(studio) as window:
        ready(window)
        window.set("data", "<img src=x onerror=alert(1)>")
        window.click("open")
        wait_for(lambda: "&lt;img" in drawn(window).panel.status.content)
        assert "<img" not in window.view.panel.status.content


def test_kept_futures_stay_beside_new_ones_and_disagree(studio):
    with FakeBrowser(studio) as window:
        ready(window)
        window.click("keep")
        wait_for(lambda: window.view.session.kept)
        window.set("preset", "brake")
        wait_for(lambda: len(window.view.session.runs()) == 2 and is_done(window))
        view = drawn(window)
        assert {"/ways/plan", "/ways/run_0", "/ways/run_1"} == set(view.scene._ways)
        window.set("colour", "disagreement")
        wait_for(lambda: drawn(window).look.colour == "disagreement")
        visible = [name for name, sent in view.scene._sent.items() if sent.handle.visible and "/future/" in name]
        assert len(visible) == 2
        window.click("drop")
        wait_for(lambda: len(drawn(window).session.runs()) == 1)
        assert set(view.scene._ways) == {"/ways/plan"}


def test_layers_times_and_nodes(studio):
    with FakeBrowser(studio) as window:
        ready(window)

        def visible():
            sent = drawn(window).scene._sent
            return sorted(name.split("/")[2] for name, node in sent.items() if node.handle.visible)

        wait_for(lambda: visible() == ["future", "truth"])
        window.set("time", -0.4)
        wait_for(lambda: visible() == ["past"])
        window.set("all_times", True)
        wait_for(lambda: visible() == ["future"] * 5 + ["past"] * 5 + ["truth"] * 5)
        window.set("truth", False)
        wait_for(lambda: visible() == ["future"] * 5 + ["past"] * 5)
        window.set("frame", 9)
        wait_for(lambda: window.view.session.moment.frame == 9 and is_done(window))
        drawn(window)
        assert window.view.scene.node_count() <= 15, "another moment's clouds are gone"


def test_play_moves_through_time(studio):
    with FakeBrowser(studio) as window:
        ready(window)
        seen = set()
        window.set("play", True)

        def moves():
            seen.add(window.view.panel.time.value)
            return len(seen) >= 3

        wait_for(moves)
        window.set("play", False)


def test_many_quick_moves_of_a_slider_end_at_its_last_value(studio):
    with FakeBrowser(studio) as window:
        ready(window)
        for value in np.linspace(0, 12, 60):
            window.set("speed", float(value))
        wait_for(lambda: window.view.session.plan.controls.speed_m_s == 12.0 and is_done(window))
        assert drawn(window).session.run.poses.shape == (5, 4, 4)


def test_drawing_never_takes_a_slider_out_of_the_hand(studio):
    """The browser is ahead of the session: a drawing between the two must not write the older value back."""
    with FakeBrowser(studio) as window:
        ready(window)
        view = drawn(window)
        for widget, value in (
            ("speed", 3.0),
            ("speed", 5.5),
            ("frame", 11),
            ("time", 0.4),
            ("steps", 7),
            ("model", "copy_last"),
        ):
            handle = getattr(view.panel, widget)
            with view.lock:
                handle._impl.value = value  # what viser's loop does before the callback has its turn
                view.draw()
                assert handle.value == value
            window.set(widget, type(value)() if not isinstance(value, str) else "ray_tracing")
            window.set(widget, value)
            window.set("point_size", sent := view.panel.point_size.value + 0.01)  # messages come in order: all are here
            wait_for(lambda sent=sent: view.panel.point_size.value == sent)
            drawn(window)
            wait_for(lambda handle=handle, value=value: handle.value == value)


def test_a_drawing_that_fails_is_told_and_the_next_one_works(studio, monkeypatch):
    with FakeBrowser(studio) as window:
        ready(window)
        view = window.view
        broken = view.scene.show_ego
        monkeypatch.setattr(view.scene, "show_ego", lambda *_: 1 / 0)
        window.set("colour", "height")
        wait_for(lambda: "ZeroDivisionError" in view._trouble)
        monkeypatch.setattr(view.scene, "show_ego", broken)
        window.set("preset", "brake")
        wait_for(lambda: view.session.plan.kind == "brake" and is_done(window))
        wait_for(lambda: "brake: 5 frames" in drawn(window).panel.status.content)


def test_a_viser_that_hides_where_scripts_come_from_is_refused():
    with pytest.raises(UsageError, match=r"viser 1\.1|viser==1\.1"):
        _connections(SimpleNamespace(_websock_server=SimpleNamespace()))


def test_other_sites_get_nothing(studio):
    with FakeBrowser(studio, origin="https://elsewhere.example"):
        time.sleep(0.3)
        assert not studio.views
    with FakeBrowser(studio, origin=studio.url) as window:
        assert window.view is not None


def test_a_studio_for_others_opens_no_other_folders(tmp_path):
    for made in _studio(tmp_path, Scripted(), may_open=False):
        with FakeBrowser(made) as window:
            ready(window)
            window.set("data", str(tmp_path))
            window.click("open")
            wait_for(lambda: "started with" in drawn(window).panel.status.content)


def test_no_tunnel_is_ever_opened(studio):
    assert studio.server.request_share_url() is None


def test_only_this_machine_by_default():
    assert [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "192.168.0.4", "example")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip

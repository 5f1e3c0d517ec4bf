"""`copilot4d demo` in a browser: the page opens from disk, asks nobody for anything, and its clouds can be handled."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from copilot4d.cli.main import main
from copilot4d.datasets.folder_writer import write_folder
from tests.support.scenes import make_drive

pytestmark = pytest.mark.browser

VIEWER = "document.querySelector('.viewer')"


@pytest.fixture(scope="module")
def demo(browser, tmp_path_factory):
    """The demo on a simulated street, moved to another place: the page must not depend on where it was made."""
    made = tmp_path_factory.mktemp("made") / "demo"
    assert main(["demo", "--out", str(made), "--frame", "80"]) == 0
    moved = tmp_path_factory.mktemp("moved") / "a demo"
    shutil.move(made, moved)
    return moved


@pytest.fixture
def page(browser, demo):
    opened = ready(browser.open((demo / "index.html").as_uri()))
    yield opened
    assert opened.errors == []
    assert all(request.startswith(("file:", "data:", "blob:")) for request in opened.requests), opened.requests
    assert len([request for request in opened.requests if request.startswith("file:")]) == 1, opened.requests
    opened.close()


def ready(opened):
    opened.wait_for(f"{VIEWER}.dataset.state === 'ready' && Number({VIEWER}.dataset.drawn) > 0", 120)
    opened.middle_of(".viewer-stage")  # scrolls there
    settled(opened)
    return opened


def settled(page) -> None:
    """Everything that was asked for has been drawn and shown."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")


def pane(page, name: str) -> np.ndarray:
    """(H, W, 3) what one pane shows."""
    settled(page)
    x, y, width, height = page.evaluate(
        f"(() => {{ const r = document.querySelector('[data-pane=\"{name}\"]').getBoundingClientRect();"
        " return [r.x, r.y, r.width, r.height].map(Math.round); })()"
    )
    return page.screenshot()[y : y + height, x : x + width].astype(int)


def coloured(image: np.ndarray) -> int:
    """How many pixels are neither background nor grey words and lines."""
    return int((image.max(axis=-1) - image.min(axis=-1) > 60).sum())


def changed(before: np.ndarray, after: np.ndarray) -> float:
    """The share of pixels that differ."""
    return float((np.abs(before - after).max(axis=-1) > 24).mean())


def choose(page, name: str, value: str) -> None:
    page.evaluate(
        f"(() => {{ const s = document.querySelector('.viewer select[name={name}]'); s.value = '{value}';"
        " s.dispatchEvent(new Event('change')); return s.value; })()"
    )


def test_points_are_drawn_in_every_view_of_every_plan(page):
    for view in ("truth", "forecast", "difference"):
        for plan in ("keep", "brake", "swerve"):
            assert coloured(pane(page, f"{view} {plan}")) > 1500, f"{view} {plan} is empty"


def test_plans_and_views_show_different_clouds(page):
    assert changed(pane(page, "truth keep"), pane(page, "truth brake")) > 0.03
    assert changed(pane(page, "truth keep"), pane(page, "truth swerve")) > 0.03
    assert changed(pane(page, "truth keep"), pane(page, "forecast keep")) > 0.03


def test_dragging_orbits_all_panes_together_or_one_alone(page):
    before = {name: pane(page, name) for name in ("truth keep", "forecast brake")}
    x, y = page.middle_of('[data-pane="truth keep"]')
    page.drag(x, y, x + 90, y + 15)
    after = {name: pane(page, name) for name in before}
    assert all(changed(before[name], after[name]) > 0.05 for name in before)
    page.click_on("input[name=linked]")
    x, y = page.middle_of('[data-pane="truth keep"]')
    page.drag(x, y, x - 90, y)
    assert changed(after["truth keep"], pane(page, "truth keep")) > 0.05
    assert changed(after["forecast brake"], pane(page, "forecast brake")) < 0.001


def test_shift_pans_the_wheel_zooms_and_a_double_click_returns(page):
    start = page.evaluate(f"({{...{VIEWER}.viewer.cameras.get('truth 0')}})")
    x, y = page.middle_of('[data-pane="truth keep"]')
    page.drag(x, y, x + 40, y, button="right")
    panned = page.evaluate(f"({{...{VIEWER}.viewer.cameras.get('truth 0')}})")
    assert panned["yaw"] == start["yaw"]
    assert panned["y"] > start["y"] + 1, "what is under the pointer goes right with it: the target goes left, +y"
    assert abs(panned["x"] - start["x"]) < 1e-6
    page.wheel(x, y, -200)
    page.wait_for(f"{VIEWER}.viewer.cameras.get('truth 0').distance < {start['distance']} - 3")
    pane_element = "document.querySelector('[data-pane=\"truth keep\"]')"
    page.evaluate(f"{pane_element}.dispatchEvent(new MouseEvent('dblclick', {{bubbles: true}}))")
    assert page.evaluate(f"({{...{VIEWER}.viewer.cameras.get('truth 0')}})") == start


def test_fingers_orbit_and_pinch(page):
    start = page.evaluate(f"({{...{VIEWER}.viewer.cameras.get('truth 0')}})")
    x, y = page.middle_of('[data-pane="truth keep"]')
    page.touch([(x, y)], [(x + 30, y)], [(x + 60, y)])
    turned = page.evaluate(f"({{...{VIEWER}.viewer.cameras.get('truth 0')}})")
    assert turned["yaw"] != start["yaw"]
    assert turned["distance"] == start["distance"]
    page.touch([(x - 20, y), (x + 20, y)], [(x - 40, y), (x + 40, y)], [(x - 60, y), (x + 60, y)])
    assert page.evaluate(f"{VIEWER}.viewer.cameras.get('truth 0').distance") < 0.6 * start["distance"]


def test_the_slider_moves_time_by_keyboard_and_the_words_follow(page):
    last = pane(page, "truth keep")
    assert page.evaluate("document.querySelector('.viewer-clock').textContent") == "+3.0 s (future)"
    page.evaluate("document.querySelector('.viewer-slider').focus()")
    page.press("ArrowLeft")
    assert page.evaluate("document.querySelector('.viewer-clock').textContent") == "+2.4 s (future)"
    assert changed(last, pane(page, "truth keep")) > 0.02
    page.press("Home")
    assert "−2.4 s (past" in page.evaluate("document.querySelector('.viewer-clock').textContent")
    # before the moment there is one past, whatever the plan and the view
    assert changed(pane(page, "truth keep")[40:], pane(page, "forecast brake")[40:]) < 0.02
    choose(page, "horizon", "0")
    assert page.evaluate("document.querySelector('.viewer-clock').textContent") == "+1.0 s (future)"


def test_play_runs_to_the_end_and_stops(page):
    choose(page, "horizon", "0")
    page.click_on(".viewer-play")
    page.wait_for(f"{VIEWER}.viewer.state.playing && {VIEWER}.viewer.state.frame < 9")
    page.wait_for(f"!{VIEWER}.viewer.state.playing && {VIEWER}.viewer.state.frame === 9", 60)
    assert "Play" in page.evaluate("document.querySelector('.viewer-play').textContent")


def test_colours_models_cameras_and_views_change_the_picture(page):
    seen = pane(page, "forecast keep")
    for name, value in (("colour", "error"), ("colour", "distance"), ("model", "copy_last"), ("camera", "rides")):
        choose(page, name, value)
        now = pane(page, "forecast keep")
        assert changed(seen, now) > 0.02, (name, value)
        seen = now
    assert page.evaluate("document.querySelectorAll('.viewer-pane').length") == 9
    page.click_on("input[name=truth]")
    assert page.evaluate("document.querySelectorAll('.viewer-pane').length") == 6


def test_an_error_is_a_colour_of_the_legend(page):
    """A forecast point that is right has the first colour, one that is 2 m off or more the last."""
    choose(page, "model", "copy_last")  # it leaves what moves behind; a good model may have no point that far off
    choose(page, "colour", "error")
    image = pane(page, "forecast keep").reshape(-1, 3)
    low, high = np.array([13, 8, 135]), np.array([240, 249, 33])  # the ends of the colour map
    assert (np.abs(image - high).max(axis=1) < 6).sum() > 50
    assert (np.abs(image - low).max(axis=1) < 40).sum() > 50
    assert "2 m or more" in page.evaluate("document.querySelector('.viewer-legend').textContent")


def test_dark_and_light(page):
    page.prefer("dark")
    dark = page.screenshot()[:, :10].mean()
    page.prefer("light")
    light = page.screenshot()[:, :10].mean()
    assert dark < 60
    assert light > 200
    page.click_on(".theme-button")
    settled(page)
    assert page.screenshot()[:, :10].mean() < 60


def test_it_is_readable_on_a_small_screen(page):
    for width in (1024, 420):
        page.resize(width, 700)
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert coloured(pane(page, "truth keep")) > 300


def test_without_webgl_or_with_an_old_browser_it_says_so(browser, demo):
    address = (demo / "index.html").as_uri()
    for broken, words in (
        ("HTMLCanvasElement.prototype.getContext = () => null;", "no WebGL"),
        ("delete window.DecompressionStream;", "too old"),
    ):
        page = browser.open(address, before=broken)
        page.wait_for(f"{VIEWER}.dataset.state === 'failed'", 60)
        assert words in page.evaluate(f"{VIEWER}.textContent")
        assert page.evaluate("document.querySelector('img').naturalWidth") > 300  # the film below is still there
        assert page.errors == []
        page.close()


def test_a_lost_graphics_card_comes_back(page):
    before = pane(page, "truth keep")
    lose = f"window.card = {VIEWER}.viewer.pen.gl.getExtension('WEBGL_lose_context')"
    page.evaluate(f"{lose}; window.card.loseContext(); true")
    page.wait_for(f"{VIEWER}.viewer.pen.gl.isContextLost()")
    page.evaluate("new Promise((done) => setTimeout(done, 100)).then(() => window.card.restoreContext())")
    page.wait_for(f"!{VIEWER}.viewer.pen.gl.isContextLost()")
    page.evaluate("new Promise((done) => setTimeout(done, 200))")
    assert changed(before, pane(page, "truth keep")) < 0.01


def test_an_own_log_has_no_panes_for_a_truth_that_does_not_exist(browser, tmp_path):
    log = write_folder(make_drive(24, rings=16, azimuths=200, name="own"), tmp_path / "log")
    assert main(["demo", "--data", str(log), "--out", str(tmp_path / "demo")]) == 0
    page = ready(browser.open((tmp_path / "demo" / "index.html").as_uri()))
    page.prefer("dark")
    assert coloured(pane(page, "truth keep")) > 300
    assert coloured(pane(page, "forecast swerve")) > 300
    note = "document.querySelector('[data-pane=\"{}\"] .viewer-note').textContent"
    panes = page.evaluate("[...document.querySelectorAll('[data-pane]')].map((pane) => pane.dataset.pane).join()")
    assert sorted(panes.split(",")) == sorted(
        ["truth keep", "difference keep", "forecast keep", "forecast brake", "forecast swerve"]
    )
    assert page.evaluate(note.format("forecast brake")) == ""
    assert page.errors == []
    page.close()

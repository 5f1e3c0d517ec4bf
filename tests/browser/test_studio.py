"""`copilot4d view` in a browser: nothing is asked of another host, clouds are drawn, sliders and buttons work."""

from __future__ import annotations

import base64
import json
import threading
from io import BytesIO
from urllib.parse import urlsplit

import imageio_ffmpeg
import numpy as np
import PIL.Image
import pytest

from copilot4d.studio.server import Studio
from copilot4d.studio.view import Start
from tests.studio.fake_browser import wait_for
from tests.studio.scripted import Scripted, ToyLibrary, toy_dataset
from tests.support.scenes import make_drive

pytestmark = pytest.mark.browser

ENOUGH = 10_000  # steps that the scripted model may take without being let through one by one
SLOW_S = 180.0  # software rendering on a busy machine; only a broken page needs it
SCENE = (slice(120, 560), slice(20, 480))  # rows and columns of the window that no widget covers


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    root = tmp_path_factory.mktemp("studio")
    scripted = Scripted(threading.Semaphore(ENOUGH))
    drive = make_drive(30, name="one", rings=24, azimuths=180)
    library = ToyLibrary(toy_dataset(root, one=drive), scripted)
    made = Studio(Start(data="toy", model="scripted", out=root / "out"), library, port=0)
    made.scripted = scripted
    yield made
    scripted.gate.release(ENOUGH)
    made.close()


@pytest.fixture(scope="module")
def page(browser, studio):
    """One window for all tests: software rendering takes its time to begin."""
    opened = browser.open("about:blank", timeout_s=SLOW_S)
    opened.resize(900, 640)
    watch_workers(opened)
    opened.load(studio.url, timeout_s=SLOW_S)
    wait_for(lambda: state(studio) == "done", SLOW_S)
    yield opened
    assert opened.errors == []
    hosts = {urlsplit(url).netloc for url in opened.requests if not url.startswith(("data:", "blob:", "about:"))}
    assert hosts == {urlsplit(studio.url).netloc}, opened.requests
    assert sum(url.startswith("ws://") for url in opened.requests) == 1
    opened.close()
    wait_for(lambda: not studio.views, SLOW_S)


def watch_workers(page) -> None:
    """What a page's workers ask for and complain about counts as the page's own: viser's socket lives in a worker."""
    connection, on_event = page._connection, page._on_event

    def begin(session: str) -> None:
        for command in ("Network.enable", "Runtime.enable", "Runtime.runIfWaitingForDebugger"):
            connection.call(command, {}, session, timeout_s=SLOW_S)

    def heard(method: str, event: dict) -> None:
        if method == "Target.attachedToTarget":  # in the reading thread, which must not wait for answers
            connection.listen(event["sessionId"], on_event)
            threading.Thread(target=begin, args=(event["sessionId"],), daemon=True).start()
        on_event(method, event)

    connection.listen(page._session, heard)
    page.call("Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True})


def view_of(studio):
    wait_for(lambda: studio.views, SLOW_S)
    return next(iter(studio.views.values()))


def state(studio) -> str:
    run = view_of(studio).session.run
    return "none" if run is None else run.state


def scene(page) -> np.ndarray:
    """What the window shows of the scene, once it has drawn."""
    drawn = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
    page.evaluate(drawn, timeout_s=SLOW_S)
    png = page.call("Page.captureScreenshot", {"format": "png"}, timeout_s=SLOW_S)["data"]
    return np.asarray(PIL.Image.open(BytesIO(base64.b64decode(png))).convert("RGB"))[SCENE].astype(int)


def until_scene(page, holds) -> np.ndarray:
    """The first picture of the scene of which it holds."""
    seen = [scene(page)]

    def looked():
        seen.append(scene(page))
        return holds(seen[-1])

    if not holds(seen[0]):
        wait_for(looked, SLOW_S)
    return seen[-1]


def coloured(seen: np.ndarray) -> int:
    """How many pixels are far from the dark background's grey."""
    return int(((seen.max(axis=2) - seen.min(axis=2)) > 40).sum())


def changed(before: np.ndarray, after: np.ndarray) -> float:
    return float((np.abs(after - before).max(axis=2) > 25).mean())


WIDGET = """
(() => {{
  const label = [...document.querySelectorAll('label, div, span, legend')]
    .find((e) => e.childElementCount === 0 && e.textContent.trim() === {label});
  for (let e = label; e; e = e.parentElement) {{
    const found = e.querySelector({selector});
    if (found) {{ found.scrollIntoView({{block: 'center'}}); found.focus(); return true; }}
  }}
  return false;
}})()
"""

OPEN_FOLDER = """
[...document.querySelectorAll('*')]
  .filter((e) => e.childElementCount <= 1 && e.textContent.trim() === {label}).forEach((e) => e.click())
"""


def move_slider(page, label: str, key: str, times: int) -> None:
    assert page.evaluate(WIDGET.format(label=json.dumps(label), selector=json.dumps("[role=slider]")))
    for _ in range(times):
        page.press(key)


def click_button(page, label: str) -> None:
    found = (
        f"(() => {{ const b = [...document.querySelectorAll('button')].find((e) => e.textContent.trim() === "
        f"{json.dumps(label)} && !e.disabled); if (!b) return false; b.click(); return true; }})()"
    )
    page.wait_for(found, SLOW_S)


def test_clouds_are_drawn_and_orbiting_moves_them(page, studio):
    before = until_scene(page, lambda seen: coloured(seen) > 300)
    page.drag(240, 300, 380, 330)
    after = until_scene(page, lambda seen: changed(before, seen) > 0.02)
    assert coloured(after) > 300


def test_a_slider_in_the_browser_makes_a_new_forecast_appear(page, studio):
    before = until_scene(page, lambda seen: coloured(seen) > 300)
    first = view_of(studio).session.run
    move_slider(page, "steer deg", "ArrowRight", 60)
    wait_for(lambda: view_of(studio).session.run is not first and state(studio) == "done", SLOW_S)
    assert view_of(studio).session.run.label == "sliders"
    assert view_of(studio).session.plan.controls.steer_deg > 1.0
    until_scene(page, lambda seen: changed(before, seen) > 0.005)
    page.wait_for("document.body.textContent.includes('sliders: 5 frames')", SLOW_S)


def test_cancelling_in_the_browser_stops_the_model(page, studio):
    for semaphore in (studio.scripted.gate, studio.scripted.arrived):
        while semaphore.acquire(blocking=False):
            pass
    click_button(page, "Imagine")
    assert studio.scripted.arrived.acquire(timeout=SLOW_S)
    studio.scripted.gate.release()
    page.wait_for("document.body.textContent.includes('1 of 5 frames')", SLOW_S)
    click_button(page, "Cancel")
    wait_for(lambda: state(studio) == "cancelled", SLOW_S)
    studio.scripted.gate.release(ENOUGH)
    assert studio.worker.wait_idle(SLOW_S)
    assert len(view_of(studio).session.run.frames) == 1
    page.wait_for("document.body.textContent.includes('cancelled after 1 of 5 frames')", SLOW_S)


def test_what_is_seen_is_filmed_by_the_browser(page, studio):
    view = view_of(studio)
    page.evaluate(OPEN_FOLDER.format(label=json.dumps("Save what is seen")))
    click_button(page, "MP4")
    wait_for(lambda: view._saved, SLOW_S)
    [path] = view._saved
    reader = imageio_ffmpeg.read_frames(path)
    width, height = next(reader)["size"]
    assert width == pytest.approx(900, abs=2), "the browser's own picture, not views from above"
    frames = [np.frombuffer(frame, dtype=np.uint8).reshape(height, width, 3).astype(int) for frame in reader]
    assert len(frames) == 10
    assert changed(frames[0], frames[-1]) > 0.005
    page.wait_for("document.body.textContent.includes('.mp4')", SLOW_S)

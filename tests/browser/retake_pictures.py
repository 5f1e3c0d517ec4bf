"""Takes the browser pictures of docs/images again, after the shipped model or a page has changed.

copilot4d demo --out demo
python -m tests.browser.retake_pictures demo docs/images
"""

from __future__ import annotations

import base64
import sys
import tempfile
from io import BytesIO
from pathlib import Path

import PIL.Image

from copilot4d.baselines import BASELINES
from copilot4d.studio.library import Library
from copilot4d.studio.run import Sampling
from copilot4d.studio.server import serving
from copilot4d.studio.view import Start
from tests.browser.test_demo import VIEWER, choose, settled
from tests.browser.test_studio import click_button
from tests.studio.fake_browser import wait_for
from tests.support.chromium import BrowserPage, Chromium

PATIENCE_S = 3600.0  # a busy machine without a graphics card
FRAME = 80  # the demo's own moment
VIEWER_AT_TOP = f"{VIEWER}.scrollIntoView({{block: 'start'}}); window.scrollBy(0, -12)"


# viser remarks that there is no graphics card.
CLOSE_REMARK = "document.querySelectorAll('[class*=Notification] button').forEach((button) => button.click())"


def save(page: BrowserPage, path: Path) -> None:
    """What the window shows, with few colours: a tenth of the size, and no difference to the eye."""
    png = page.call("Page.captureScreenshot", {"format": "png"}, timeout_s=PATIENCE_S)["data"]
    image = PIL.Image.open(BytesIO(base64.b64decode(png))).convert("RGB")
    image.quantize(192, dither=PIL.Image.Dither.NONE).save(path, optimize=True)
    print(path, flush=True)


def demo_pictures(browser: Chromium, demo: Path, out: Path) -> None:
    """The demo's page: dark as it opens, and light from above by error."""
    page = browser.open("about:blank", timeout_s=PATIENCE_S)
    page.resize(1280, 840)
    page.prefer("dark")
    page.load((demo / "index.html").resolve().as_uri(), timeout_s=PATIENCE_S)
    page.wait_for(f"{VIEWER}.dataset.state === 'ready' && Number({VIEWER}.dataset.drawn) > 0", PATIENCE_S)
    page.evaluate(VIEWER_AT_TOP)
    settled(page)
    save(page, out / "demo_page.png")
    page.prefer("light")
    choose(page, "colour", "error")
    page.drag(250, 130, 250, 260)
    page.evaluate(VIEWER_AT_TOP)
    settled(page)
    save(page, out / "demo_light.png")
    page.close()


def studio_pictures(browser: Chromium, demo: Path, out: Path) -> None:
    """The studio at the same moment: two plans in one scene, and where three futures of a plan disagree."""
    library = Library(models=("mini", *BASELINES))
    library.forecaster("mini")
    with tempfile.TemporaryDirectory() as saved:
        start = Start(
            data=str(demo / "drive"), model="mini", out=Path(saved), drive="test_007", frame=FRAME,
            sampling=Sampling(futures=3),
        )  # fmt: skip
        with serving(start, library, port=0) as studio:
            page = browser.open("about:blank", timeout_s=PATIENCE_S)
            page.resize(1280, 760)
            page.load(studio.url, timeout_s=PATIENCE_S)
            wait_for(lambda: studio.views, PATIENCE_S)
            [view] = studio.views.values()
            page.evaluate(CLOSE_REMARK)

            def imagined(plan: str) -> None:
                click_button(page, plan)
                wait_for(lambda: view.session.run.label == plan and view.session.run.state == "done", PATIENCE_S)

            wait_for(lambda: view.session.run is not None and view.session.run.state == "done", PATIENCE_S)
            imagined("swerve")
            view.panel.past.value = view.panel.truth.value = False
            view.panel.colour.value = "disagreement"
            drawn(page, view)
            save(page, out / "studio_disagreement.png")
            click_button(page, "Keep to compare")
            imagined("brake")
            view.panel.past.value, view.panel.truth.value = False, True
            view.panel.colour.value, view.panel.only.value = "layer", "1"
            drawn(page, view)
            save(page, out / "studio.png")
            page.close()


def drawn(page: BrowserPage, view) -> None:
    """Everything has reached the window: the drawer rests, and the browser has drawn twice since."""
    view._wake.set()
    wait_for(lambda: not view._wake.is_set(), PATIENCE_S)
    with view.lock:
        view.client.flush()
    page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(() => done(true)), 5000))")


if __name__ == "__main__":
    demo_folder, out_folder = Path(sys.argv[1]), Path(sys.argv[2])
    with Chromium() as running:
        demo_pictures(running, demo_folder, out_folder)
        studio_pictures(running, demo_folder, out_folder)

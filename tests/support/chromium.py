"""A headless Chromium for tests, driven over its DevTools protocol: one process, one socket, any number of pages.

    with Chromium() as browser:
        page = browser.open("file:///.../index.html")
        page.wait_for("document.querySelector('canvas') !== null")
        page.drag(200, 300, 320, 300)
        pixels = page.screenshot()          # (H, W, 3) uint8
        assert page.errors == []            # console errors, uncaught exceptions, refused or failed loads
        assert page.requests == [...]       # every address that the page asked for, web sockets included

WebGL runs on the processor (SwiftShader): no graphics card is needed. Coordinates are CSS pixels of the window.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from websockets.exceptions import ConnectionClosed

from tests.support.devtools import START_TIMEOUT_S, Connection

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = "no Chromium here: install it (Debian: apt-get install chromium), or name one in COPILOT4D_CHROMIUM"
FLAGS = (
    "--headless=new", "--remote-debugging-port=0", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
    "--force-device-scale-factor=1", "--hide-scrollbars", "--mute-audio", "--no-first-run",
    "--no-default-browser-check", "--disable-background-networking", "--disable-component-update",
    "--disable-default-apps", "--disable-domain-reliability", "--disable-extensions",
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider", "--disable-sync",
    "--disable-dev-shm-usage", "--metrics-recording-only", "--password-store=basic",
)  # fmt: skip
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "Tab": 9, "Enter": 13}


def find_chromium() -> str | None:
    """Where the browser is, or None: tests then skip with `MISSING` as their reason."""
    given = os.environ.get("COPILOT4D_CHROMIUM")
    return given or next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """The browser's process. `with Chromium() as browser: page = browser.open(url)`; leaving the block ends it."""

    def __init__(self, width: int = 1280, height: int = 800, *, flags: tuple[str, ...] = ()) -> None:
        self.width, self.height = width, height
        self._extra = flags

    def __enter__(self) -> Chromium:
        executable = find_chromium()
        if executable is None:
            raise FileNotFoundError(MISSING)
        self._profile = tempfile.TemporaryDirectory(prefix="copilot4d-chromium-", ignore_cleanup_errors=True)
        self._log = Path(self._profile.name) / "stderr.txt"
        command = [executable, *FLAGS, *self._extra, f"--user-data-dir={self._profile.name}"]
        command += [f"--window-size={self.width},{self.height}"]
        command += ["--no-sandbox"] if os.geteuid() == 0 else []  # its sandbox refuses to run as root
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "about:blank"], stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
            )
        try:
            self._connection = Connection(self._address())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ConnectionClosed, TimeoutError, RuntimeError):
            self._connection.call("Browser.close", {}, timeout_s=5)
        self._connection.close()
        self._end()

    def open(self, url: str, *, timeout_s: float = 60.0, before: str = "") -> BrowserPage:
        """A new page, loaded to its end. `before`: script that runs before any of the page's own."""
        target = self._connection.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self._connection.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = BrowserPage(self._connection, target, session, self.width, self.height)
        if before:
            page.call("Page.addScriptToEvaluateOnNewDocument", {"source": before})
        page.load(url, timeout_s=timeout_s)
        return page

    def _address(self) -> str:
        """The socket's address: the browser writes it into its profile once it listens."""
        file = Path(self._profile.name) / "DevToolsActivePort"
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end and self._process.poll() is None:
            with contextlib.suppress(FileNotFoundError, ValueError):
                port, path = file.read_text().split()
                return f"ws://127.0.0.1:{port}{path}"
            time.sleep(0.1)
        raise RuntimeError(f"Chromium did not start: {self._log.read_text(errors='replace')[-1500:]}")

    def _end(self) -> None:
        """End the process group that __enter__ started, and remove its profile."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self._profile.cleanup()


class BrowserPage:
    """One page: what it asked for and complained about, what it shows, and hands to use it with."""

    def __init__(self, connection: Connection, target: str, session: str, width: int, height: int) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._connection, self._target, self._session = connection, target, session
        self._loaded = threading.Event()
        connection.listen(session, self._on_event)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def call(self, method: str, parameters: dict[str, Any] | None = None, *, timeout_s: float = 60.0) -> dict[str, Any]:
        """Any command of the DevTools protocol, for this page."""
        return self._connection.call(method, parameters or {}, self._session, timeout_s=timeout_s)

    def load(self, url: str, *, timeout_s: float = 60.0) -> None:
        """Go to an address and wait for its load event."""
        self._loaded.clear()
        failed = self.call("Page.navigate", {"url": url}, timeout_s=timeout_s).get("errorText")
        if failed:
            raise RuntimeError(f"{url} did not load: {failed}")
        if not self._loaded.wait(timeout_s):
            raise TimeoutError(f"{url} did not finish loading within {timeout_s} s")

    def evaluate(self, script: str, *, timeout_s: float = 60.0) -> Any:
        """The value of a JavaScript expression (a promise is awaited), as JSON; RuntimeError where it throws."""
        answer = self.call(
            "Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True},
            timeout_s=timeout_s,
        )  # fmt: skip
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {_exception(answer['exceptionDetails'])}")
        return answer["result"].get("value")

    def wait_for(self, condition: str, timeout_s: float = 30.0) -> None:
        """Until a JavaScript expression is true; TimeoutError, with its last value, where it never is."""
        end, value = time.monotonic() + timeout_s, None
        while time.monotonic() < end:
            value = self.evaluate(condition)
            if value:
                return
            time.sleep(0.1)
        raise TimeoutError(f"{condition} did not hold within {timeout_s} s; it is {value!r}; errors: {self.errors}")

    def screenshot(self) -> np.ndarray:
        """(H, W, 3) uint8: what the window shows."""
        png = self.call("Page.captureScreenshot", {"format": "png"})["data"]
        return np.asarray(PIL.Image.open(BytesIO(base64.b64decode(png))).convert("RGB"))

    def resize(self, width: int, height: int) -> None:
        """Give the window another size, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, scheme: str) -> None:
        """What the user's desktop prefers: "dark" or "light"."""
        self.call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def drag(self, x0: float, y0: float, x1: float, y1: float, *, button: str = "left", steps: int = 8) -> None:
        """Press the mouse at one place, move it to another, release it."""
        self._mouse("mouseMoved", x0, y0, "none", 0)
        self._mouse("mousePressed", x0, y0, button, 1)
        for k in range(1, steps + 1):
            self._mouse("mouseMoved", x0 + (x1 - x0) * k / steps, y0 + (y1 - y0) * k / steps, button, 1)
        self._mouse("mouseReleased", x1, y1, button, 0)

    def click(self, x: float, y: float) -> None:
        """Press and release the mouse."""
        self.drag(x, y, x, y, steps=1)

    def click_on(self, selector: str) -> None:
        """Click on the middle of the first element that a CSS selector finds."""
        self.click(*self.middle_of(selector))

    def middle_of(self, selector: str) -> tuple[float, float]:
        """Where an element is, after it has been scrolled into view."""
        place = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;"
            " e.scrollIntoView({block: 'center', behavior: 'instant'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        assert place is not None, f"the page has no element {selector}"
        return place[0], place[1]

    def wheel(self, x: float, y: float, delta_y: float) -> None:
        """Turn the mouse's wheel; positive is down."""
        place = {"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": delta_y}
        self.call("Input.dispatchMouseEvent", place)

    def press(self, key: str) -> None:
        """A key by its DOM name (ArrowRight, Home, Enter, Tab), or one character; it goes to what has the focus."""
        stroke: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": KEYS.get(key, ord(key[0].upper()))}
        typed = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", {"type": "keyDown", **stroke, **typed})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", **stroke})

    def touch(self, *moves: list[tuple[float, float]]) -> None:
        """Fingers go down at the first move's places, follow the moves, and lift."""
        for k, fingers in enumerate(moves):
            points = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(fingers)]
            self.call("Input.dispatchTouchEvent", {"type": "touchMove" if k else "touchStart", "touchPoints": points})
        self.call("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    def close(self) -> None:
        """Close this page; the browser stays."""
        self._connection.call("Target.closeTarget", {"targetId": self._target})

    def _mouse(self, kind: str, x: float, y: float, button: str, buttons: int) -> None:
        held = {"left": 1, "right": 2, "middle": 4, "none": 0}[button] if buttons else 0
        place = {"type": kind, "x": x, "y": y, "button": button, "buttons": held}
        self.call("Input.dispatchMouseEvent", {**place, "clickCount": int(kind != "mouseMoved")})

    def _on_event(self, method: str, event: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Network.webSocketCreated":
            self.requests.append(event["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(_exception(event["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description", ""))) for a in event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] == "error":
            self.errors.append(f"{event['entry']['text']} {event['entry'].get('url', '')}".strip())
        elif method == "Inspector.targetCrashed":
            self.errors.append("the page crashed")


def _exception(details: dict[str, Any]) -> str:
    return str(details.get("exception", {}).get("description") or details.get("text", "exception"))

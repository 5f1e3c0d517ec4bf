"""A browser window without a browser: speaks viser's socket protocol, reads everything it is sent, acts on widgets."""

from __future__ import annotations

import contextlib
import threading
import time

import msgspec
import viser
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from copilot4d.studio.server import Studio
from copilot4d.studio.view import View


class FakeBrowser:
    """`with FakeBrowser(studio) as window: window.set("steer", 5.0)`. Leaving the block closes the window."""

    def __init__(self, studio: Studio, *, origin: str | None = None) -> None:
        self.studio = studio
        self.origin = origin
        self.received = 0

    def __enter__(self) -> FakeBrowser:
        before = set(self.studio.server.get_clients())
        self._socket = connect(
            self.studio.url.replace("http", "ws"), subprotocols=[f"viser-v{viser.__version__}"], max_size=None,
            compression=None, origin=self.origin,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.send(
            "ViewerCameraMessage", wxyz=(1.0, 0, 0, 0), position=(0.0, 0, 0), fov=1.0, near=0.1, far=100.0,
            image_height=8, image_width=8, look_at=(1.0, 0, 0), up_direction=(0.0, 0, 1),
        )  # fmt: skip
        wait_for(lambda: set(self.studio.server.get_clients()) - before)
        [self.client_id] = set(self.studio.server.get_clients()) - before
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._reader.join(10)

    @property
    def view(self) -> View:
        """The server's side of this window."""
        wait_for(lambda: self.client_id in self.studio.views)
        return self.studio.views[self.client_id]

    def send(self, kind: str, **fields: object) -> None:
        self._socket.send(msgspec.msgpack.encode({"type": kind, **fields}))

    def set(self, widget: str, value: object) -> None:
        """Change a widget by its name in the panel, as a hand in the browser does. A button takes True."""
        self.send("GuiUpdateMessage", uuid=getattr(self.view.panel, widget)._impl.uuid, updates={"value": value})

    def click(self, button: str) -> None:
        self.set(button, True)

    def drag(self, waypoint: int, *places: tuple[float, float]) -> None:
        """Take a waypoint, move it along places, let it go."""
        target = {"name": f"/waypoints/{waypoint}", "owner": str(self.client_id)}
        self.send("TransformControlsDragStartMessage", **target)
        for x, y in places:
            self.send("TransformControlsUpdateMessage", wxyz=(1.0, 0, 0, 0), position=(x, y, -1.5), **target)
        self.send("TransformControlsDragEndMessage", **target)

    def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            for message in self._socket:
                self.received += len(message)


def wait_for(condition, timeout_s: float = 60.0) -> None:
    """Until the condition holds; an AssertionError after a time that only a broken program needs."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)

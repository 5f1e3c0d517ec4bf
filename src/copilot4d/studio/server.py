"""The studio's server: a viser server on this machine, with a view for every browser window."""

from __future__ import annotations

import contextlib
import io
import ipaddress
import socket
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import viser

from copilot4d.errors import UsageError
from copilot4d.studio.library import Library
from copilot4d.studio.view import Start, View
from copilot4d.studio.worker import SETTLE_S, Worker

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_address(host: str) -> None:
    """UsageError where nothing can listen on the host: viser would try one port after the other, for ever."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.bind(address)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"`host` {host} is no address of this machine ({error}); 127.0.0.1 always is") from error


class Studio:
    """Serves until it is closed. `url` is where to point a browser."""

    def __init__(
        self, start: Start, library: Library, *, host: str = "127.0.0.1", port: int = 8080, settle_s: float = SETTLE_S
    ) -> None:
        _check_address(host)
        self.start = start
        self.host = host
        self.library = library
        self.worker = Worker(settle_s=settle_s)
        self.views: dict[int, View] = {}
        self._lock = threading.Lock()
        # A window that closes while it is drawn is no news.
        warnings.filterwarnings("ignore", message="Queued a .* on a closed connection", category=UserWarning)
        with contextlib.redirect_stdout(io.StringIO()):  # viser greets on its own; the command line does that here
            self.server = _LocalServer(host=host, port=port, label="copilot4d: what if?", verbose=False)
        try:
            self._connections = _connections(self.server)
        except UsageError:
            self.worker.close()
            self.server.stop()
            raise
        self.server.gui.configure_theme(
            dark_mode=True, show_logo=False, show_share_button=False, control_width="medium"
        )
        self.server.scene.configure_default_lights(cast_shadow=False)  # points cast none, and they cost a pass a frame
        self.server.initial_camera.position = (-16.0, 0.0, 12.0)
        self.server.initial_camera.look_at = (8.0, 0.0, 0.0)
        self.server.on_client_connect(self._on_connect)
        self.server.on_client_disconnect(self._on_disconnect)

    @property
    def url(self) -> str:
        """The address of the page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{'127.0.0.1' if self.host == '0.0.0.0' else host}:{self.server.get_port()}"

    def close(self) -> None:
        """End all windows, the worker and the server."""
        for client_id in [*self.views]:
            self._forget(client_id)
        self.worker.close()
        with contextlib.redirect_stdout(io.StringIO()):
            self.server.stop()

    def _on_connect(self, client: viser.ClientHandle) -> None:
        if not self._is_own_page(client):
            return  # another site's script gets an empty window
        view = View(client, self.library, self.worker, self.start)
        with self._lock:
            self.views[client.client_id] = view
        if client.client_id not in self.server.get_clients():  # it went while its view was made
            self._forget(client.client_id)

    def _on_disconnect(self, client: viser.ClientHandle) -> None:
        self._forget(client.client_id)

    def _forget(self, client_id: int) -> None:
        with self._lock:
            view = self.views.pop(client_id, None)
        if view is not None:
            view.close()

    def _is_own_page(self, client: viser.ClientHandle) -> bool:
        """Whether the window shows this server's own page. A browser lets any site's script connect to this machine,
        but tells where the script came from.
        """
        connection = self._connections.get(client.client_id)
        if connection is None or connection.request is None:  # gone already
            return False
        origin, host = connection.request.headers.get("Origin"), connection.request.headers.get("Host", "")
        if origin is None:  # no browser
            return True
        if urlsplit(origin).netloc != host:
            return False
        # A name that a stranger points at this machine would pass as its own page: only its own names do.
        return not is_loopback(self.host) or is_loopback(urlsplit(f"//{host}").hostname or "")


def _connections(server: viser.ViserServer) -> Mapping[int, ServerConnection]:
    """The open connections by client. viser has no public way to them, nor to the headers with which they began, so a
    version that keeps them elsewhere is refused: without them, every site's script could look in.
    """
    found = getattr(getattr(server, "_websock_server", None), "_live_connections", None)
    if not isinstance(found, Mapping):
        raise UsageError(
            f"the studio cannot tell its own page from other sites' scripts with viser {viser.__version__}: "
            "install the version that it is made for: pip install 'viser==1.1.*'"
        )
    return found


class _LocalServer(viser.ViserServer):
    """A viser server that never opens a tunnel to the outside, whatever a page asks."""

    def request_share_url(self, verbose: bool = True) -> str | None:
        """Refused: what is seen here stays here."""
        return None


@contextmanager
def serving(start: Start, library: Library, **options: Any) -> Iterator[Studio]:
    """A studio that is closed at the end of the block. Options: see `Studio`."""
    studio = Studio(start, library, **options)
    try:
        yield studio
    finally:
        studio.close()

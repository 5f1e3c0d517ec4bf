"""The socket of Chromium's DevTools protocol: commands with numbered answers, events by page."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

START_TIMEOUT_S = 90.0  # a busy machine starts a browser slowly


class Connection:
    """One socket to the browser: commands find their answers by number, events go to the page they belong to."""

    def __init__(self, address: str) -> None:
        self._socket = connect(address, max_size=None, open_timeout=START_TIMEOUT_S, compression=None, proxy=None)
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}
        self._closed = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def listen(self, session: str, listener: Callable[[str, dict[str, Any]], None]) -> None:
        """Hand this page's events over, from the reading thread."""
        self._listeners[session] = listener

    def call(
        self, method: str, parameters: dict[str, Any], session: str | None = None, *, timeout_s: float = 60.0
    ) -> dict[str, Any]:
        number = next(self._numbers)
        command: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps(command | ({"sessionId": session} if session else {})))
        with self._changed:
            answered = self._changed.wait_for(lambda: number in self._answers or self._closed, timeout_s)
            if number not in self._answers:
                raise TimeoutError(f"Chromium {'gave no answer to' if not answered else 'ended during'} {method}")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def close(self) -> None:
        self._socket.close()
        self._reader.join(10)

    def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            for text in self._socket:
                message = json.loads(text)
                if "id" in message:
                    with self._changed:
                        self._answers[message["id"]] = message
                        self._changed.notify_all()
                elif (listener := self._listeners.get(message.get("sessionId", ""))) is not None:
                    listener(message["method"], message.get("params", {}))
        with self._changed:
            self._closed = True
            self._changed.notify_all()

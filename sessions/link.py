"""A worker's line to its daemon: JSON objects, one a line, over the socket the worker was given.

    worker → daemon   {"type": "session_started", "session": 7, "item": …, "node": …, "deadline_at": …}
                      {"type": "call", "deadline_at": …}      about to wait for something outside
                      {"type": "session_ended", …}            what a person reads about it
                      {"type": "idle"}                        nothing is ready; the worker returns
    daemon → worker   {"type": "stop"}                        finish this session and return

The last ``deadline_at`` (UTC seconds) a worker declared binds it: past that the daemon kills it with its whole
process group. Messages inform; nothing a restart needs is in them alone.
"""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Mapping
from typing import Any

from store.text import as_json

_MAX_STOP_BYTES = 65536


class Link:
    """The worker's end."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._stop = False
        self._buffer = b""

    @classmethod
    def pair(cls) -> tuple[Link, socket.socket]:
        """A link and the daemon's end of it, for whoever runs a worker's function in their own process."""
        own, other = socket.socketpair()
        return cls(own), other

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message whole. A daemon that is gone is no error: then ``stop_asked`` says so."""
        try:
            self._sock.sendall(as_json(message).encode("utf-8", "replace") + b"\n")
        except OSError:
            self._stop = True

    def stop_asked(self) -> bool:
        """Whether to take no further session: the daemon said so, SIGTERM came, or the daemon is gone."""
        while not self._stop:
            try:
                chunk = self._sock.recv(4096, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except OSError:
                chunk = b""
            self._take(chunk)
        return True

    def stop_on_sigterm(self) -> None:
        """Let SIGTERM of this process ask for a stop instead of ending it mid-session."""
        signal.signal(signal.SIGTERM, lambda _number, _frame: self.ask_stop())

    def ask_stop(self) -> None:
        """Ask as the daemon would."""
        self._stop = True

    def close(self) -> None:
        """Hang up."""
        self._sock.close()

    def _take(self, chunk: bytes) -> None:
        if not chunk:
            self._stop = True
            return
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        self._stop = len(self._buffer) > _MAX_STOP_BYTES or any(_is_stop(line) for line in lines)


def _is_stop(line: bytes) -> bool:
    try:
        message = json.loads(line)
    except ValueError:
        return False
    return isinstance(message, dict) and message.get("type") == "stop"

"""The service manager's socket: one datagram of ``NAME=value`` lines at a time, as sd_notify(3) says.

Our own few lines, since the protocol is one ``sendto``. Without a manager nothing is sent and nothing is an error. What
a manager put into the environment is taken out of it, so that no child can speak in the daemon's name.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
SEND_WAIT_S = 1.0
"""How long a manager whose queue is full is waited for; then the datagram is dropped."""


class Line:
    """A line to the manager; ``watchdog_s`` is the time within which it wants to hear ``WATCHDOG=1``, None: never."""

    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        self.watchdog_s = watchdog_s
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if address.startswith(("/", "@")):  # other kinds are for managers of other machines
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.settimeout(SEND_WAIT_S)

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return self._socket is not None

    def say(self, *lines: str) -> None:
        """Send these lines as one datagram. A manager that is gone or deaf is no trouble of ours."""
        if self._socket is not None and lines:
            with suppress(OSError):
                text = "\n".join(" ".join(line.splitlines()) for line in lines)
                self._socket.sendto(text.encode("utf-8", "replace"), self._address)

    def close(self) -> None:
        """Say nothing more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def take(environ: MutableMapping[str, str]) -> Line:
    """The line that this process was given, and nobody after it: the variables are removed."""
    given = {name: environ.pop(name, "") for name in VARIABLES}
    usec = given["WATCHDOG_USEC"]
    mine = given["WATCHDOG_PID"] in {"", str(os.getpid())}
    watched = mine and usec.isascii() and usec.isdigit() and int(usec) > 0
    return Line(given["NOTIFY_SOCKET"], int(usec) / 1e6 if watched else None)


def monotonic_usec() -> str:
    """Now on the clock that ``RELOADING=1`` is to be dated by."""
    return f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


def patience(seconds: float) -> str:
    """Asks for ``seconds`` from now for a start or a stop that takes its time."""
    return f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}"

"""The server around the connections: uvicorn's configuration and parser without its loop, signals and logs.

uvicorn's own main loop wakes ten times a second to look at the clock; here nothing runs while nobody calls.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Sequence
from email.utils import formatdate

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from daemon.http import listening, replies
from daemon.http.limits import Limits
from daemon.http.protocol import Connection

LOOK_S = 0.02
SILENT = logging.CRITICAL + 1


class State(ServerState):
    """The connections, and the headers that every answer has: ours, and the date, made once a second at most."""

    def __init__(self) -> None:
        self._fixed = [(name.encode(), value.encode()) for name, value in replies.HEADERS]
        self._headers, self._made_at = self._fixed, -1
        super().__init__()

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """In uvicorn's form."""
        now = int(time.time())
        if now != self._made_at:
            self._made_at = now
            self._headers = [(b"date", formatdate(now, usegmt=True).encode()), *self._fixed]
        return self._headers

    @default_headers.setter
    def default_headers(self, _headers: list[tuple[bytes, bytes]]) -> None:
        """What uvicorn sets at first: nothing."""


class Server:
    """Serves ``app`` on listening sockets until it is stopped."""

    def __init__(self, app: ASGIApp, sockets: Sequence[socket.socket], limits: Limits) -> None:
        logging.getLogger("uvicorn.error").setLevel(SILENT)  # what matters of it is told by us
        self._config = Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
        )
        self._config.load()
        self._sockets, self._limits = sockets, limits
        self._state = State()
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        """Take connections."""
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            server = await loop.create_server(self._connection, sock=sock, backlog=listening.BACKLOG)
            self._servers.append(server)

    async def stop(self) -> None:
        """Take no more, answer what came whole, and end the rest after ``stop_s``."""
        for server in self._servers:
            server.close()
        listening.close(self._sockets)
        for connection in self._open():
            connection.shutdown()
        end = time.monotonic() + self._limits.stop_s
        while self._state.connections and time.monotonic() < end:  # noqa: ASYNC110 - once, at the end
            await asyncio.sleep(LOOK_S)
        for connection in self._open():
            connection.abort()

    def _connection(self) -> Connection:
        return Connection(self._config, self._state, self._limits)

    def _open(self) -> list[Connection]:
        return [one for one in self._state.connections if isinstance(one, Connection)]

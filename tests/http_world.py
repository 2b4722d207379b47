"""The HTTP server in a thread of this process, on a real socket and a real store, with limits that a test can wait for.

``talk`` sends raw bytes and reads until the server closes: what is on the wire is what is tested.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from webhook_world import GITHUB_SECRET, KEY, signed

from daemon.http import listening
from daemon.http.app import Surface
from daemon.http.guard import Rules
from daemon.http.limits import Limits
from daemon.http.server import Server
from daemon.sections import HttpSettings
from store.opening import prepare
from store.sqlite import open_store
from triggers.webhooks.accept import Accepting
from triggers.webhooks.hook import Hook

QUICK = Limits(head_s=1.0, request_s=1.5, answer_s=10.0, idle_s=1.0, drain_s=1.0, stop_s=3.0)
HOOKS = {
    "shop": Hook("shop", "work", "standard", (KEY,)),
    "code": Hook("code", "work", "github", (GITHUB_SECRET.encode(),)),
    "small": Hook("small", "work", "standard", (KEY,), max_bytes=1000),
    "keyed": Hook(
        "keyed", "work", "standard", (KEY,), title="/data/subject", body="/data/text", key="/data/order"
    ),
    "tight": Hook("tight", "full", "standard", (KEY,)),
}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


class Site:
    """See the module's head. ``trouble`` may be set to what ``/readyz`` is to say."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: Limits = QUICK,
        caps: Mapping[str, int] | None = None,
        token: bytes = b"",
        store: Callable[[Any], Any] = lambda intake: intake,
    ) -> None:
        prepare(folder)
        self.store = open_store(folder)
        self.limits, self.caps, self.token = limits, dict(caps or {"work": 100_000, "full": 0}), token
        self.trouble: list[str] = []
        self.woken: list[str] = []
        self.said: list[str] = []
        self.refused: list[str] = []
        self.fatal: list[BaseException] = []
        self._intake = store(self.store.intake)
        self._up, self._end = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.thread.start()
        assert self._up.wait(20)

    async def _serve(self) -> None:
        sockets = listening.listen(HttpSettings(bind="127.0.0.1:0"))
        self.port = sockets[0].getsockname()[1]
        self.accepting = Accepting(
            self._intake,
            self.caps,
            wake=lambda _queues, why: self.woken.append(why),
            fatal=self.fatal.append,
            said=self.said.append,
        )
        self.surface = Surface(
            self.accepting,
            trouble=lambda: self.trouble,
            refused=lambda _hook, answer: self.refused.append(answer.word),
            failed=lambda error: self.said.append(repr(error)),
            most_bytes=self.limits.bodies,
        )
        self.surface.hooks = HOOKS
        self.surface.rules = Rules({"127.0.0.1", "localhost", "::1", "hooks.example.org"}, self.token)
        self.server = Server(self.surface.app(), sockets, self.limits)
        await self.server.start()
        self._up.set()
        await asyncio.get_running_loop().run_in_executor(None, self._end.wait)
        await self.server.stop()
        await self.accepting.close()

    def close(self) -> None:
        self._end.set()
        self.thread.join(20)
        assert not self.thread.is_alive()
        self.store.close()

    def connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def talk(self, *pieces: bytes, pause_s: float = 0.0, half_close: bool = False) -> list[Answer]:
        """Send the pieces one by one; all answers until the server closes."""
        with self.connect() as sock:
            for piece in pieces:
                sock.sendall(piece)
                if pause_s:
                    time.sleep(pause_s)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
            return answers(read_all(sock))

    def rows(self, sql: str, *values: Any) -> list[tuple]:
        with self.store.db.read() as conn:
            return [tuple(row) for row in conn.execute(sql, values)]

    def items(self) -> int:
        return self.rows("SELECT count(*) FROM items")[0][0]


def request(
    path: str = "/hooks/shop",
    body: bytes = b"{}",
    *,
    method: str = "POST",
    headers: Mapping[str, str | None] | None = None,
    delivery: str = "msg_1",
    sign: bool = True,
    close: bool = True,
    more: bytes = b"",
) -> bytes:
    """One request as bytes, good unless told otherwise; a header of None is left out, ``more`` are raw header lines."""
    made: dict[str, str | None] = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    made |= signed(body, delivery) if sign else {}
    made |= {"Connection": "close"} if close else {}
    made |= dict(headers or {})
    lines = "".join(f"{name}: {value}\r\n" for name, value in made.items() if value is not None)
    return f"{method} {path} HTTP/1.1\r\n{lines}".encode("latin-1") + more + b"\r\n" + body


def chunked(*chunks: bytes, trailer: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in chunks) + b"0\r\n" + trailer + b"\r\n"


def read_all(sock: socket.socket) -> bytes:
    """All bytes until the server closes; a reset counts as an end."""
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data


def answers(data: bytes) -> list[Answer]:
    """The answers in a stream; interim ones (1xx) are left out."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        status = int(re.fullmatch(r"HTTP/1\.1 (\d{3}) .*", first)[1])
        if status < 200:
            continue
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = int(headers["content-length"])
        body, data = data[:length], data[length:]
        found.append(Answer(status, headers, json.loads(body) if body else None))
    return found

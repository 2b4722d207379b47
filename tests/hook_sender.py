"""A sender of webhooks as they are in the wild: signs by Standard Webhooks, loses its connection, sends again.

``Hook`` is a webhook named ``shop`` in the configuration of a world, and the client of it. The signature is made here
from the standard's own words, not with the code that checks it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import socket
import struct
import threading
import time
from pathlib import Path
from typing import NamedTuple

SECRET = b"thirty-two bytes of no importance"
AGAIN_S = 0.1
PATIENCE_S = 90.0


class Told(NamedTuple):
    """What the sender saw. ``status`` is None when the connection ended before an answer."""

    status: int | None
    id: str = ""
    word: str = ""
    retry_after: str | None = None


NOTHING = Told(None)


class Hook:
    """See the module's head. Deliveries carry ``{"body": …}``, and the webhook takes that as the item's body."""

    def __init__(self, queue: str = "beta") -> None:
        self.queue = queue
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def tables(self, folder: Path) -> str:
        """The configuration; the secret lies beside it."""
        file = folder / "hook.secret"
        file.write_text(f"whsec_{base64.b64encode(SECRET).decode()}\n")
        file.chmod(0o600)
        return (
            f'[http]\nbind = "127.0.0.1:{self.port}"\n[webhooks.shop]\nqueue = "{self.queue}"\n'
            'scheme = "standard"\nsecret_file = "hook.secret"\nbody = "/body"\n'
        )

    def request(self, body: str, delivery: str) -> bytes:
        """The whole request, signed now."""
        data, at = json.dumps({"body": body}).encode(), str(int(time.time()))
        mac = hmac.new(SECRET, f"{delivery}.{at}.".encode() + data, hashlib.sha256).digest()
        head = (
            f"POST /hooks/shop HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
            f"webhook-id: {delivery}\r\nwebhook-timestamp: {at}\r\n"
            f"webhook-signature: v1,{base64.b64encode(mac).decode()}\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        return head.encode() + data

    def post(self, body: str, delivery: str, timeout: float = 60) -> Told:
        """Send it once."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout) as sock:
                sock.sendall(self.request(body, delivery))
                return told(sock)
        except (OSError, http.client.HTTPException):
            return NOTHING

    def hang_up(self, body: str, delivery: str, after: float) -> None:
        """Send a share of it (1: all), and reset the connection without waiting for an answer."""
        request = self.request(body, delivery)
        with socket.create_connection(("127.0.0.1", self.port), 10) as sock:
            sock.sendall(request[: int(len(request) * after)])
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def until_told(self, body: str, delivery: str, seconds: float = PATIENCE_S) -> list[Told]:
        """Send the same delivery until it is answered with 200 or 202, as every sender does; all that it was told."""
        end, seen = time.monotonic() + seconds, []
        while True:
            seen.append(self.post(body, delivery))
            if seen[-1].status in (200, 202):
                return seen
            assert seen[-1].status in (None, 503), seen[-1]
            assert time.monotonic() < end, f"{delivery} was never taken: {seen[-3:]}"
            time.sleep(AGAIN_S)


def told(sock: socket.socket) -> Told:
    """Read one answer."""
    answer = http.client.HTTPResponse(sock, method="POST")
    answer.begin()
    document = json.loads(answer.read())
    word = document.get("error") or document.get("outcome") or ""
    return Told(answer.status, document.get("id", ""), word, answer.headers.get("Retry-After"))


class Flood:
    """Many connections that send as fast as they are answered, each over a kept connection, until told to stop."""

    def __init__(self, hook: Hook, connections: int, *, fresh: int, padding: int = 0) -> None:
        """``fresh``: how many deliveries are new; after those, the same ones are sent again and again.

        ``padding``: so many characters more in each body.
        """
        self.hook, self.fresh, self._more = hook, fresh, " x" * (padding // 2)
        self.sent: dict[str, str] = {}  # delivery → body
        self.told: list[tuple[str, Told]] = []
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._send) for _ in range(connections)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends when every request that was sent was answered, or its connection ended."""
        self.stopped.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _next(self) -> tuple[str, str]:
        with self._lock:
            number = len(self.sent) if len(self.sent) < self.fresh else len(self.told) % self.fresh
            delivery, body = f"http-{number}", f"answer over http {number}{self._more}"
            self.sent[delivery] = body
            return delivery, body

    def _send(self) -> None:
        sock = None
        while not self.stopped.is_set():
            delivery, body = self._next()
            try:
                sock = sock or socket.create_connection(("127.0.0.1", self.hook.port), 60)
                sock.sendall(self.hook.request(body, delivery))
                answer = told(sock)
            except (OSError, http.client.HTTPException):
                answer = NOTHING
            if answer.status not in (200, 202):  # others may end the connection
                if sock is not None:
                    sock.close()
                sock = None
                time.sleep(0.02)
            with self._lock:
                self.told.append((delivery, answer))
        if sock is not None:
            sock.close()

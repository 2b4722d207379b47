"""A lean sender of signed deliveries over a few kept connections: sockets and epoll, everything signed beforehand.

    python benchmarks/hook_load.py --port 8765 --path /hooks/shop --secret-file hook.secret [--seconds 3]

Prints ``ready``, waits for a line on stdin, sends until the seconds or the deliveries are over, and prints one JSON
object: requests a second, latencies in ms, the statuses that came. Loopback only.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import selectors
import socket
import sys
import time
import uuid
from collections import Counter
from pathlib import Path


class Line:
    """One kept connection with one request under way."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(60)
        self.got = b""
        self.at = 0.0

    def send(self, request: bytes) -> None:
        """Send the next request."""
        self.at = time.perf_counter()
        self.sock.sendall(request)

    def receive(self) -> int | None:
        """Read what is there; the status when the answer is whole."""
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionResetError("the server hung up")
        self.got += data
        head, found, body = self.got.partition(b"\r\n\r\n")
        if not found:
            return None
        lower = head.lower()
        at = lower.find(b"content-length:")
        length = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(body) < length:
            return None
        self.got = body[length:]
        return int(head[9:12])


def signed(path: str, secret: bytes, count: int, body: str) -> list[bytes]:
    """Whole requests by Standard Webhooks, each a delivery and an item of its own."""
    at, made, run = str(int(time.time())), [], uuid.uuid4().hex
    for number in range(count):
        name = f"msg_{run}_{number}"
        data = json.dumps({"body": f"{body} {run} {number}"}).encode()
        mac = hmac.new(secret, f"{name}.{at}.".encode() + data, hashlib.sha256).digest()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"webhook-id: {name}\r\nwebhook-timestamp: {at}\r\n"
            f"webhook-signature: v1,{base64.b64encode(mac).decode()}\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        made.append(head.encode() + data)
    return made


def flood(port: int, requests: list[bytes], connections: int, seconds: float) -> dict[str, object]:
    """Send over all connections at once, each one request at a time."""
    picker = selectors.EpollSelector()
    lines = [Line(port) for _ in range(connections)]
    waiting = iter(requests)
    statuses: Counter[int] = Counter()
    took: list[float] = []
    began = time.perf_counter()
    end = began + seconds
    for line in lines:
        picker.register(line.sock, selectors.EVENT_READ, line)
        line.send(next(waiting))
    open_lines = len(lines)
    while open_lines:
        for key, _ in picker.select(60):
            line = key.data
            status = line.receive()
            if status is None:
                continue
            now = time.perf_counter()
            statuses[status] += 1
            took.append(1000 * (now - line.at))
            request = next(waiting, None) if now < end else None
            if request is None:
                picker.unregister(line.sock)
                line.sock.close()
                open_lines -= 1
            else:
                line.send(request)
    spent_s = time.perf_counter() - began
    took.sort()
    return {
        "rate": len(took) / spent_s,
        "p50_ms": took[len(took) // 2],
        "p99_ms": took[int(len(took) * 0.99)],
        "max_ms": took[-1],
        "statuses": dict(statuses),
    }


def secret_of(file: Path) -> bytes:
    """``whsec_`` secrets are base64, others are taken as they are."""
    text = file.read_text().removesuffix("\n")
    return base64.b64decode(text.removeprefix("whsec_")) if text.startswith("whsec_") else text.encode()


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--port", type=int, required=True)
    words.add_argument("--path", required=True)
    words.add_argument("--secret-file", type=Path, required=True)
    words.add_argument("--connections", type=int, default=16)
    words.add_argument("--seconds", type=float, default=3.0)
    words.add_argument("--most", type=int, default=20_000, help="deliveries signed beforehand")
    words.add_argument("--body", default="delivery")
    options = words.parse_args()
    requests = signed(options.path, secret_of(options.secret_file), options.most, options.body)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(flood(options.port, requests, options.connections, options.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

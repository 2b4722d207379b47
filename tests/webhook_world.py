"""A sender of deliveries: signs them as real ones do, and says what came back over a real socket."""

from __future__ import annotations

import http.client
import json
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from triggers.webhooks import signatures

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEY = signatures.secret_of(SECRET.encode(), "standard")
GITHUB_SECRET = "It's a Secret to Everybody"
TABLES = """
[http]
bind = "127.0.0.1:0"
[webhooks.shop]
scheme = "standard"
secret_file = "shop.secret"
queue = "work"
[webhooks.code]
scheme = "github"
secret_file = "code.secret"
queue = "work"
title = "/issue/title"
body = "/issue/body"
"""


class Reply(NamedTuple):
    """What came back; ``body`` is the JSON document."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str]


def write_secret(path: Path, text: str = SECRET) -> None:
    path.write_text(text + "\n")
    path.chmod(0o600)


def port_of(world) -> int:
    """Where the daemon of ``world`` listens, from what it said."""
    return int(world.until(lambda: re.search(r"http://127\.0\.0\.1:(\d+)", world.said()))[1])


def signed(body: bytes, delivery: str, *, key: bytes = KEY, at: float | None = None) -> dict[str, str]:
    now = time.time() if at is None else at
    return signatures.signed_headers("standard", key, body, delivery=delivery, now=now)


def send(port: int, path: str, body: bytes, headers: dict[str, str], method: str = "POST") -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} | headers)
        answer = connection.getresponse()
        text = answer.read()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, json.loads(text) if text else {}, named)
    finally:
        connection.close()


def deliver(world, body: str, delivery: str) -> Reply | None:
    """One delivery to the webhook ``shop`` of a daemon; None when it died before it answered."""
    data = json.dumps({"body": body}).encode()
    try:
        return send(port_of(world), "/hooks/shop", data, signed(data, delivery))
    except (OSError, http.client.HTTPException):
        return None

"""What every answer of the HTTP server looks like: a small JSON object, and headers that let a browser do nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

HEADERS = (
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ("x-content-type-options", "nosniff"),
    ("cache-control", "no-store"),
    ("referrer-policy", "no-referrer"),
)
"""Set on every answer by the server, whoever made it."""


class Json(Response):
    """A JSON document with a line's end, for people with curl."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Its bytes."""
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def problem(
    status: int,
    word: str,
    message: str,
    *,
    again_s: int | None = None,
    close: bool = False,
    headers: Mapping[str, str] | None = None,
) -> Json:
    """A refusal: the rule's name and a sentence. ``close``: the request's body was not read."""
    more = dict(headers or {})
    if again_s is not None:
        more["retry-after"] = str(again_s)
    if close:
        more["connection"] = "close"
    return Json({"error": word, "message": message}, status, more)


def parts(word: str, message: str, *, again_s: int | None = None) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Body and headers of a refusal, for a connection that has no request to answer."""
    response = problem(400, word, message, again_s=again_s)
    return bytes(response.body), list(response.raw_headers)

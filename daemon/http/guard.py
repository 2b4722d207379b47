"""Who may ask at all, judged from the headers before anything is routed (FIELD 18).

    not exactly one Host          400      a Host that is not in allowed_hosts      421
    an Origin that is not         403      a token is set and not shown             401, but for webhooks and health

So a web page on another site, or one whose name was pointed at this machine, reaches nothing. There are no CORS
headers, and what is read with GET changes nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from daemon.http import replies
from daemon.sections import host_of
from store.text import shown

OPEN = ("/healthz", "/readyz")
OPEN_UNDER = "/hooks/"


class Rules(NamedTuple):
    """``hosts``: as ``host_of`` gives them; ``token``: empty for none."""

    hosts: Collection[str]
    token: bytes = b""


class Guard:
    """The outermost application; ``rules`` is asked at each request, so that a reload counts at once."""

    def __init__(self, app: ASGIApp, rules: Callable[[], Rules]) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on."""
        await (refusal(scope, self._rules()) or self._app)(scope, receive, send)


def refusal(scope: Scope, rules: Rules) -> Response | None:
    """The answer to a request that may not be here."""
    found = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    if len(found) != 1:
        return replies.problem(400, "bad-host", "a request needs one Host header, and not two", close=True)
    if host_of(found[0]) not in rules.hosts:
        message = f'"{shown(found[0], 80)}" is not in allowed_hosts of [http]'
        return replies.problem(421, "foreign-host", message, close=True)
    for name, value in scope["headers"]:
        if name == b"origin" and _origin_host(value.decode("latin-1")) not in rules.hosts:
            return replies.problem(
                403, "foreign-origin", "a page of another site may not ask here", close=True
            )
    path = scope["path"]
    if (
        rules.token
        and path not in OPEN
        and not path.startswith(OPEN_UNDER)
        and not _shown(scope, rules.token)
    ):
        message, headers = "the token of [http] is needed here", {"www-authenticate": "Bearer"}
        return replies.problem(401, "no-token", message, close=True, headers=headers)
    return None


def _origin_host(origin: str) -> str:
    """Empty for ``null`` and for what is no origin."""
    scheme, slashes, rest = origin.partition("://")
    return host_of(rest) if slashes and scheme in {"http", "https"} else ""


def _shown(scope: Scope, token: bytes) -> bool:
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    return len(given) == 1 and hmac.compare_digest(given[0], b"Bearer " + token)

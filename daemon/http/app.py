"""What is served: ``POST /hooks/NAME``, ``GET /healthz``, ``GET /readyz``. Everything else is 404.

    accepted 202 · the same delivery again 200 · bad content 400 · not signed 401 · no such webhook 404 · not POST 405
    no length 411 · too large 413 · not JSON, or compressed 415 · unknown transfer coding 501 · not now 503

A request is judged by its head first; a body is read up to the webhook's cap, and not a byte of it is looked at before
its signature was checked, in the accept thread. 202 comes after the commit alone (FIELD 15).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from daemon.http import replies
from daemon.http.guard import Guard, Rules
from store.points import outside
from store.text import shown
from triggers.webhooks import signatures
from triggers.webhooks.accept import Accepting, Answer, Delivery
from triggers.webhooks.hook import Hook


class Surface:
    """What requests are answered from; a reload sets ``hooks`` and ``rules`` anew.

    ``trouble`` says why nothing can be stored now, in a few words each. ``refused`` hears of what senders got wrong,
    ``failed`` of faults of ours. ``most_bytes``: of all bodies that are being read, together.
    """

    def __init__(
        self,
        accepting: Accepting,
        *,
        trouble: Callable[[], Sequence[str]],
        refused: Callable[[Hook, Answer], None],
        failed: Callable[[Exception], None],
        most_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.hooks: Mapping[str, Hook] = {}
        self.rules = Rules(())
        self.failed = failed
        self._accepting, self._trouble, self._refused, self._clock = accepting, trouble, refused, clock
        self._most_bytes, self._reading = most_bytes, 0

    def app(self) -> ASGIApp:
        """The application, guarded."""
        routes = [
            Route("/hooks/{name}", Endpoint(self._hook, ("POST",), self)),
            Route("/healthz", Endpoint(_health, ("GET", "HEAD"), self)),
            Route("/readyz", Endpoint(self._ready, ("GET", "HEAD"), self)),
        ]
        inner = Starlette(routes=routes, exception_handlers={404: _not_found})
        inner.router.redirect_slashes = False
        return Guard(inner, lambda: self.rules)

    async def _ready(self, _request: Request) -> Response:
        reasons = list(self._trouble())
        return replies.Json({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def _hook(self, request: Request) -> Response:
        hook = self.hooks[request.path_params["name"]]
        refusal = judge_head(request.headers, hook)
        if refusal is not None:
            return refusal
        trouble = self._trouble()
        if trouble:
            words = f"{'; '.join(trouble)}; nothing was stored"
            return replies.problem(503, "busy", words, again_s=60, close=True)
        body = bytearray()
        try:
            refusal = await self._read(request, hook, body)
            if refusal is not None:
                return refusal
            delivery = Delivery(hook, _wanted(request.headers), bytes(body), self._clock())
            answer = await self._accepting.answer(delivery)
        finally:
            self._reading -= len(body)
        if answer.status >= 400:
            self._refused(hook, answer)
        return _reply(answer)

    async def _read(self, request: Request, hook: Hook, body: bytearray) -> Response | None:
        async for chunk in request.stream():
            if len(body) + len(chunk) > hook.max_bytes:
                return _too_large(hook)
            if self._reading + len(chunk) > self._most_bytes:
                return replies.problem(503, "busy", "too much comes at once", again_s=1, close=True)
            self._reading += len(chunk)
            body += chunk
        return None


class Endpoint:
    """One path: its methods, a name that must be known, and an answer even to a fault of ours."""

    def __init__(
        self, handler: Callable[[Request], Awaitable[Response]], methods: Sequence[str], surface: Surface
    ) -> None:
        self._handler, self._methods, self._surface = handler, methods, surface

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        request = Request(scope, receive)
        name = request.path_params.get("name")
        if name is not None and name not in self._surface.hooks:
            words = f'there is no webhook "{shown(name, 60)}" here, or it has no secret'
            response: Response = replies.problem(404, "no-such-webhook", words, close=True)
        elif request.method not in self._methods:
            allow = ", ".join(self._methods)
            words, headers = f"only {allow} here", {"allow": allow}
            response = replies.problem(405, "bad-method", words, close=True, headers=headers)
        else:
            try:
                response = await self._handler(request)
            except ClientDisconnect:
                return
            except Exception as error:  # noqa: BLE001 - the caller gets an answer, the terminal gets the fault
                self._surface.failed(error)
                response = replies.problem(500, "fault", "Shiftwork failed on it", close=True)
        if response.status_code == 202:
            with outside("webhook.answer"):
                await response(scope, receive, send)
        else:
            await response(scope, receive, send)


def judge_head(headers: Headers, hook: Hook) -> Response | None:
    """What can be refused before a byte of the body is read. Pure."""
    coding = headers.get("transfer-encoding")
    length = headers.get("content-length")
    packed = headers.get("content-encoding", "identity").strip().lower()
    if coding is not None and coding.strip().lower() != "chunked":
        return replies.problem(501, "bad-coding", "only chunked is known as a transfer coding", close=True)
    if length is None and coding is None:
        return replies.problem(411, "no-length", "a Content-Length header is needed", close=True)
    if length is not None and int(length) > hook.max_bytes:
        return _too_large(hook)
    if packed != "identity":
        more = {"accept-encoding": "identity"}
        return replies.problem(415, "compressed", "send it uncompressed", close=True, headers=more)
    if not _is_json(headers.get("content-type", "")):
        words, more = "the Content-Type must be application/json", {"accept": "application/json"}
        return replies.problem(415, "not-json", words, close=True, headers=more)
    return None


def _is_json(content_type: str) -> bool:
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charsets = [one.partition("=")[2].strip('" ') for one in parameters if one.startswith("charset")]
    json = kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
    return json and all(one in {"utf-8", "utf8"} for one in charsets)


def _wanted(headers: Headers) -> dict[str, str]:
    """The headers that signatures are made of; one that stands twice becomes a text that none of them is."""
    return {name: ", ".join(headers.getlist(name)) for name in signatures.HEADERS if name in headers}


def _reply(answer: Answer) -> Response:
    if answer.status >= 400:
        return replies.problem(answer.status, answer.word, answer.message, again_s=answer.again_s)
    document = {"outcome": answer.word} | ({"id": answer.item} if answer.item else {})
    return replies.Json(document | ({"message": answer.message} if answer.message else {}), answer.status)


def _too_large(hook: Hook) -> Response:
    message = f"this webhook takes at most {hook.max_bytes:,} bytes (max_bytes)"
    return replies.problem(413, "too-large", message, close=True)


async def _health(_request: Request) -> Response:
    """The loop is alive; nothing else is touched."""
    return replies.Json({"alive": True})


async def _not_found(_request: Request, _error: Exception) -> Response:
    return replies.problem(404, "not-found", "there is nothing here", close=True)

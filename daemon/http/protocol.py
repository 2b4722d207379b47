"""One HTTP connection, with an end to everything: uvicorn's protocol has neither deadlines nor sizes of its own.

    head ──headers complete──▶ body ──message complete──▶ answer ──▶ idle ──first byte──▶ head
    any of them, too slow: 408, or closed        head too large: 431, 414        bad bytes: 400
    answered before the body was read: the rest is dropped for ``drain_s``, then closed, so that the client, which is
    still sending, sees the answer instead of a reset

One timer runs per connection. A refusal is made here only when there is no request that the application could answer;
a bad request behind good ones waits until those are answered.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from daemon.http import replies
from daemon.http.limits import Limits

FRAMING = (b"content-length", b"transfer-encoding")


class Soft(asyncio.Transport):
    """The transport as requests see it: closing is left to the connection, which may have to drain."""

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        super().__init__()
        self._transport, self._connection = transport, connection

    def write(self, data: Any) -> None:
        """Pass on what is still wanted."""
        if not self._connection.ended:
            self._transport.write(data)

    def close(self) -> None:
        """End after what was written."""
        self._connection.end()

    def is_closing(self) -> bool:
        """Whether nothing more can be answered."""
        return self._connection.ended or self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the transport has it."""
        return self._transport.get_extra_info(name, default)


class Connection(HttpToolsProtocol):
    """See the module's head. ``stage`` is one of its words or ``drain``; ``since`` is monotonic seconds."""

    def __init__(self, config: Config, state: ServerState, limits: Limits) -> None:
        super().__init__(config, state, {})
        self.limits = limits
        self.stage, self.since = "head", time.monotonic()
        self.ended = False
        self._raw = cast("asyncio.Transport", None)
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = True
        self._head_bytes = self._wire_bytes = self._seen = 0
        self._sent_all = False
        self._after: tuple[int, str, str, int | None] | None = None
        self._again = False
        """The parser is being told a head that was judged before."""

    # ---------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, and drop a slower one when there are too many."""
        super().connection_made(transport)
        self._raw, self.transport = transport, Soft(transport, self)
        self._enter("head", self.limits.head_s)
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer, too."""
        self.ended = True
        self._cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, within the limits."""
        if self.ended or self._after is not None:
            return
        if self.stage == "idle":
            self._enter("head", self.limits.head_s)
        self._head_bytes += len(data) if self._in_head else 0
        self._wire_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.refuse(400, "bad-request", "this is not HTTP/1.1 as it should be")
        if self._in_head and self._head_bytes > self.limits.head:
            self._refuse_head()
        elif self._wire_bytes > self.limits.wire:
            self.refuse(400, "bad-chunks", "far more bytes on the wire than in the body")

    def _feed(self, data: bytes) -> None:
        """To the parser; and on, as if nothing had been said, where it stops for another protocol: we speak none.

        Some clients offer one with every request, and send the body all the same.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self.ended or self._after is not None or not self._busy():
                return
            head = [b"%b / HTTP/1.1\r\n" % self.scope["method"].encode()]
            head += [b"%b: %b\r\n" % pair for pair in self.headers if pair[0] in FRAMING]
            self.cycle.more_body, self._in_head = True, False
            self._enter("body", self.limits.request_s)
            self.parser = httptools.HttpRequestParser(self)
            self._again = True
            self.parser.feed_data(b"".join((*head, b"\r\n")))
            self._again = False
            self._feed(data[offer.args[0] :])

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more. What it asked whole is answered all the same; True keeps our half open."""
        self._sent_all = True
        if self._busy() and not self.cycle.more_body and not self.ended:
            self.cycle.keep_alive = False
            return True
        return False

    def _make_room(self) -> None:
        """End the connection that has waited longest for its client; this one when all others are worked on."""
        others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        slow = [one for one in others if one.stage != "answer" and not one.ended]
        if slow:
            min(slow, key=lambda one: one.since).abort()
        else:
            self.refuse(503, "busy", "too many connections; nothing was stored", again_s=1)

    def abort(self) -> None:
        """End at once, without a word."""
        self.ended = True
        self._cancel()
        self._raw.abort()

    # ---------------------------------------------------------------- one request

    def on_message_begin(self) -> None:
        """A request begins; it may be one behind others."""
        if self._again:
            return
        super().on_message_begin()
        self._in_head, self._seen, self._wire_bytes = True, 0, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Headers before the body alone count: a trailer could say something else than what was checked."""
        if self._in_head and not self._again:
            self._seen += len(name) + len(value) + 4
            super().on_header(name, value)

    def on_url(self, url: bytes) -> None:
        """The request target, in pieces."""
        if not self._again:
            super().on_url(url)

    def on_headers_complete(self) -> None:
        """Judge the head as a whole, and hand the request to the application."""
        self._in_head, self._head_bytes = False, 0
        if self.ended or self._after is not None or self._again:
            return
        if len(self.url) > self.limits.url:
            self.refuse(414, "url-too-long", f"at most {self.limits.url:,} bytes")
        elif self._seen > self.limits.head or len(self.headers) > self.limits.headers:
            self._refuse_head()
        elif len(self.pipeline) >= self.limits.pipelined:
            self.refuse(503, "busy", "too many requests at once on one connection", again_s=1)
        else:
            if not self._busy():
                self._enter("body", self.limits.request_s)
            _take_host_from(self.url, self.headers)
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Nobody wants the body of a refused request."""
        if not self.ended and self._after is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is here: from now on it is our time."""
        self._in_head, self._head_bytes = True, 0
        if self.ended or self._after is not None:
            return
        super().on_message_complete()
        if self._busy() and not self.pipeline:
            self._enter("answer", self.limits.answer_s)

    def on_response_complete(self) -> None:
        """The next one's turn; or the end, when this one was not through or what follows is bad."""
        if not self.pipeline and self.cycle.more_body:
            self.end()
        if self.ended:
            return
        super().on_response_complete()
        self._unset_keepalive_if_required()  # one timer is enough, and ours knows why it runs
        if self._busy():
            unfinished = self.cycle.more_body and not self.pipeline
            stage = ("body", self.limits.request_s) if unfinished else ("answer", self.limits.answer_s)
        elif self._after is not None:
            self._write_refusal(*self._after)
            return
        else:
            stage = ("head", self.limits.head_s) if self._head_bytes else ("idle", self.limits.idle_s)
        self._enter(*stage)

    def shutdown(self) -> None:
        """The daemon stops: what came whole is answered, what is still coming is told to come again."""
        if self.ended:
            return
        if self._busy() and not self.cycle.more_body:
            self.cycle.keep_alive = False
        elif self._busy():
            self.refuse(503, "busy", "stopping; nothing was stored", again_s=5)
        else:
            self._raw.close()

    # ---------------------------------------------------------------- refusing and ending

    def refuse(self, status: int, word: str, message: str, again_s: int | None = None) -> None:
        """Answer in the application's place, after the answers that are due, and end."""
        if self.ended or self._after is not None:
            return
        unfinished = self._busy() and self.cycle.more_body
        if unfinished and self.pipeline:
            self.pipeline.popleft()  # its own, the last one's, request: it never began
            self._after = (status, word, message, again_s)
        elif self._busy() and not unfinished:
            self._after = (status, word, message, again_s)
        else:
            if unfinished:  # the application waits for a body that is not to come
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            self._write_refusal(status, word, message, again_s)

    def _refuse_head(self) -> None:
        few = f"at most {self.limits.head:,} bytes and {self.limits.headers} headers"
        self.refuse(431, "headers-too-large", few)

    def _write_refusal(self, status: int, word: str, message: str, again_s: int | None) -> None:
        body, headers = replies.parts(word, message, again_s=again_s)
        lines = [STATUS_LINE[status]]
        for name, value in (*self.server_state.default_headers, *headers, (b"connection", b"close")):
            lines += [name, b": ", value, b"\r\n"]
        self._raw.write(b"".join((*lines, b"\r\n", body)))
        self._in_head = False  # more of it may come
        self.end()

    def end(self) -> None:
        """Close after what was written; first read and drop for a moment what the client is still sending."""
        if self.ended:
            return
        self._enter("drain", self.limits.drain_s)
        self.ended = True
        if self._in_head or self._sent_all or self._raw.is_closing() or not self._raw.can_write_eof():
            self._raw.close()
        else:
            self._raw.write_eof()
            self.flow.resume_reading()

    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # ---------------------------------------------------------------- time

    def _enter(self, stage: str, seconds: float) -> None:
        self._cancel()
        self.stage, self.since = stage, time.monotonic()
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        silent = self.stage == "idle" or (self.stage == "head" and not self._head_bytes)
        if self.ended or silent or self.stage == "answer":
            self.abort()
        else:
            self.refuse(408, "too-slow", "the request did not come in time; nothing was stored")


def _take_host_from(url: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """A whole URL as the target names the host, and then the Host header counts for nothing (RFC 9112, 3.2.2)."""
    if not url.startswith(b"/") and b"://" in url:
        host = httptools.parse_url(url).host or b""
        headers[:] = [(b"host", host), *(pair for pair in headers if pair[0] != b"host")]

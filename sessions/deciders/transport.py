"""The one file that imports httpx: a POST of JSON to a model's server, with limits on everything.

    sent ──▶ 2xx, whole, within the deadline ──▶ Got
      ├──▶ worth another try (``retries.py``) ──▶ again, at most ``TRIES`` times, ``WAIT_IN_CALL_S`` seconds of waiting
      │                                      └──▶ … then DeciderFailure; ``retry_after_s`` is stored by the session
      ├──▶ no quota, a redirect, another 4xx ──▶ DeciderFailure, permanent: nothing but a person helps
      └──▶ too slow, too large, not HTTP     ──▶ DeciderFailure

The deadline covers name, connection, handshake, headers and body: the call runs beside the waiting thread, which
shuts its socket down when the time is over, so that a slow drip cannot outlive it. No redirect is followed (it would
take the key along), nothing is taken from the environment (a proxy is a key of the configuration), TLS is verified
against the system's authorities. Only workers import this file.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import httpx

from sessions.decider import DeciderFailure, Wire
from sessions.deciders.retries import FIRST_WAIT_S, TRIES, WAIT_IN_CALL_S, asked_wait, error_of, retried

CONNECT_S: Final = 10.0
BROKEN: Final = 500
"""The status of a server that broke, maybe over this very request."""

ABOUT_THE_REQUEST: Final = (400, 413, 422)
"""Statuses that refuse this one request; another item's may pass."""

SECRET_HEADERS: Final = frozenset(
    {"authorization", "x-api-key", "proxy-authorization", "cookie", "set-cookie"}
)
SECRET_FROM_CHARS: Final = 12
"""A shorter key, such as the "none" that local servers are given, is a word that texts may hold: it is masked in
headers only, which are masked by their names.
"""

ESCAPED_AGAIN: Final = 3
"""JSON in a call's arguments in a reply; and a reply that is told of in another."""

MASK: Final = "***"


class Limits(NamedTuple):
    """Seconds for the whole call, and bytes of a reply's body."""

    deadline_s: float
    max_bytes: int


class Got(NamedTuple):
    """A 2xx reply. ``lost``: an earlier try may have cost something that nobody knows."""

    body: bytes
    content_type: str
    wire: Sequence[Wire]
    lost: bool


class _Answer(NamedTuple):
    status: int
    headers: httpx.Headers
    body: bytes


class Transport:
    """Posts to one server. No connection is kept: beside a model's thinking a new one costs nothing, and an old one may
    be dead.
    """

    def __init__(self, *, proxy: str | None = None) -> None:
        self._proxy = proxy
        self._client: httpx.Client | None = None

    def post(self, url: str, body: Mapping[str, Any], *, secrets: Mapping[str, str], headers: Mapping[str, str],
             limits: Limits) -> Got:  # fmt: skip
        """One call. ``secrets`` are headers whose values are masked wherever they show up. Raises DeciderFailure."""
        return _Call(
            self, url, body, {**headers, **secrets}, hidden=tuple(secrets.values()), limits=limits
        ).run()

    def client(self) -> httpx.Client:
        """The client of this process."""
        if self._client is None:
            self._client = httpx.Client(
                verify=_authorities(),
                trust_env=False,
                follow_redirects=False,
                proxy=self._proxy,
                limits=httpx.Limits(max_keepalive_connections=0),
            )
        return self._client

    def forget(self) -> None:
        """Begin anew with the next call, whatever still goes on in this one."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()


class _Call:
    """One call with its tries."""

    def __init__(
        self,
        transport: Transport,
        url: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        *,
        hidden: Sequence[str],
        limits: Limits,
    ) -> None:
        self._transport, self._url, self._limits = transport, url, limits
        self._content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        self._headers = {
            "content-type": "application/json",
            "accept": "application/json",
            "accept-encoding": "identity",  # a small reply cannot become a large one
            "user-agent": "shiftwork",
            **headers,
        }
        keys = [value.removeprefix("Bearer ") for value in hidden]
        self._hidden = [form for key in keys if len(key) >= SECRET_FROM_CHARS for form in _forms(key)]
        self._deadline = time.monotonic() + limits.deadline_s
        self.wire: list[Wire] = []
        self.lost = False
        self._words = ""

    def run(self) -> Got:
        waited = 0.0
        for number in range(1, TRIES + 1):
            answer = self._try()
            if answer is not None and 200 <= answer.status < 300:
                # what a server says back of the key goes no further than here
                body = self._hide(answer.body.decode("latin-1")).encode("latin-1")
                return Got(body, answer.headers.get("content-type", ""), self.wire, self.lost)
            last = number == TRIES
            wait_s = FIRST_WAIT_S * 2 ** (number - 1)
            if answer is not None:
                wait_s = self._judge(answer, wait_s, last=last)
            elif last:
                raise self._failure(self._words, away=True, suspect=self.lost)
            if waited + wait_s > WAIT_IN_CALL_S or time.monotonic() + wait_s >= self._deadline:
                raise self._failure(
                    self._words,
                    retry_after_s=wait_s,
                    away=True,
                    suspect=self._suspect(answer),
                )
            waited += wait_s
            time.sleep(wait_s)
        raise AssertionError("the last try returns or raises")

    def _judge(self, answer: _Answer, wait_s: float, *, last: bool) -> float:
        """How long to wait for the next try. Raises DeciderFailure where there is none."""
        error = error_of(answer.body)
        words = self._words = (
            f"the server answered {answer.status}{f': {error.words}' if error.words else ''}"
        )
        raw = answer.body.decode("utf-8", "replace")
        if error.out_of_money:
            words = f"{words}; the quota or the spend limit is used up, which only a person can change"
            raise self._failure(words, raw=raw, permanent=True, away=True)
        if 300 <= answer.status < 400:
            where = answer.headers.get("location", "elsewhere")[:200]
            words = f"{words}: it redirects to {where}, which is not followed; set base_url to it"
            raise self._failure(words, raw=raw, permanent=True, away=True)
        if not retried(answer.status, answer.headers.get("x-should-retry")):
            raise self._failure(words, raw=raw, permanent=True, away=answer.status not in ABOUT_THE_REQUEST)
        asked_s = asked_wait(answer.headers, now=time.time())
        if last or (asked_s is not None and asked_s > WAIT_IN_CALL_S):
            raise self._failure(
                words, raw=raw, retry_after_s=asked_s, away=True, suspect=self._suspect(answer)
            )
        return max(wait_s, asked_s or 0.0)

    def _suspect(self, answer: _Answer | None) -> bool:
        """May this very request be what broke the server? Then it counts against its item."""
        return self.lost or (answer is not None and answer.status == BROKEN)

    def _try(self) -> _Answer | None:
        """One request; None when the connection was lost or never came about."""
        self.wire.append(
            Wire("request", self._hide(_head(f"POST {self._url}", self._headers) + _text(self._content)))
        )
        left_s = self._deadline - time.monotonic()
        box: list[_Answer | Exception] = []
        with _Sockets() as sockets:
            thread = threading.Thread(
                target=self._send, args=(box, sockets, left_s), name="model call", daemon=True
            )
            thread.start()
            thread.join(max(left_s, 0.0))
            if thread.is_alive():
                sockets.shut()
                thread.join(1.0)
                self._transport.forget()
                raise self._too_slow()
        found = box[0]
        if isinstance(found, _Answer):
            self.wire.append(
                Wire("reply", self._hide(_head(str(found.status), found.headers) + _text(found.body)))
            )
            return found
        self._transport.forget()
        if isinstance(found, _TooMuch):
            raise self._failure(
                f"the server sent more than {self._limits.max_bytes} bytes", raw=_text(found.start)
            )
        if isinstance(found, (httpx.ReadTimeout, httpx.WriteTimeout)):
            raise self._too_slow()
        if not isinstance(found, (httpx.TransportError, OSError)):
            raise self._failure(f"the call went wrong: {found!r}")
        if not isinstance(found, (httpx.ConnectError, httpx.ConnectTimeout, OSError)):
            self.lost = True  # it may have been read, and answered into nothing
        self._words = f"no connection to the server, or it was lost: {str(found) or type(found).__name__}"
        self.wire.append(Wire("error", self._hide(self._words)))
        return None

    def _send(self, box: list[_Answer | Exception], sockets: _Sockets, left_s: float) -> None:
        try:
            box.append(self._exchange(sockets, left_s))
        except Exception as error:  # noqa: BLE001 - it is judged in the waiting thread
            box.append(error)

    def _exchange(self, sockets: _Sockets, left_s: float) -> _Answer:
        timeout = httpx.Timeout(max(left_s, 0.01), connect=max(min(CONNECT_S, left_s), 0.01))
        client = self._transport.client()
        with client.stream(
            "POST",
            self._url,
            content=self._content,
            headers=self._headers,
            timeout=timeout,
            extensions={"trace": sockets.note},
        ) as response:
            body = bytearray()
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > self._limits.max_bytes:
                    raise _TooMuch(bytes(body[:4000]))
            return _Answer(response.status_code, response.headers, bytes(body))

    def _too_slow(self) -> DeciderFailure:
        waited = f"{round(self._limits.deadline_s, 1):g} s"
        words = f"the server did not answer within {waited}; what the call cost is not known"
        self.wire.append(Wire("error", self._hide(words)))
        return self._failure(words)

    def _failure(
        self,
        words: str,
        *,
        raw: str = "",
        retry_after_s: float | None = None,
        permanent: bool = False,
        away: bool = False,
        suspect: bool = False,
    ) -> DeciderFailure:
        return DeciderFailure(
            self._hide(f"{words} ({self._url})"),
            raw=self._hide(raw),
            retry_after_s=retry_after_s,
            permanent=permanent,
            away=away,
            suspect=suspect,
            wire=self.wire,
        )

    def _hide(self, text: str) -> str:
        for word in self._hidden:
            text = text.replace(word, MASK)
        return text


def _forms(key: str) -> list[str]:
    """A key as it is, and as JSON writes it: quotes and backslashes escaped, by some writers slashes too; again and
    again where JSON stands as a text in JSON, as the arguments of a call do.
    """
    forms = {key}
    for _ in range(ESCAPED_AGAIN):
        written = {json.dumps(form)[1:-1] for form in forms}
        forms |= written | {form.replace("/", "\\/") for form in written}
    return sorted(forms, key=len, reverse=True)


class _TooMuch(Exception):
    """A body over the limit; ``start`` is its beginning."""

    def __init__(self, start: bytes) -> None:
        super().__init__("too much")
        self.start = start


class _Sockets:
    """The sockets of one try, as httpx tells of them: shutting them down wakes whoever reads from them.

    They are doubles, since a TLS handshake takes the first one away.
    """

    def __init__(self) -> None:
        self._doubles: list[socket.socket] = []

    def note(self, event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            found = info["return_value"].get_extra_info("socket")
            if found is not None:
                self._doubles.append(found.dup())

    def shut(self) -> None:
        for one in list(self._doubles):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for one in self._doubles:
            one.close()


def _authorities() -> ssl.SSLContext | bool:
    """The system's certificate authorities; those that httpx brings along where the system has none."""
    paths = ssl.get_default_verify_paths()
    return ssl.create_default_context() if paths.cafile or paths.capath else True


def _head(first: str, headers: Mapping[str, str]) -> str:
    lines = [
        f"{name}: {MASK if name.lower() in SECRET_HEADERS else value}" for name, value in headers.items()
    ]
    return "\n".join([first, *lines, "", ""])


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")

"""What the model deciders have in common: the key, one call, the envelope, the decision in it, the bill."""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from sessions.decider import DeciderFailure, Fault, Reply, Wire
from sessions.deciders.transport import Got, Limits, Transport
from sessions.ladder import one_object
from sessions.models import ModelDecider

MILLION: Final = 1_000_000
KEY_MAX_BYTES: Final = 16 * 1024
CUT: Final = ("length", "max_tokens", "model_context_window_exceeded")
WITHHELD: Final = ("refusal", "content_filter")
"""How servers say that a reply ended although it is not whole."""


class ModelCaller(ABC):
    """A decider that asks a model's server. A kind fills in ``url``, ``headers``, ``body`` and ``read``."""

    kind: str
    decided_by: Literal["code", "model"] = "model"
    wants_text: ClassVar[bool] = True

    def __init__(self, settings: ModelDecider) -> None:
        self.must_cite = settings.must_cite
        self._settings = settings
        self._transport = Transport(proxy=settings.proxy)
        self._wire: list[Wire] = []
        self._side_call = False
        self._over_at = 0.0

    def decide(self, request: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """One call, with its few retries. Raises DeciderFailure."""
        self._wire, self._side_call = [], False
        self._over_at = time.monotonic() + min(timeout_s, self._settings.timeout)
        try:
            got = self.call(self.body(request))
            try:
                reply = self.read(envelope(got), request)
            except DeciderFailure as failure:
                failure.raw = failure.raw or got.body.decode("utf-8", "replace")
                raise
        except DeciderFailure as failure:
            failure.wire = tuple(self._wire)
            raise
        usage = reply.usage or {}
        if got.lost or self._side_call:  # something more was spent, and nobody said how much
            usage = dict.fromkeys(usage)
        return reply._replace(wire=tuple(self._wire), usage=usage)

    def call(self, body: Mapping[str, Any]) -> Got:
        """POST this body, within what is left of the time. Raises DeciderFailure."""
        timeout_s = max(self._over_at - time.monotonic(), 0.01)
        try:
            got = self._transport.post(
                self.url(),
                body,
                secrets=self.secrets(),
                headers=self.headers(),
                limits=Limits(timeout_s, self._settings.max_output),
            )
        except DeciderFailure as failure:
            self._wire += failure.wire
            raise
        self._wire += got.wire
        return got

    @abstractmethod
    def url(self) -> str:
        """Where the request goes."""

    def headers(self) -> dict[str, str]:
        """Headers without secrets."""
        return {}

    def secrets(self) -> dict[str, str]:
        """Headers with secrets: the key is read anew for each call, so that it can be changed meanwhile."""
        file = self._settings.api_key_file
        return {} if file is None else {"authorization": f"Bearer {read_key(file)}"}

    @abstractmethod
    def body(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The request's body."""

    @abstractmethod
    def read(self, envelope: dict[str, Any], request: Mapping[str, Any]) -> Reply:
        """The decision in a reply's envelope. Raises DeciderFailure."""

    def cost(self, tokens_in: float | None, tokens_out: int | None) -> float | None:
        """What the call cost; None where a count or a price is unknown. Cached tokens may be weighted before."""
        price_in, price_out = self._settings.price_in, self._settings.price_out
        if tokens_in is None or tokens_out is None or price_in is None or price_out is None:
            return None
        return (tokens_in * price_in + tokens_out * price_out) / MILLION

    def usage(
        self, tokens_in: int | None, tokens_out: int | None, *, weighted_in: float | None = None
    ) -> dict[str, Any]:
        """Usage of one call; None is unknown."""
        cost = self.cost(tokens_in if weighted_in is None else weighted_in, tokens_out)
        return {"input_tokens": tokens_in, "output_tokens": tokens_out, "cost": cost}

    def incomplete(self, tokens_out: int | None, ended: Any) -> Fault | None:
        """Why a reply is not whole. One that used all it was allowed was cut, whatever the server says about how it
        ended; what the server says can only take a decision away (FIELD 32).
        """
        cap = self._settings.max_output_tokens
        if ended in CUT or (tokens_out is not None and tokens_out >= cap):
            return Fault("complete", f"the reply was cut (max_output_tokens is {cap}); give a shorter one")
        if ended in WITHHELD:
            return Fault(
                "complete", f"the server held the reply back ({ended}); decide without it, or ask a person"
            )
        return None


def read_key(file: str | os.PathLike[str]) -> str:
    """The key in a file, without what surrounds it. Raises DeciderFailure, which never holds the key."""
    try:
        with open(file, "rb") as stream:
            key = stream.read(KEY_MAX_BYTES).strip()
    except OSError as error:
        raise DeciderFailure(
            f"api_key_file {file} cannot be read: {error.strerror}", permanent=True, away=True
        ) from None
    if not key or any(not 0x21 <= byte <= 0x7E for byte in key):
        what = "is empty" if not key else "holds more than one word of printable ASCII"
        raise DeciderFailure(
            f"api_key_file {file} {what}; it has to hold the key alone", permanent=True, away=True
        )
    return key.decode("ascii")


def envelope(got: Got) -> dict[str, Any]:
    """The body of a 2xx reply as a JSON object. Raises DeciderFailure."""
    try:
        text = got.body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DeciderFailure(f"the server sent what is not UTF-8 (byte {error.start})") from None
    kind = got.content_type or "of no type"
    if not text.strip():
        raise DeciderFailure("the server sent an empty reply")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise DeciderFailure(
            f"the server sent no JSON ({kind[:80]}): {' '.join(text.split())[:120]}"
        ) from None
    if not isinstance(found, dict):
        raise DeciderFailure(f"the server sent JSON that is no object ({type(found).__name__})")
    return found


def count(value: Any) -> int | None:
    """A number of tokens; what is none, or absurd, is unknown."""
    return value if type(value) is int and 0 <= value <= 10**12 else None


def decision(name: Any, arguments: Any, allowed: tuple[str, ...]) -> str | Fault:
    """A call of a tool as the one JSON object that the ladder takes."""
    if not isinstance(name, str) or name not in allowed:
        return Fault("name", f"there is no tool {json.dumps(name)[:80]}; call one of {', '.join(allowed)}")
    if isinstance(arguments, Mapping):
        body: dict[str, Any] | Fault = dict(arguments)
    else:
        body = one_object(arguments if isinstance(arguments, str) else "")
    if isinstance(body, Fault):
        return body._replace(words=body.words.replace("the reply", f'what "{name}" was called with', 1))
    for key in ("usage", "decision"):
        if key in body and not (key == "decision" and body[key] == name):
            return Fault("schema", f'{key}: not a key of "{name}"')
    return json.dumps({**body, "decision": name})


def calls_fault(number: int, allowed: tuple[str, ...]) -> Fault | None:
    """Exactly one call is a decision."""
    if number == 1:
        return None
    how = "calls no tool" if number == 0 else f"makes {number} calls"
    return Fault("one call", f"the reply {how}; call exactly one of {', '.join(allowed)}, once")
